"""Packs values into a ZIP archive, and takes those of one kind out of it."""

from walkgraph.graph.catalogue import Component, Example, Param, port
from walkgraph.graph.declaring import Declarations, integer

KINDS = ("image", "audio", "video", "text", "bytes")
MOST_FILES = 10_000
"""Files of an archive."""

_component = Declarations("files", category="Files", host=True, deterministic=True)

COMPONENTS: tuple[Component, ...] = (
    _component(
        "files.zip",
        "Packs a list of pictures, sounds, videos, texts or other files into a ZIP archive.",
        inputs=(
            port("items", "list of image", of="type"),
            port("names", "list of text", optional=True, description="a name for each, with or without a suffix"),
        ),
        outputs=(port("archive", "bytes: bytes"),),
        params={
            "type": Param(
                type="string", default="image", choices=KINDS, gives="type", description="Type of the items."
            ),
            "called": Param(
                type="string", default="file", description="Without `names`, the files are called so and numbered."
            ),
        },
        examples=(
            Example(
                inputs={"items": "two PNG files"},
                outputs={"archive": "a ZIP archive with `file-1.png` and `file-2.png`"},
            ),
            Example(
                params={"type": "text"},
                inputs={"items": ["Roses", "Violets"], "names": ["red", "blue"]},
                outputs={"archive": "a ZIP archive with `red.txt` and `blue.txt`"},
            ),
        ),
    ),
    _component(
        "files.unzip",
        "Takes the pictures, sounds, videos or texts out of a ZIP archive.",
        inputs=(port("archive", "bytes: bytes"),),
        outputs=(
            port("items", "list of image", of="type", description="in the archive's order; other files are left out"),
            port("names", "list of text", description="their paths in the archive"),
        ),
        params={
            "type": Param(
                type="string",
                default="image",
                choices=KINDS,
                gives="type",
                description="Type of the files to take; as `bytes` all files are taken.",
            ),
            "most": integer("The run fails if there are more.", default=256, min=1, max=MOST_FILES),
        },
        examples=(
            Example(
                inputs={"archive": "a ZIP archive with `a.png`, `notes.txt` and `b.jpg`"},
                outputs={"items": "both pictures", "names": ["a.png", "b.jpg"]},
            ),
        ),
    ),
)
