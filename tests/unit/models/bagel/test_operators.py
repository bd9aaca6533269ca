"""The backbone through the paged engine against contiguous caches, one sequence at a time; batched against alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import Call, Outputs, StateKey
from walkgraph.abi.states import States
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.engine.calls.schedule import Mix
from walkgraph.engine.engine import Engine
from walkgraph.layers.pictures.patches import patchify
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.operators import Backbone
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.starters.shapes.context import Context

CONFIG = BAGEL["bagel-tiny"]
CPU = torch.device("cpu")
GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
NODES = {
    "llm": ("walkgraph.models.bagel.operators:Backbone", {"kv": "main"}),
    "llm_cfg": ("walkgraph.models.bagel.operators:Backbone", {"kv": "cfg"}),
    "vit": ("walkgraph.models.bagel.operators:Vit", {}),
    "vae_encoder": ("walkgraph.models.bagel.vae_operators:VaeEncoder", {}),
    "vae_decoder": ("walkgraph.models.bagel.vae_operators:VaeDecoder", {}),
}


@pytest.fixture(scope="module")
def model() -> Bagel:
    return drawn(lambda: Bagel(CONFIG), 5, device=CPU, dtype=torch.float32)


@pytest.fixture(scope="module")
def vae() -> AutoEncoder:
    return drawn(lambda: AutoEncoder(CONFIG.vae), 5, device=CPU, dtype=torch.float32)


@pytest.fixture
def engine() -> Engine:
    return engine_of(plan_of(NODES, source="random:bagel-tiny:5"))


def llm(port: str, value: Tensor, *, run: str = "r", node: str = "llm", at: int = 0, **params: Any) -> Call:
    state = {"llm": "main", "llm_cfg": "cfg"}[node]
    return call(node, {port: value}, run=run, states={"kv": state}, iteration=(at,), **{**GREEDY, **params})


def picture(seed: int, width: int = 32, height: int = 16) -> Tensor:
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def noise(seed: int, height: int, width: int) -> Tensor:
    return torch.randn(height, width, CONFIG.latent_channels, generator=torch.Generator().manual_seed(seed))


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def naive_velocity(context: Context, x: Tensor, t: float) -> Tensor:
    grid = (x.shape[0], x.shape[1])
    return context.velocity(x.flatten(0, 1)[None], torch.tensor([t]), grid)[0].view(x.shape)


def naive_text(context: Context, ids: Tensor) -> tuple[Context, int]:
    after, h = context.text(ids[None], torch.ones(1, len(ids), dtype=torch.bool))
    return after, int(context.model.logits(h[0, -1]).argmax())


def test_text_pictures_latents_and_decoding_are_those_of_the_plain_network(
    engine: Engine, model: Bagel, vae: AutoEncoder
) -> None:
    """A whole edit: clean latents, the seen picture, text, thirty tokens, a flow step, each on what came before."""
    image, ids = picture(1), torch.tensor([256, 1, 9, 40, 257])
    with torch.inference_mode():
        latents, seen = outputs(engine, call("vae_encoder", {"pixels": image}), call("vit", {"pixels": image}))
        plain = patchify(vae.encode(image[None]), 2)[0].view(1, 2, -1)
        close(latents["latents"], plain)
        outputs(engine, llm("clean", latents["latents"]))
        outputs(engine, llm("image", seen["embeddings"]))
        [answer] = outputs(engine, llm("ids", ids))
        context = Context.empty(model, 1).picture_kept(plain.flatten(0, 1)[None], (1, 2)).picture_seen(image[None])
        context, wanted = naive_text(context, ids)
        token, naive = answer["token"], torch.tensor([wanted])
        for step in range(30):
            assert token.tolist() == naive.tolist()
            [answer] = outputs(engine, llm("token", token, at=step))
            assert answer["stop"] == (int(answer["token"]) == CONFIG.tokens.eos)
            context, following = naive_text(context, naive)
            token, naive = answer["token"], torch.tensor([following])
        x = noise(2, 3, 5)
        [flow] = outputs(engine, llm("latents", x, time=0.7))
        close(flow["velocity"], naive_velocity(context, x, 0.7))
    assert int(engine.transfers.export(StateKey("r", "main"))["counters"][0, 1]) == int(context.position)
    assert int(engine.transfers.export(StateKey("r", "main"))["counters"][0, 0]) == 4 + 10 + 5 + 30


def test_one_forward_serves_any_mix_of_calls_as_if_each_were_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    forward = Backbone.forward

    def counting(self: Backbone, calls: Sequence[Call], states: States) -> list[Outputs]:
        seen.append(len(calls))
        return forward(self, calls, states)

    def mix(run: str) -> list[Call]:
        return [
            llm("ids", torch.tensor([256, 3, 257]), run=run + "a"),
            llm("latents", noise(1, 2, 3), run=run + "b", time=0.9, at=4),
            llm("image", torch.ones(5, CONFIG.llm.width), run=run + "c"),
            llm("latents", noise(2, 4, 1), run=run + "d", node="llm_cfg", time=0.2, at=30),
            llm("clean", noise(3, 2, 2), run=run + "e"),
            llm("token", torch.tensor([7]), run=run + "f", at=2),
            llm("latents", noise(4, 2, 3), run=run + "g", time=0.9),
        ]

    for run in ("together", "alone"):
        for name in "abcdefg":
            node = "llm_cfg" if name == "d" else "llm"
            outputs(engine, llm("ids", torch.arange(3 + ord(name) % 5), run=run + name, node=node))
    monkeypatch.setattr(Backbone, "forward", counting)
    together = outputs(engine, *mix("together"))
    assert seen == [7]
    alone = [outputs(engine, one)[0] for one in mix("alone")]
    for a, b in zip(together, alone, strict=True):
        assert a.keys() == b.keys()
        for port in a:
            if port == "velocity":
                close(a[port], b[port])
            else:
                assert a[port] == b[port]
    for one, other in zip(mix("together"), mix("alone"), strict=True):
        a, b = (engine.transfers.export(c.states["kv"]) for c in (one, other))
        assert torch.equal(a["counters"], b["counters"])
        close(a["kv.0"], b["kv.0"])


def test_noised_latents_are_never_kept(engine: Engine) -> None:
    outputs(engine, llm("ids", torch.arange(5)))
    before = engine.transfers.export(StateKey("r", "main"))
    first, again = (outputs(engine, llm("latents", noise(1, 2, 2), time=0.5))[0]["velocity"] for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(engine.transfers.export(StateKey("r", "main"))["kv.0"], before["kv.0"])


def test_views_have_contexts_of_their_own_and_one_set_of_weights(engine: Engine, model: Bagel) -> None:
    ids, x = torch.arange(6), noise(1, 2, 2)
    engine.transfers.fork(StateKey("r", "main"), StateKey("r", "cfg"))
    outputs(engine, llm("ids", ids))
    full, empty = outputs(engine, llm("latents", x, time=0.5), llm("latents", x, time=0.5, node="llm_cfg"))
    with torch.inference_mode():
        context = Context.empty(model, 1)
        close(empty["velocity"], naive_velocity(context, x, 0.5))
        close(full["velocity"], naive_velocity(naive_text(context, ids)[0], x, 0.5))


def test_sampling_follows_the_seed_and_not_the_batch(engine: Engine) -> None:
    def write(runs: dict[str, int]) -> dict[str, list[int]]:
        texts: dict[str, list[int]] = {run: [256] for run in runs}
        for step in range(12):
            calls = []
            for run, seed in runs.items():
                one = llm("token", torch.tensor([texts[run][-1]]), run=run, at=step, temperature=1.5, top_k=50)
                one.seed = seed
                calls.append(one)
            for run, out in zip(runs, outputs(engine, *calls), strict=True):
                texts[run].append(int(out["token"]))
        return texts

    together = write({"a": 1, "b": 2, "c": 1})
    assert together["a"] == together["c"] != together["b"]
    assert write({"alone": 2})["alone"] == together["b"]


def test_pictures_of_any_sizes_are_seen_in_one_forward(engine: Engine) -> None:
    pictures = [picture(i, w, h) for i, (w, h) in enumerate([(16, 16), (64, 8), (8, 8)])]
    done = serve(engine, *[call("vit", {"pixels": p}, run=str(i)) for i, p in enumerate(pictures)])
    assert {d.batch for d in done} == {3}
    for one, p in zip(done, pictures, strict=True):
        assert one.outputs is not None
        close(one.outputs["embeddings"], outputs(engine, call("vit", {"pixels": p}))[0]["embeddings"])


def test_the_autoencoder_batches_equal_sizes_and_inverts_its_layout(engine: Engine, vae: AutoEncoder) -> None:
    sizes = [(32, 16), (32, 16), (16, 16)]
    encoded = serve(engine, *[call("vae_encoder", {"pixels": picture(i, *s)}, run=str(i)) for i, s in enumerate(sizes)])
    assert [d.batch for d in encoded] == [2, 2, 1]
    latents = [d.outputs["latents"] for d in encoded if d.outputs]
    assert [tuple(x.shape) for x in latents] == [(1, 2, 16), (1, 2, 16), (1, 1, 16)]
    decoded = outputs(engine, *[call("vae_decoder", {"latents": x}) for x in latents])
    with torch.inference_mode():
        for i, out in enumerate(decoded):
            close(out["pixels"], vae.decode(vae.encode(picture(i, *sizes[i])[None]))[0])


@pytest.mark.parametrize(
    ("bad", "port", "words"),
    [
        (llm("ids", torch.empty(0, dtype=torch.int64)), "ids", "at least one"),
        (llm("image", torch.zeros(3, 7)), "image", "embeddings `[n, 32]`"),
        (llm("latents", torch.zeros(2, 2, 3), time=0.5), "latents", "16"),
        (llm("latents", torch.zeros(9, 2, 16), time=0.5), "latents", "8 by 8"),
        (llm("ids", torch.tensor([1, 264])), None, "vocabulary of 264"),
        (llm("ids", torch.tensor([-1])), None, "vocabulary"),
        (call("llm", {}, states={"kv": "main"}), None, "exactly one"),
        (call("vit", {"pixels": torch.zeros(3, 12, 16)}), "pixels", "multiples of 8"),
        (call("vae_encoder", {"pixels": torch.zeros(3, 160, 16)}), "pixels", "at most 128"),
        (call("vae_decoder", {"latents": torch.zeros(2, 2, 5)}), "latents", "16 numbers"),
    ],
)
def test_what_does_not_fit_is_said_and_ends_one_run(engine: Engine, bad: Call, port: str | None, words: str) -> None:
    good = llm("ids", torch.tensor([1, 2]), run="good")
    failed, served = serve(engine, bad, good)
    assert failed.error is not None
    assert (failed.error.code, failed.error.port) == ("node_error", port)
    assert words in failed.error.message
    assert served.error is None
    assert engine.transfers.export(StateKey("r", "main")) == {}


def test_a_text_in_parts_is_kept_as_the_whole() -> None:
    ids = torch.arange(70) % 256
    engines = [engine_of(plan_of(NODES, source="random:bagel-tiny:5"), mix=Mix(alone=rows)) for rows in (16, 1000)]
    parts, whole = ([outputs(e, llm("ids", ids))[0], e.transfers.export(StateKey("r", "main"))] for e in engines)
    assert parts[0]["token"].equal(whole[0]["token"])
    assert torch.equal(parts[1]["counters"], whole[1]["counters"])
    close(parts[1]["kv.0"], whole[1]["kv.0"])


def test_texts_and_pictures_that_begin_alike_are_read_once() -> None:
    text = torch.randint(0, 250, (40,), generator=torch.Generator().manual_seed(4))
    image, x, told = torch.ones(16, CONFIG.llm.width), noise(5, 2, 3), list[list[Tensor]]()
    clean = noise(6, 2, 3)
    for cached in (True, False):
        made = engine_of(plan_of(NODES, source="random:bagel-tiny:5"), prefix_cache=cached)
        flows: list[Tensor] = []
        for node in ("llm", "llm_cfg"):
            for run in "ab":
                where: dict[str, Any] = {"run": run, "node": node}
                for port, value in (("ids", text), ("image", image), ("clean", clean), ("ids", text[8:])):
                    one = llm(port, value, **where)
                    one.answered = port == "ids"
                    outputs(made, one)
                flows.append(outputs(made, llm("latents", x, time=0.4, **where))[0]["velocity"])
        told.append(flows)
        # By all but the first, in the other view too: full pages of texts that are answered, and all of a picture.
        assert made.pools.prefix_stats().saved == (3 * (32 + 18 + 8 + 30) if cached else 0)
        made.states.audit()
    close(torch.stack(told[0]), torch.stack(told[1]))
