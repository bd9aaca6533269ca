"""The ports that are read back from a device: the worker that steps a loop reads the value that ends it."""

from tests.support.placing import CATALOGUE, at, duet, placement
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.engine.calls.digested import digested
from walkgraph.engine.calls.readback import chained, host_ports, read_of
from walkgraph.engine.load import rank_plan
from walkgraph.graph import codec
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan, RankPlan
from walkgraph.resources import bundled


def test_what_ends_a_loop_comes_back_on_the_rank_that_gives_it() -> None:
    where = placement(at(1, "guide", "paint"), devices=("cuda:0", "cuda:1"))
    plan = assemble(Assignment(duet(), where), CATALOGUE)
    here, there = (host_ports(plan, rank_plan(plan, Rank(rank))) for rank in (0, 1))
    assert "stop" in here["llm"]
    assert "token" in here["llm"], "`say`, which reads it, is on the host"
    assert "velocity" not in here["llm"]
    assert all("stop" not in ports for ports in there.values())


def test_a_call_may_need_less_than_its_node_gives() -> None:
    call = Call("r", "n", "w", 0, 0, (), {}, {}, {}, 0, unread=frozenset("a"), sent_as={"b": "float16", "d": "float16"})
    assert read_of(call, ("a", "b", "c")) == {"b": "float16", "c": None}


def test_what_is_read_on_the_device_alone_may_be_followed() -> None:
    where = placement(at(1, "guide", "paint"), devices=("cuda:0", "cuda:1"))
    plan = assemble(Assignment(duet(), where), CATALOGUE)
    for rank in (0, 1):
        here = rank_plan(plan, Rank(rank))
        follow, host, there = chained(plan, here), host_ports(plan, here), set[str]()
        for walk in plan.walks:
            for edge in (one for one in walk.edges if one.source.kind == "use"):
                use = walk.uses[edge.source.use]
                leaves = edge.target.kind != "use" or walk.uses[edge.target.use].rank != rank
                if use.op == "call" and use.rank == rank and leaves:
                    there.add(plan.nodes[use.node].name)
        assert follow.isdisjoint(there)
        assert follow.isdisjoint(name for name, ports in host.items() if ports)
        assert all(not node.host for node in plan.nodes if node.name in follow)


def test_a_robots_request_is_launched_behind_its_own_cameras() -> None:
    document = bundled("graphs")["pi05"].read_bytes()
    where = Placement(
        name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cuda:0"),)
    )
    plan = assemble(Assignment(codec.load(document), where), catalogue())
    assert chained(plan, rank_plan(plan, Rank(0))) == {"vision", "prefix", "noise", "modulations"}


def _alone(name: str) -> tuple[Plan, RankPlan]:
    where = Placement(name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),))
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
