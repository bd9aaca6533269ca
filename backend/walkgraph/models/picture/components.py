"""Pictures cut, put together, masked, changed and compared. Pixels are RGB in [-1, 1], masks are in 0..1."""

from walkgraph.graph.catalogue import Component, Example, Param, Shown, port
from walkgraph.graph.declaring import PIXELS, Declarations, boolean, choice, integer, number

MOST_LISTED = 1024
"""The most pictures of a list."""
MOST_BOXES = 1024
MOST_CHARACTERS = 2000
"""The most characters of a drawn text."""

_MASK = "tensor: float[h, w]"
_PICTURES = "list of pixels: float[3, h, w]"
_SIDE = 8192

_component = Declarations("picture", category="Picture", cost="memory", deterministic=True)
_mixed = _component.in_module("mixing_operators")
_drawn = Declarations("picture", module="drawing_operators", category="Picture", host=True, deterministic=True)

_IN = port("pixels", PIXELS, description="RGB in [-1, 1]")
_OUT = port("pixels", PIXELS, description="RGB in [-1, 1]")


def _color(what: str, default: str = "#000000") -> Param:
    return Param(type="string", default=default, description=f"{what}, written `#rrggbb`.")


def _grey(*rows: list[float]) -> Shown:
    """The pixels of a grey picture."""
    return [list(rows)] * 3


_CUT: tuple[Component, ...] = (
    _component(
        "picture.crop",
        "Cuts a rectangle out of a picture. What lies outside the picture is left out.",
        inputs=(_IN,),
        outputs=(port("pixels", "pixels: float[3, new_h, new_w]", description="RGB in [-1, 1]"),),
        params={
            "left": integer("Pixels to the left of the rectangle.", default=0, min=0, max=_SIDE),
            "top": integer("Pixels above the rectangle.", default=0, min=0, max=_SIDE),
            "width": integer("Width in pixels; 0 goes on to the right edge.", default=0, min=0, max=_SIDE),
            "height": integer("Height in pixels; 0 goes on to the bottom edge.", default=0, min=0, max=_SIDE),
        },
        examples=(
            Example(
                params={"left": 1},
                inputs={"pixels": _grey([-1.0, 0.0, 1.0])},
                outputs={"pixels": _grey([0.0, 1.0])},
            ),
        ),
    ),
    _component(
        "picture.pad",
        "Adds a border to a picture.",
        inputs=(_IN,),
        outputs=(port("pixels", "pixels: float[3, new_h, new_w]", description="RGB in [-1, 1]"),),
        params={
            **{
                side: integer(f"Pixels added at the {side}.", default=0, min=0, max=_SIDE)
                for side in ("left", "top", "right", "bottom")
            },
            "fill": choice(
                ("color", "edge"), "Of one colour, or with the pixels of the edge repeated.", default="color"
            ),
            "color": _color("Colour of the border"),
        },
        examples=(
            Example(
                params={"left": 2, "bottom": 1, "color": "#ffffff"},
                inputs={"pixels": _grey([0.0])},
                outputs={"pixels": _grey([1.0, 1.0, 0.0], [1.0, 1.0, 1.0])},
            ),
        ),
    ),
    _component(
        "picture.rotate",
        "Turns a picture counter-clockwise. Quarter turns keep every pixel; others interpolate between four.",
        host=True,
        inputs=(_IN,),
        outputs=(port("pixels", "pixels: float[3, new_h, new_w]", description="RGB in [-1, 1]"),),
        params={
            "degrees": number("Angle in degrees.", default=90.0, min=-360, max=360),
            "expand": boolean("Enlarge the picture until all of it fits; otherwise it keeps its size.", default=True),
            "color": _color("Colour of the corners"),
        },
        examples=(
            Example(
                inputs={"pixels": _grey([-1.0, 0.0, 1.0])},
                outputs={"pixels": _grey([1.0], [0.0], [-1.0])},
                note="A quarter turn brings the right side to the top.",
            ),
        ),
    ),
    _component(
        "picture.flip",
        "Mirrors a picture.",
        inputs=(_IN,),
        outputs=(_OUT,),
        params={
            "direction": choice(
                ("horizontal", "vertical", "both"),
                "`horizontal` exchanges left and right, `vertical` top and bottom.",
                default="horizontal",
            )
        },
        examples=(
            Example(
                inputs={"pixels": _grey([-1.0, 0.0, 1.0])},
                outputs={"pixels": _grey([1.0, 0.0, -1.0])},
            ),
        ),
    ),
    _component(
        "picture.concat",
        "Puts a list of pictures side by side or below each other.",
        inputs=(port("pictures", _PICTURES, description="they may differ in size"),),
        outputs=(port("pixels", "pixels: float[3, new_h, new_w]", description="RGB in [-1, 1]"),),
        params={
            "direction": choice(("across", "down"), "Side by side, or below each other.", default="across"),
            "align": choice(
                ("start", "middle", "end"),
                "Where smaller pictures lie: at the top or left, in the middle, or at the bottom or right.",
                default="middle",
            ),
            "gap": integer("Pixels between two pictures.", default=0, min=0, max=1024),
            "color": _color("Colour of what no picture covers"),
        },
        examples=(
            Example(
                params={"gap": 1},
                inputs={"pictures": [_grey([1.0]), _grey([0.0], [0.0])]},
                outputs={"pixels": _grey([1.0, -1.0, 0.0], [-1.0, -1.0, 0.0])},
                note="The first picture is smaller; black fills the rest.",
            ),
        ),
    ),
    _component(
        "picture.grid",
        "Puts a list of pictures into the cells of a grid, row by row. Each cell is as large as the largest picture.",
        inputs=(port("pictures", _PICTURES, description="they may differ in size; smaller ones are centred"),),
        outputs=(port("pixels", "pixels: float[3, new_h, new_w]", description="RGB in [-1, 1]"),),
        params={
            "columns": integer("Pictures in a row; 0 makes about as many columns as rows.", default=0, min=0, max=256),
            "gap": integer("Pixels between two cells.", default=0, min=0, max=1024),
            "color": _color("Colour of what no picture covers"),
        },
        examples=(
            Example(
                params={"columns": 2},
                inputs={"pictures": [_grey([1.0]), _grey([0.0]), _grey([1.0])]},
                outputs={"pixels": _grey([1.0, 0.0], [1.0, -1.0])},
            ),
        ),
    ),
)

_MIXED: tuple[Component, ...] = (
    _mixed(
        "picture.compose",
        "Lays one picture over another, where its mask says so. What goes beyond the lower picture is left out.",
        inputs=(
            port("over", PIXELS, description="the upper picture"),
            port("onto", "pixels: float[3, onto_h, onto_w]", description="the lower picture, which gives the size"),
            port("mask", _MASK, optional=True, description="1 shows the upper picture, 0 the lower one"),
        ),
        outputs=(port("pixels", "pixels: float[3, onto_h, onto_w]", description="RGB in [-1, 1]"),),
        params={
            "left": integer("Column of the lower picture for the upper one's left.", default=0, min=-_SIDE, max=_SIDE),
            "top": integer("Row of the lower picture for the upper one's top.", default=0, min=-_SIDE, max=_SIDE),
            "opacity": number("Share of the upper picture where the mask is 1.", default=1.0, min=0, max=1),
        },
        examples=(
            Example(
                inputs={"over": _grey([1.0, 1.0]), "onto": _grey([-1.0, -1.0]), "mask": [[1.0, 0.5]]},
                outputs={"pixels": _grey([1.0, 0.0])},
                note="The second pixel is a half of both.",
            ),
        ),
    ),
    _mixed(
        "picture.mask_threshold",
        "Makes a mask: 1 where a picture is at least as bright as a threshold, 0 elsewhere.",
        inputs=(_IN,),
        outputs=(port("mask", _MASK, description="0 or 1"),),
        params={
            "threshold": number("Brightness from 0 (black) to 1 (white).", default=0.5, min=0, max=1),
            "invert": boolean("Exchange 0 and 1.", default=False),
        },
        examples=(
            Example(
                inputs={"pixels": _grey([-1.0, -0.2, 0.2, 1.0])},
                outputs={"mask": [[0.0, 0.0, 1.0, 1.0]]},
            ),
        ),
    ),
    _mixed(
        "picture.mask_draw",
        "Draws a rectangle or an ellipse as a mask, as large as a picture or of a given size.",
        inputs=(port("pixels", PIXELS, optional=True, description="a picture whose size the mask gets"),),
        outputs=(port("mask", _MASK, description="1 inside, 0 outside"),),
        params={
            "shape": choice(
                ("rectangle", "ellipse"), "The shape; an ellipse touches its four sides.", default="ellipse"
            ),
            "left": number("Left side as a share of the width.", default=0.25, min=0, max=1),
            "top": number("Top side as a share of the height.", default=0.25, min=0, max=1),
            "right": number("Right side as a share of the width.", default=0.75, min=0, max=1),
            "bottom": number("Bottom side as a share of the height.", default=0.75, min=0, max=1),
            "soften": number("Blur of the edge in pixels, as of `picture.blur`.", default=0.0, min=0, max=32),
            "invert": boolean("Exchange 0 and 1.", default=False),
            "width": integer("Width without a picture.", default=512, min=1, max=_SIDE),
            "height": integer("Height without a picture.", default=512, min=1, max=_SIDE),
        },
        examples=(
            Example(
                params={"shape": "rectangle", "width": 4, "height": 2, "top": 0.0, "bottom": 1.0},
                outputs={"mask": [[0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]]},
            ),
        ),
    ),
    _mixed(
        "picture.blur",
        "Blurs a picture with a Gaussian. Beyond the edge its last pixels are repeated.",
        inputs=(_IN,),
        outputs=(_OUT,),
        params={"radius": number("Standard deviation in pixels.", default=2.0, min=0, max=32)},
        cost="compute",
        examples=(
            Example(
                params={"radius": 0.5},
                inputs={"pixels": _grey([-1.0, -1.0, 1.0, -1.0, -1.0])},
                outputs={"pixels": _grey([-0.9995, -0.7871, 0.5731, -0.7871, -0.9995])},
            ),
        ),
    ),
    _mixed(
        "picture.levels",
        "Changes saturation, contrast, brightness and gamma, in this order.",
        inputs=(_IN,),
        outputs=(_OUT,),
        params={
            "saturation": number("0 is grey, 1 keeps the colours.", default=1.0, min=0, max=10),
            "contrast": number("Factor of the distance to middle grey.", default=1.0, min=0, max=10),
            "brightness": number("Added to each colour; 1 is the whole range from black.", default=0.0, min=-1, max=1),
            "gamma": number("Above 1 lightens the middle, below 1 darkens it.", default=1.0, min=0.1, max=10),
        },
        examples=(
            Example(
                params={"brightness": 0.25, "contrast": 0.5},
                inputs={"pixels": _grey([-1.0, 0.0, 1.0])},
                outputs={"pixels": _grey([0.0, 0.5, 1.0])},
            ),
        ),
    ),
    _mixed(
        "picture.to_tensor",
        "Gives a picture's pixels as a tensor.",
        inputs=(_IN,),
        outputs=(port("tensor", "tensor: float[3, h, w]"),),
        params={
            "low": number("Value for black.", default=0.0, min=-1e6, max=1e6),
            "high": number("Value for white.", default=1.0, min=-1e6, max=1e6),
        },
        examples=(
            Example(
                params={"high": 255.0},
                inputs={"pixels": _grey([-1.0, 0.0, 1.0])},
                outputs={"tensor": _grey([0.0, 127.5, 255.0])},
            ),
        ),
    ),
    _mixed(
        "picture.from_tensor",
        "Makes a picture of a tensor or a mask. Values outside the range are clamped.",
        inputs=(
            port("tensor", "tensor: float[..., h, w]", description="`[h, w]` or `[1, h, w]` grey, `[3, h, w]` RGB"),
        ),
        outputs=(_OUT,),
        params={
            "low": number("Value that becomes black.", default=0.0, min=-1e6, max=1e6),
            "high": number("Value that becomes white.", default=1.0, min=-1e6, max=1e6),
        },
        examples=(
            Example(
                inputs={"tensor": [[0.0, 0.5, 1.0]]},
                outputs={"pixels": _grey([-1.0, 0.0, 1.0])},
                note="A mask becomes a grey picture.",
            ),
        ),
    ),
    _mixed(
        "picture.compare",
        "Compares two pictures of one size: a picture of their difference, and how near they are.",
        inputs=(_IN, port("other", PIXELS, description="RGB in [-1, 1]")),
        outputs=(
            port("difference", PIXELS, description="black where both are equal"),
            port("psnr", "scalar: float", description="peak signal-to-noise ratio in dB; 100 at most"),
        ),
        params={"gain": number("Factor of the difference in its picture.", default=1.0, min=0, max=255)},
        examples=(
            Example(
                inputs={"pixels": _grey([0.0, 0.0]), "other": _grey([0.0, 0.2])},
                outputs={"difference": _grey([-1.0, -0.8]), "psnr": 23.0103},
            ),
        ),
    ),
)

_DRAWN: tuple[Component, ...] = (
    _drawn(
        "picture.annotate",
        "Draws boxes with labels and a text on a picture, which is rounded to whole levels. Letters are Latin.",
        inputs=(
            _IN,
            port(
                "boxes",
                "tensor: float[n, 4]",
                optional=True,
                description=f"left, top, right and bottom of each; at most {MOST_BOXES}",
            ),
            port("labels", "list of text: str", optional=True, description="a label for each box, in order"),
            port("text", "text: str", optional=True, description=f"at most {MOST_CHARACTERS} characters, wrapped"),
        ),
        outputs=(_OUT,),
        params={
            "unit": choice(
                ("pixels", "shares"), "Boxes in pixels, or as shares of width and height.", default="pixels"
            ),
            "color": _color("Colour of boxes and text", "#ff3b30"),
            "thickness": integer("Width of lines in pixels.", default=2, min=1, max=64),
            "size": integer("Height of letters in pixels.", default=16, min=6, max=256),
            "place": choice(("top", "middle", "bottom"), "Where the text stands.", default="bottom"),
        },
        examples=(
            Example(
                inputs={"pixels": "a photo of 640x480", "boxes": [[40, 60, 200, 300]], "labels": ["cat"]},
                outputs={"pixels": "the photo with a red box, and `cat` above it"},
            ),
        ),
    ),
    _drawn(
        "picture.encode",
        "Encodes pixels as JPEG or WebP, which are smaller than the PNG of `media.picture_out`.",
        inputs=(port("pixels", PIXELS, description="RGB in [-1, 1]; clamped"),),
        outputs=(port("image", "image: bytes"),),
        params={
            "format": choice(("jpeg", "webp"), "`webp` is smaller and takes longer.", default="jpeg"),
            "quality": integer("1 is smallest, 100 is best.", default=85, min=1, max=100),
        },
        examples=(
            Example(
                params={"quality": 70},
                inputs={"pixels": "a photo of 1024x768"},
                outputs={"image": "a JPEG of about 100 kB"},
            ),
        ),
    ),
    _drawn(
        "picture.animate",
        "Encodes pictures of one size as an animated picture.",
        inputs=(port("pictures", _PICTURES, description=f"the frames, at most {MOST_LISTED}"),),
        outputs=(port("image", "image: bytes"),),
        params={
            "format": choice(
                ("webp", "gif", "png"), "`png` makes an animated PNG; `gif` has 256 colours.", default="webp"
            ),
            "rate": number("Frames per second.", default=8.0, min=0.1, max=50),
            "loops": integer("Times it plays; 0 never stops.", default=0, min=0, max=65535),
            "quality": integer("Quality of WebP.", default=80, min=1, max=100),
        },
        examples=(
            Example(
                params={"format": "gif", "rate": 2},
                inputs={"pictures": "eight pictures of 256x256"},
                outputs={"image": "a GIF of four seconds, which starts again at its end"},
            ),
        ),
    ),
)

COMPONENTS: tuple[Component, ...] = (*_CUT, *_MIXED, *_DRAWN)
