"""BAGEL: a backbone of two experts that reads text and pictures, and draws (arXiv 2505.14683)."""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Append, Component, Param, port
from walkgraph.graph.declaring import (
    APPENDED,
    LATENTS,
    PIXELS,
    SAMPLED,
    Declarations,
    choice,
    kv_cache,
    literal,
    number,
    sampling_params,
)
from walkgraph.models.bagel.config import read_bagel
from walkgraph.placement.sizes import MIB, TOKENIZER, FamilySizes, Part, Shape, token_numbers, token_numbers_of

_component = Declarations("bagel", category="Picture", weights="bagel")
_vae = _component.in_module("vae_operators")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "bagel.vit",
        "Encodes a picture's patches as embeddings of the backbone's width.",
        deterministic=True,
        inputs=(port("pixels", PIXELS),),
        outputs=(port("embeddings", "embeddings: float[n, d]"),),
    ),
    _vae(
        "bagel.vae_encoder",
        "Compresses a picture to clean latents; each cell is one token.",
        deterministic=True,
        inputs=(port("pixels", PIXELS),),
        outputs=(port("latents", LATENTS),),
    ),
    _vae(
        "bagel.vae_decoder",
        "Decodes latents to a picture.",
        deterministic=True,
        inputs=(port("latents", LATENTS),),
        outputs=(port("pixels", PIXELS),),
    ),
    _vae(
        "bagel.preview",
        "Decodes latents quickly to a small, rough picture, to show progress.",
        deterministic=True,
        inputs=(port("latents", LATENTS),),
        outputs=(port("pixels", PIXELS, description="each side is `detail` eighths of the full picture's"),),
        params={
            "detail": Param(
                type="integer",
                default=2,
                choices=(1, 2, 4, 8),
                form="literal",
                description="Pixels per side of a latent cell.",
            )
        },
        cost="launch",
    ),
    _component(
        "bagel.backbone",
        "Appends text or a picture to its context, or predicts the velocity for noised latents.",
        category="Model",
        inputs=(
            port("ids", "tokens: int[n]", optional=True, description="a text block, appended causally"),
            APPENDED,
            port(
                "image",
                "embeddings: float[n, d]",
                optional=True,
                description="an encoded picture, appended as one block",
            ),
            port("clean", LATENTS, optional=True, description="a picture's latents, appended as one block at time 0"),
            port("latents", LATENTS, optional=True, description="noised latents at `time`, attended but not kept"),
        ),
        outputs=(
            SAMPLED,
            port("stop", "flag: bool", description="the next token ends the text"),
            port("velocity", LATENTS, description="predicted noise minus data for `latents`"),
        ),
        params={
            "time": number("Flow time of `latents`; 1 is noise.", default=0.0, min=0, max=1),
            **sampling_params(temperature=0.0, top_p=1.0),
            "precision": literal(
                choice(
                    ("bf16", "fp8", "int4"),
                    "fp8: the weights that draw are kept in eight bits; faster, half their memory, less exact. int4: "
                    "the layers' linears are kept in four bits; a quarter of their memory, less exact. It must be a "
                    "literal, the same for all nodes with these weights.",
                    default="bf16",
                )
            ),
        },
        states=(
            kv_cache(
                "ids",
                "token",
                Append(port="image", positions="per_block"),
                Append(port="clean", positions="per_block"),
                Append(port="latents", positions="per_block", scratch=True),
            ),
        ),
        resident=True,
        sequence_parallel=True,
    ),
)

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
                linears={"model": 13_050_576_896},
                workspace={
                    "bagel.backbone": 9000 * MIB,  # dense contexts 6 GiB, 8,192 rows of an MLP, graphs
                    "bagel.vit": 250 * MIB,
                    "bagel.vae_encoder": 900 * MIB,
                    "bagel.vae_decoder": 2000 * MIB,
                    "bagel.preview": 100 * MIB,
                },
            ),
            "bagel-tiny": Shape(
                parts={"model": 89_704, "autoencoder": 67_139}, caches={"bagel.backbone": token_numbers(2, 2, 8)}
            ),
        },
        caches_of=lambda folder: {"bagel.backbone": token_numbers_of(read_bagel(folder).llm)},
    ),
}
