"""pi0.5, as openpi and lerobot lay it out."""

from collections.abc import Iterable, Iterator

from walkgraph.checkpoints import statistics
from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.family import (
    Document,
    Family,
    Part,
    Published,
    Shapes,
    gated,
    linear,
    norm,
    siglip,
    tokenizer_faults,
)
from walkgraph.checkpoints.files import Shape
from walkgraph.errors import InvalidInput
from walkgraph.models.pi05.config import FORMAT, Pi05Config, Widths, read_pi05

_BOTH = "paligemma_with_expert."
_HEAD = f"{_BOTH}paligemma.lm_head.weight"
_TABLE = f"{_BOTH}paligemma.model.language_model.embed_tokens.weight"
_UNUSED = f"{_BOTH}gemma_expert.lm_head.weight"
_ROBOT_NODES = ("prompt", "unnormalise")


def _recognises(contents: Contents) -> bool:
    config = contents.config
    return config.get("format") == FORMAT or config.get("type") == "pi05" or "paligemma_variant" in config


def _parts(contents: Contents) -> list[Part]:
    return [Part("model", dict(_tensors(read_pi05(contents.folder))), _named)]


def _tensors(config: Pi05Config) -> Iterator[tuple[str, Shape]]:
    vision, mine = config.vision, config.expert.width
    yield from siglip(f"{_BOTH}paligemma.model.vision_tower.vision_model", vision, (3, vision.patch, vision.patch))
    yield from linear(f"{_BOTH}paligemma.model.multi_modal_projector.linear", config.prefix.width, vision.width)
    yield _TABLE, (config.vocab, config.prefix.width)
    yield from _decoder(f"{_BOTH}paligemma.model.language_model", config, config.prefix, adaptive=False)
    yield from _decoder(f"{_BOTH}gemma_expert.model", config, config.expert, adaptive=True)
    yield from linear("action_in_proj", mine, config.action_width)
    yield from linear("action_out_proj", config.action_width, mine)
    yield from linear("time_mlp_in", mine, mine)
    yield from linear("time_mlp_out", mine, mine)


def _decoder(name: str, config: Pi05Config, widths: Widths, *, adaptive: bool) -> Iterator[tuple[str, Shape]]:
    """Names and shapes of a decoder; `adaptive`: its norms are modulated by the flow time."""
    width = widths.width
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim

    def scaled(of: str) -> Iterator[tuple[str, Shape]]:
        yield from linear(f"{of}.dense", 3 * width, width) if adaptive else norm(of, width, bias=False)

    for layer in range(config.layers):
        at = f"{name}.layers.{layer}"
        for part, out in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            yield from linear(f"{at}.self_attn.{part}", out, width, bias=False)
        yield from linear(f"{at}.self_attn.o_proj", width, queries, bias=False)
        yield from gated(f"{at}.mlp", width, widths.hidden)
        yield from scaled(f"{at}.input_layernorm")
        yield from scaled(f"{at}.post_attention_layernorm")
    yield from scaled(f"{name}.norm")


def _named(found: Shapes) -> Shapes:
    """lerobot's names begin with `model.`; the head repeats the embedding table; the expert's own head is unused."""
    names = {name.removeprefix("model."): shape for name, shape in found.items()}
    return {_TABLE if name == _HEAD else name: shape for name, shape in names.items() if name != _UNUSED}


def _robot(contents: Contents) -> str:
    """The robot whose statistics the graph uses, of several: the first one that is readable, else the first."""
    found = statistics.robots(contents.folder)
    if len(found) < 2:
        return ""
    return next((robot for robot in found if _statistics_fault(contents, robot) is None), found[0])


def _statistics_fault(contents: Contents, robot: str) -> str | None:
    try:
        statistics.read_statistics(contents.folder, robot)
    except InvalidInput as error:
        return str(error)
    return None


def _notes(contents: Contents) -> Iterable[str]:
    yield from tokenizer_faults(contents, plain=True)
    fault = _statistics_fault(contents, _robot(contents))
    if fault is not None:
        yield fault


def _adapt(document: Document, contents: Contents) -> Iterable[str]:
    config, asked = read_pi05(contents.folder), document["tasks"]["act"]["params"]
    actions = config.action_width
    document["nodes"]["noise"]["params"]["width"] = actions
    asked["action_width"] |= {"max": actions, "default": min(asked["action_width"]["default"], actions)}
    asked["horizon"] |= {"default": config.horizons[0], "max": max(config.horizons)}
    robot = _robot(contents)
    if not robot:
        return ()
    for node in _ROBOT_NODES:
        document["nodes"][node].setdefault("params", {})["robot"] = robot
    named = " and ".join(f"`{node}`" for node in _ROBOT_NODES)
    found = ", ".join(statistics.robots(contents.folder))
    return (
        f"it has statistics of several robots ({found}): the graph takes those of `{robot}`; set `robot` "
        f"of the nodes {named} for another",
    )


FAMILY = Family(
    name="pi05",
    title="pi0.5",
    graph="pi05",
    weights="pi05",
    kinds=("pi05", "pi0", "openpi", "PI05Policy"),
    recognises=_recognises,
    parts=_parts,
    adapt=_adapt,
    notes=_notes,
    published=(
        Published(
            "lerobot/pi05_base",
            "pi05_base",
            14_500_000_000,
            ("config.json", "model.safetensors"),
            "Its tokenizer and the statistics of your robot must be in the folder too.",
        ),
    ),
)
