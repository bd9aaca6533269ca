"""pi0.5, as openpi and lerobot lay it out."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from walkgraph.errors import InvalidInput
from walkgraph.importing.contents import Contents, Shape
from walkgraph.importing.family import Document, Family, Part, Shapes, gated, linear, norm, section, siglip, whole

_OWN = "walkgraph/pi05@1"
_VARIANTS = {"gemma_2b": (2048, 16384), "gemma_300m": (1024, 4096)}
_BOTH = "paligemma_with_expert."
_HEAD = f"{_BOTH}paligemma.lm_head.weight"
_TABLE = f"{_BOTH}paligemma.model.language_model.embed_tokens.weight"
_UNUSED = f"{_BOTH}gemma_expert.lm_head.weight"
_STATISTICS = "norm_stats.json"
_ROBOT_NODES = ("prompt", "unnormalise")
_PUBLISHED: Mapping[str, Any] = {
    "vision": {"width": 1152, "hidden": 4304, "layers": 27, "patch": 14, "side": 16},
    "layers": 18, "heads": 8, "kv_heads": 1, "head_dim": 256, "vocab": 257152, "action_width": 32,
}  # fmt: skip


def _recognises(contents: Contents) -> bool:
    config = contents.config
    return config.get("format") == _OWN or config.get("type") == "pi05" or "paligemma_variant" in config


def _sizes(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Our own form of either."""
    if config.get("format") == _OWN:
        return config
    if config.get("type", "pi05") != "pi05" or config.get("pi05", True) is not True:
        raise InvalidInput("it is pi0, not pi0.5: it has a state token, and its norms know no flow time")
    widths: list[dict[str, int]] = []
    for part in ("paligemma", "action_expert"):
        name = str(config.get(f"{part}_variant"))
        if name not in _VARIANTS:
            raise InvalidInput(f"`{part}_variant` is `{name}`, and only {', '.join(_VARIANTS)} are known")
        widths.append({"width": _VARIANTS[name][0], "hidden": _VARIANTS[name][1]})
    actions = config.get("action_dim") or config.get("max_action_dim") or _PUBLISHED["action_width"]
    horizon = config.get("action_horizon") or config.get("chunk_size")
    more = {"horizons": [horizon]} if horizon else {}
    return {**_PUBLISHED, "prefix": widths[0], "expert": widths[1], "action_width": actions, **more}


def _parts(contents: Contents) -> list[Part]:
    return [Part("model", dict(_tensors(_sizes(contents.config))), _named)]


def _tensors(sizes: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    vision, prefix, expert = (section(sizes, key) for key in ("vision", "prefix", "expert"))
    width, mine = whole(prefix, "width"), whole(expert, "width")
    seen, patch = whole(vision, "width"), whole(vision, "patch")
    tower = f"{_BOTH}paligemma.model.vision_tower.vision_model"
    rows = whole(vision, "side") ** 2
    yield from siglip(tower, seen, whole(vision, "hidden"), whole(vision, "layers"), (3, patch, patch), rows)
    yield from linear(f"{_BOTH}paligemma.model.multi_modal_projector.linear", width, seen)
    yield _TABLE, (whole(sizes, "vocab"), width)
    yield from _decoder(f"{_BOTH}paligemma.model.language_model", sizes, prefix, adaptive=False)
    yield from _decoder(f"{_BOTH}gemma_expert.model", sizes, expert, adaptive=True)
    actions = whole(sizes, "action_width")
    yield from linear("action_in_proj", mine, actions)
    yield from linear("action_out_proj", actions, mine)
    yield from linear("time_mlp_in", mine, mine)
    yield from linear("time_mlp_out", mine, mine)


def _decoder(
    name: str, sizes: Mapping[str, Any], widths: Mapping[str, Any], *, adaptive: bool
) -> Iterator[tuple[str, Shape]]:
    """`adaptive`: its norms are made by the flow time."""
    width, head = whole(widths, "width"), whole(sizes, "head_dim")
    queries, keys = whole(sizes, "heads") * head, whole(sizes, "kv_heads") * head

    def scaled(of: str) -> Iterator[tuple[str, Shape]]:
        yield from linear(f"{of}.dense", 3 * width, width) if adaptive else norm(of, width, bias=False)

    for layer in range(whole(sizes, "layers")):
        at = f"{name}.layers.{layer}"
        for part, out in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            yield from linear(f"{at}.self_attn.{part}", out, width, bias=False)
        yield from linear(f"{at}.self_attn.o_proj", width, queries, bias=False)
        yield from gated(f"{at}.mlp", width, whole(widths, "hidden"))
        yield from scaled(f"{at}.input_layernorm")
        yield from scaled(f"{at}.post_attention_layernorm")
    yield from scaled(f"{name}.norm")


def _named(found: Shapes) -> Shapes:
    """lerobot's names begin with `model.`; the head is the table of embeddings; the expert's own head is not used."""
    names = {name.removeprefix("model."): shape for name, shape in found.items()}
    return {_TABLE if name == _HEAD else name: shape for name, shape in names.items() if name != _UNUSED}


def robots(contents: Contents) -> list[str]:
    """Whose statistics lie under `assets`; empty where there is one set for all."""
    if contents.has(_STATISTICS):
        return []
    assets = contents.folder / "assets"
    return sorted(path.parent.relative_to(assets).as_posix() for path in assets.rglob(_STATISTICS))


def _notes(contents: Contents) -> Iterable[str]:
    if not contents.has("tokenizer.json"):
        yield "it has no `tokenizer.json`: put PaliGemma's there"
    if not (contents.has(_STATISTICS) or robots(contents) or contents.has("policy_preprocessor.json")):
        yield (
            f"it has no statistics of states and actions: put openpi's `{_STATISTICS}`, or lerobot's "
            "`policy_preprocessor.json` and `policy_postprocessor.json` with their states, there"
        )


def _adapt(document: Document, contents: Contents) -> Iterable[str]:
    sizes, asked = _sizes(contents.config), document["tasks"]["act"]["params"]
    actions = whole(sizes, "action_width")
    document["nodes"]["noise"]["params"]["width"] = actions
    asked["action_width"] |= {"max": actions, "default": min(asked["action_width"]["default"], actions)}
    if horizons := sizes.get("horizons"):
        asked["horizon"] |= {"default": horizons[0], "max": max(horizons)}
    found = robots(contents)
    if len(found) < 2:
        return ()
    for node in _ROBOT_NODES:
        document["nodes"][node].setdefault("params", {})["robot"] = found[0]
    named = " and ".join(f"`{node}`" for node in _ROBOT_NODES)
    return (
        f"it has statistics of several robots ({', '.join(found)}): the graph takes those of `{found[0]}`; set `robot` "
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
)
