"""The ports that are read back from a device: the worker that steps a loop reads the value that ends it."""

import torch
from msgspec.structs import replace

from tests.support.placing import CATALOGUE, at, duet, placement
from walkgraph.abi.calls import Call
from walkgraph.abi.operator import Example
from walkgraph.components import catalogue
from walkgraph.engine.calls.digested import digested
from walkgraph.engine.calls.readback import WalkUse, chained, host_ports, read_of
from walkgraph.engine.load import example_calls, rank_plan
from walkgraph.graph import codec
from walkgraph.ids import Rank
from walkgraph.models.synthetic.operators import Noop
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan, RankPlan
from walkgraph.resources import bundled


def test_what_ends_a_loop_comes_back_on_the_rank_that_gives_it() -> None:
    where = placement(at(1, "guide", "paint"), devices=("cuda:0", "cuda:1"))
    plan = assemble(Assignment(duet(), where), CATALOGUE)
    here, there = (host_ports(plan, rank_plan(plan, Rank(rank))) for rank in (0, 1))
    of_llm = {port for (_, use), ports in here.items() if use == "llm" for port in ports}
    assert "stop" in of_llm
    assert "token" in of_llm, "`say`, which reads it, is on the host"
    assert "velocity" not in of_llm
    assert all("stop" not in ports for ports in there.values())


def test_a_call_may_need_less_than_its_node_gives() -> None:
    call = Call("r", "n", "w", 0, 0, (), {}, {}, {}, 0, unread=frozenset("a"), sent_as={"b": "float16", "d": "float16"})
    assert read_of(call, ("a", "b", "c")) == {"b": "float16", "c": None}


def test_what_is_read_on_the_device_alone_may_be_followed() -> None:
    where = placement(at(1, "guide", "paint"), devices=("cuda:0", "cuda:1"))
    plan = assemble(Assignment(duet(), where), CATALOGUE)
    for rank in (0, 1):
        here = rank_plan(plan, Rank(rank))
        follow, host, there = chained(plan, here), host_ports(plan, here), set[WalkUse]()
        on_host = {node.name for node in plan.nodes if node.host}
        for walk in plan.walks:
            for edge in (one for one in walk.edges if one.source.kind == "use"):
                use = walk.uses[edge.source.use]
                into = walk.uses[edge.target.use] if edge.target.kind == "use" else None
                leaves = edge.target.kind in ("out", "stream") or (into is not None and into.rank != rank)
                if leaves or (use.op == "call" and plan.nodes[use.node].name in on_host):
                    there.add((walk.name, use.name))
        assert follow.isdisjoint(there)
        assert follow.isdisjoint(host)
    assert chained(plan, rank_plan(plan, Rank(0)))


def test_a_robots_request_is_launched_behind_its_own_cameras() -> None:
    seen = {("prefill", f"{camera}_view") for camera in ("base", "left_wrist", "right_wrist")}
    made = {("prefill", "prefix"), ("action_gen", "noise"), ("action_gen", "modulations")}
    assert chained(*_alone("pi05", "cuda:0")) == seen | made


def test_a_result_that_stays_is_followed_in_the_next_walk() -> None:
    plan, here = _alone("vjepa2_ac", "cuda:0")
    host, follow = host_ports(plan, here), chained(plan, here)
    assert host["show", "encoder"] == {"features"}
    assert ("show", "encoder") not in follow, "the client reads it"
    assert ("see", "encoder") not in host
    assert ("see", "encoder") in follow, "only `rollout`, `plan` and `look` read it"


def test_a_warm_up_call_gives_what_any_use_of_its_node_does() -> None:
    """So that the first request finds the host memory that it needs."""
    plan, here = _alone("vjepa2_ac", "cuda:0")
    encoder = next(node for node in plan.nodes if node.name == "encoder")

    class Shown(Noop):
        def examples(self) -> list[Example]:
            return [Example()]

    (call,) = example_calls(plan, encoder, Shown(torch.device("cpu")))
    assert host_ports(plan, here)[call.walk, call.name] == {"features"}


def test_what_leaves_in_one_variant_of_a_walk_is_followed_in_none() -> None:
    """Replicas have a variant of a Walk each, with the same name; there are twins for streams, too."""
    plan, here = _alone("vjepa2_ac", "cuda:0")
    see = next(walk for walk in plan.walks if walk.name == "see")
    edges = tuple(replace(edge, transport="shm") if edge.target.kind == "result" else edge for edge in see.edges)
    for walks in ((*plan.walks, replace(see, edges=edges)), (replace(see, edges=edges), *plan.walks)):
        varied = replace(plan, walks=walks)
        assert ("see", "encoder") not in chained(varied, here)
        assert host_ports(varied, here)["see", "encoder"] == {"features"}


def test_a_result_for_the_cpu_is_read_back() -> None:
    plan, _ = _alone("bagel", "cuda:0")
    results = [
        (walk.name, edge.target.port, edge.target.host)
        for walk in plan.walks
        for edge in walk.edges
        if edge.target.kind == "result"
    ]
    assert ("decode", "token", True) in results, "`end_thought` appends it by way of the CPU"
    assert ("prefill_vae", "latents", False) in results, "`image_gen` takes their shape on the device"


def _alone(name: str, device: str = "cpu") -> tuple[Plan, RankPlan]:
    where = Placement(name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device=device),))
    plan = assemble(Assignment(codec.load(bundled("graphs")[name].read_bytes()), where), catalogue())
    return plan, rank_plan(plan, Rank(0))


def test_what_a_cache_may_be_searched_by_gets_digests() -> None:
    plan, here = _alone("shapes")
    found = digested(plan, here)
    assert {"tokenizer", "picture_in", "vit_encoder", "vae_encoder"} <= found, "they lead to the model's cache"
    assert found.isdisjoint({"detokenizer", "picture_out", "preview", "vae_decoder"}), "their values only leave"
    for walk in plan.walks:
        for edge in walk.edges:
            if edge.source.kind != "use" or walk.uses[edge.source.use].op != "call":
                continue
            into = walk.uses[edge.target.use] if edge.target.kind == "use" else None
            leads = into is not None and into.op == "call" and plan.nodes[into.node].name in found
            reads = into is not None and into.op == "call" and bool(plan.nodes[into.node].states)
            if leads or reads or edge.target.kind in ("result", "stream"):
                assert plan.nodes[walk.uses[edge.source.use].node].name in found


def test_nothing_gets_a_digest_where_nothing_has_a_cache() -> None:
    assert digested(*_alone("synthetic_loops")) == frozenset()
