"""BAGEL: a backbone of two experts that reads text and pictures, and draws (arXiv 2505.14683)."""

from collections.abc import Mapping
from pathlib import Path

from walkgraph.graph.catalogue import Append, Component, Param, StateUse, port
from walkgraph.graph.declaring import Declarations, sampling_params
from walkgraph.models.bagel.config import read_bagel
from walkgraph.placement.sizes import TOKENIZER, FamilySizes, Part, Shape, token_numbers

_PIXELS = "pixels: float[3, h, w]"
_LATENTS = "latents: float[h, w, c]"

_component = Declarations("bagel", category="Picture", weights="bagel")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "bagel.vit",
        "operators:Vit",
        "Sees a picture: patches to embeddings of the backbone's width.",
        inputs=(port("pixels", _PIXELS),),
        outputs=(port("embeddings", "embeddings: float[n, d]"),),
    ),
    _component(
        "bagel.vae_encoder",
        "vae_operators:VaeEncoder",
        "Compresses a picture to clean latents; a cell is one token.",
        inputs=(port("pixels", _PIXELS),),
        outputs=(port("latents", _LATENTS),),
    ),
    _component(
        "bagel.vae_decoder",
        "vae_operators:VaeDecoder",
        "Paints a picture from latents.",
        inputs=(port("latents", _LATENTS),),
        outputs=(port("pixels", _PIXELS),),
    ),
    _component(
        "bagel.preview",
        "vae_operators:Preview",
        "Paints a small picture from latents, roughly and at once: for watching how one comes about.",
        inputs=(port("latents", _LATENTS),),
        outputs=(port("pixels", _PIXELS, description="`detail` eighths of the picture's sides"),),
        params={
            "detail": Param(
                type="integer", default=2, choices=(1, 2, 4, 8), description="Pixels along each side of a latent one."
            )
        },
        cost="launch",
    ),
    _component(
        "bagel.backbone",
        "operators:Backbone",
        "Appends text or a picture to its context, or answers noised latents with a velocity.",
        category="Model",
        inputs=(
            port("ids", "tokens: int[n]", optional=True, description="a text block, appended causally"),
            port("token", "tokens: int[1]", optional=True, description="one token, appended"),
            port(
                "image", "embeddings: float[n, d]", optional=True, description="a seen picture, appended as one block"
            ),
            port("clean", _LATENTS, optional=True, description="a picture's latents, appended as one block at time 0"),
            port("latents", _LATENTS, optional=True, description="noised latents at `time`, attended and not kept"),
        ),
        outputs=(
            port("token", "tokens: int[1]", description="the next token, sampled"),
            port("stop", "flag: bool", description="the next token ends the text"),
            port("velocity", _LATENTS, description="noise minus data, for `latents`"),
        ),
        params={
            "time": Param(type="number", default=0.0, min=0, max=1, description="Flow time of `latents`; 1 is noise."),
            **sampling_params(temperature=0.0, top_p=1.0),
            "precision": Param(
                type="string",
                default="bf16",
                choices=("bf16", "fp8"),
                description="Numbers of the weights that draw; fp8 is faster, takes less memory and is less exact. A "
                "literal, and one for all nodes with these weights.",
            ),
        },
        states=(
            StateUse(
                slot="kv",
                kind="paged_kv",
                appends=(
                    Append(port="ids"),
                    Append(port="token"),
                    Append(port="image", positions="per_block"),
                    Append(port="clean", positions="per_block"),
                    Append(port="latents", positions="per_block", scratch=True),
                ),
            ),
        ),
        resident=True,
    ),
)


def _bagel_caches(folder: Path) -> Mapping[str, int]:
    llm = read_bagel(folder).llm
    return {"bagel.backbone": token_numbers(llm.layers, llm.kv_heads, llm.head_dim)}


_M = 2**20
SIZES: Mapping[str, FamilySizes] = {
    "bagel": FamilySizes(
        holds=frozenset({TOKENIZER}),
        parts={"model": Part(stem="ema"), "autoencoder": Part(stem="ae")},
        components={
            "bagel.backbone": ("model",),
            "bagel.vit": ("model",),
            "bagel.vae_encoder": ("autoencoder",),
            "bagel.vae_decoder": ("autoencoder",),
            "bagel.preview": ("autoencoder",),
        },
        shapes={
            "bagel-7b-mot": Shape(
                parts={"model": 14_607_260_128, "autoencoder": 83_819_683},
                caches={"bagel.backbone": token_numbers(28, 4, 128)},
                workspace={
                    "bagel.backbone": 9000 * _M,  # rooms of contexts 6 GiB, 8,192 rows of an MLP, graphs
                    "bagel.vit": 250 * _M,
                    "bagel.vae_encoder": 900 * _M,
                    "bagel.vae_decoder": 2000 * _M,
                    "bagel.preview": 100 * _M,
                },
            ),
            "bagel-tiny": Shape(
                parts={"model": 89_704, "autoencoder": 67_139}, caches={"bagel.backbone": token_numbers(2, 2, 8)}
            ),
        },
        caches_of=_bagel_caches,
    ),
}
