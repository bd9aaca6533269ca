"""The structure of a Walk: order, loops, the values of edges, partitions."""

import pytest

from walkgraph.graph.document import Edge, Fork, Graph, Loop, Node, Parallel, Sequence, Stream, Task, Use, Walk, Whole
from walkgraph.graph.steps import steps_of
from walkgraph.graph.structure import nodes_of, partitions, structure


def use(name: str, when: str | None = None, as_: str | None = None) -> Use:
    return Use(use=name, when=when, as_=as_)


def edge(a: str, b: str, **flags: bool) -> Edge:
    return Edge(from_=a, to=b, **flags)


def planning() -> Walk:
    """Cross-entropy planning: an outer loop over iterations, an inner one over the horizon."""
    return Walk(
        inputs={"mean": "actions", "z": "latents"},
        body=(
            Loop(
                loop="refine",
                times="10",
                body=(
                    use("sample"),
                    Loop(loop="horizon", times="2", body=(use("predict"),)),
                    use("score"),
                ),
            ),
            use("pick"),
        ),
        edges=(
            edge("@in.mean", "sample.mean"),
            edge("score.mean", "sample.mean"),
            edge("sample.actions", "predict.actions", each=True),
            edge("@in.z", "predict.z"),
            edge("predict.z", "predict.z"),
            edge("predict.z", "score.z"),
            edge("predict.z", "score.all", collect=True),
            edge("score.mean", "pick.mean"),
            edge("score.mean", "@out.progress", each=True),
            edge("@loop.index", "predict.step"),
            edge("@loop.refine", "predict.round"),
            edge("score.best", "predict.hint"),
        ),
        results={"mean": {"from": "score.mean", "collect": True}},
    )


def test_entries_in_program_order_with_their_loops() -> None:
    facts = structure(planning(), "plan")
    assert [(e.name, e.loops) for e in facts.entries] == [
        ("sample", ("refine",)),
        ("predict", ("refine", "horizon")),
        ("score", ("refine",)),
        ("pick", ()),
    ]
    assert [(loop.name, loop.parent, loop.loops) for loop in facts.loops] == [
        ("refine", -1, ("refine",)),
        ("horizon", 0, ("refine", "horizon")),
    ]
    assert facts.uses["predict"].pointer == "/body/0/body/1/body/0"


def test_routes() -> None:
    facts = structure(planning())
    found = {
        f"{r.edge.from_}>{r.edge.to}": (r.common, r.carried, r.leave, r.enter, r.left, r.entered) for r in facts.routes
    }
    assert found == {
        "@in.mean>sample.mean": (0, False, "none", "first", (), ("refine",)),
        "score.mean>sample.mean": (1, True, "none", "none", (), ()),
        "sample.actions>predict.actions": (1, False, "none", "each", (), ("horizon",)),
        "@in.z>predict.z": (0, False, "none", "first", (), ("refine", "horizon")),
        "predict.z>predict.z": (2, True, "none", "none", (), ()),
        "predict.z>score.z": (1, False, "last", "none", ("horizon",), ()),
        "predict.z>score.all": (1, False, "collect", "none", ("horizon",), ()),
        "score.mean>pick.mean": (0, False, "last", "none", ("refine",), ()),
        "score.mean>@out.progress": (0, False, "each", "none", ("refine",), ()),
        "@loop.index>predict.step": (2, False, "none", "none", (), ()),
        "@loop.refine>predict.round": (1, False, "none", "held", (), ("horizon",)),
        "score.best>predict.hint": (1, True, "none", "held", (), ("horizon",)),
    }
    assert [(r.target.name, r.leave) for r in facts.results] == [("mean", "collect")]


def test_one_edge_leaves_is_carried_and_enters() -> None:
    walk = Walk(
        body=(
            Loop(
                loop="outer",
                times="3",
                body=(
                    Loop(loop="a", times="2", body=(use("x"),)),
                    Loop(loop="b", times="2", body=(use("y"),)),
                ),
            ),
        ),
        edges=(edge("y.v", "x.v", collect=True, each=True),),
    )
    (route,) = structure(walk).routes
    assert (route.common, route.carried, route.leave, route.enter) == (1, True, "collect", "each")
    assert (route.left, route.entered) == (("b",), ("a",))


def test_backward_without_a_loop_is_not_carried() -> None:
    walk = Walk(body=(use("a"), use("b")), edges=(edge("b.x", "a.x"), edge("a.x", "b.x")))
    back, forth = structure(walk).routes
    assert (back.backward, back.carried) == (True, False)
    assert (forth.backward, forth.carried) == (False, False)


def test_branches_and_conditions_along_the_way() -> None:
    walk = Walk(
        body=(
            Loop(
                loop="denoise",
                times="9",
                body=(
                    Parallel(
                        parallel=(
                            use("a"),
                            Sequence(sequence=(use("b"), use("c", when="@loop.index > 2")), when="@loop.index > 1"),
                        ),
                        when="on",
                    ),
                    Loop(loop="inner", times="2", when="@loop.index == 0", body=(use("d", when="@loop.index > 0"),)),
                ),
            ),
            Fork(fork="main", into="copy", when="on"),
        ),
    )
    entries = structure(walk).entries
    assert [e.branches for e in entries] == [((0, 0),), ((0, 1),), ((0, 1),), (), ()]
    assert [e.whens for e in entries] == [
        ("on",),
        ("on", "@loop.denoise > 1"),
        ("on", "@loop.denoise > 1", "@loop.index > 2"),
        ("@loop.denoise == 0", "@loop.index > 0"),
        ("on",),
    ]
    assert entries[2].pointer == "/body/0/body/0/parallel/1/sequence/1"


def test_references_to_what_is_not_there_have_no_entry() -> None:
    walk = Walk(body=(use("a"),), edges=(edge("ghost.x", "a.x"), edge("a.x", "@in.x"), edge("@out.x", "a.y")))
    facts = structure(walk)
    assert [(r.source.entry is None, r.target.entry is None, r.common) for r in facts.routes] == [
        (True, False, 0),
        (False, True, 0),
        (True, False, 0),
    ]


def test_uses_by_their_own_names() -> None:
    walk = Walk(body=(use("llm"), use("llm", as_="again")), edges=(edge("llm.x", "again.x"),))
    facts = structure(walk)
    assert list(facts.uses) == ["llm", "again"]
    assert facts.feeds["again", "x"][0].source.entry is facts.uses["llm"]
    assert nodes_of(walk) == ("llm",)


def test_partitions_are_nodes_that_share_walks() -> None:
    graph = Graph(
        name="g",
        nodes={n: Node(component="t.x") for n in ("encoder", "thinker", "talker", "vocoder", "predictor")},
        walks={
            "hear": Walk(body=(use("encoder"), use("thinker"))),
            "think": Walk(body=(use("thinker"),)),
            "talk": Walk(body=(use("talker"), use("predictor"))),
            "speak": Walk(body=(use("vocoder"),)),
        },
        streams=(Stream(name="s", from_="thinker.h", walks=("think",), chunks=Whole(policy="whole")),),
    )
    assert partitions(graph) == (
        frozenset({"encoder", "thinker"}),
        frozenset({"talker", "predictor"}),
        frozenset({"vocoder"}),
    )


@pytest.mark.parametrize("lanes", [False, True])
def test_steps_with_their_place(lanes: bool) -> None:
    steps = [
        {"for": "parts", "text": [{"walk": "read"}], "image": [{"walk": "look", "as": "seen"}]},
        {"first": [{"walk": "guided", "when": "scale > 1"}, {"walk": "plain"}]},
    ]
    task = Task.model_validate({"outputs": ["x"], "steps": {"main": steps} if lanes else steps})
    found = [(s.name, s.lane, s.part, s.choice, s.pointer.replace("/main", "")) for s in steps_of(task)]
    lane = "main" if lanes else ""
    assert found == [
        ("read", lane, "text", None, "/steps/0/text/0"),
        ("seen", lane, "image", None, "/steps/0/image/0"),
        ("guided", lane, None, 0, "/steps/1/first/0"),
        ("plain", lane, None, 0, "/steps/1/first/1"),
    ]
