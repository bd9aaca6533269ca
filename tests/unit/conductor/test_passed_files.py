"""Large values of requests on their way through the conductor: ranks get their files, or the bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from walkgraph.conductor.client import open_files
from walkgraph.conductor.passed_files import PassedFiles
from walkgraph.conductor.replicas.beginnings import LOOKED_AT, beginnings_of
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Itinerary
from walkgraph.wire import messages as m
from walkgraph.wire.legs import Approval, Resumption
from walkgraph.wire.processes import posting
from walkgraph.wire.processes.posting import MAP_BYTES, POST_BYTES, PostSender, WorkerPost
from walkgraph.worker.io import values

RUN = RunId("r")
DATA = os.urandom(POST_BYTES)
TENSOR = m.InlineTensor(dtype="uint8", shape=(MAP_BYTES,), data=os.urandom(MAP_BYTES))
GIVEN: dict[str, tuple[m.Value, ...]] = {"a": (m.Blob(data=DATA),), "b": (m.Many(items=(TENSOR,)), m.Small(value=1))}


class Way(NamedTuple):
    service: PostSender
    files: PassedFiles
    ranks: list[WorkerPost]

    def submitted(self, run: str = RUN) -> m.Submit:
        asked = self.service.request(m.Submit(run=RunId(run), task="t", params={}, inputs=GIVEN))
        self.files.heard(asked)
        return asked

    def unpacked(self, rank: int, message: Any) -> dict[str, Any]:
        opener = self.ranks[rank].opener(message.run)
        return {name: values.unpack(value, opened=opener) for name, value in message.inputs.items()}


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    files = PassedFiles(tmp_path)
    ranks = [WorkerPost(tmp_path, Rank(rank), 1) for rank in range(2)]
    service = PostSender(tmp_path / posting.CONDUCTOR, "service")
    yield Way(service, files, ranks)
    service.close()
    files.close()
    for rank in ranks:
        rank.close()


def start(asked: m.Submit) -> m.Start:
    named = {f"{name}.{i}": value for name, several in asked.inputs.items() for i, value in enumerate(several)}
    itinerary = Itinerary(steps=(), outputs=(), ranks=(Rank(0), Rank(1)), streams=())
    return m.Start(run=asked.run, itinerary=itinerary, params={}, inputs=named)


def finished(run: str = RUN) -> m.Finished:
    return m.Finished(run=RunId(run))


def test_every_rank_gets_the_values_as_if_they_were_inside(way: Way) -> None:
    told = start(way.submitted())
    naive = start(m.Submit(run=RUN, task="t", params={}, inputs=GIVEN))
    for rank in range(2):
        message: Any = way.files.to_rank(Rank(rank), told)
        assert message == told, "the names alone"
        found, wanted = way.unpacked(rank, message), way.unpacked(rank, naive)
        assert found["a.0"] == wanted["a.0"] == DATA
        assert found["b.0"][0].equal(wanted["b.0"][0])
        assert found["b.1"] == 1
        found["b.0"][0].zero_()
    assert way.files.to_service(finished()) == finished()


def test_a_part_of_a_conversation_that_has_a_name_too_goes_once(way: Way) -> None:
    told = start(way.submitted())
    said = m.Conversation(turns=(m.Turn(role="user", parts=(m.Part(modality="image", value=told.inputs["a.0"]),)),))
    message: Any = way.files.to_rank(Rank(0), msgspec.structs.replace(told, inputs={**told.inputs, "m.0": said}))
    files = open_files()
    found = way.unpacked(0, message)
    assert found["m.0"].turns[0].parts[0].value == found["a.0"] == DATA
    del found
    assert open_files() == files + 1, "the connection is accepted, and no file stays"


def test_values_whose_files_can_not_be_sent_on_go_inside_the_message(way: Way) -> None:
    told = start(way.submitted())
    way.ranks[1].close()
    message: Any = way.files.to_rank(Rank(1), told)
    assert message == start(m.Submit(run=RUN, task="t", params={}, inputs=GIVEN))
    assert way.unpacked(0, way.files.to_rank(Rank(0), told))["a.0"] == DATA


@pytest.mark.parametrize("end", [finished(), m.Rejected(run=RUN, error=ErrorInfo(code="refused", message="no"))])
def test_the_files_of_a_run_go_with_it_and_those_of_others_stay(way: Way, end: m.FromConductor) -> None:
    told, other = start(way.submitted()), start(way.submitted("other"))
    way.files.to_rank(Rank(0), other)
    files = open_files()
    way.files.to_service(end)
    assert open_files() == files - 2
    message: Any = way.files.to_rank(Rank(0), told)
    assert message == told, "the rank says that its values are lost"
    assert way.unpacked(1, way.files.to_rank(Rank(1), other))["a.0"] == DATA
    way.files.to_service(finished("other"))
    assert open_files() == files - 4 + 2, "the connection to the other rank has been made"


def test_a_run_that_ends_takes_no_files_of_one_that_begins(way: Way) -> None:
    way.submitted()
    asked = way.service.request(m.Submit(run=RunId("begins"), task="t", params={}, inputs=GIVEN))
    way.files.to_service(finished())
    way.files.heard(asked)
    # As at the conductor, so at the rank: the other run ends between a file and the message that names it.
    way.ranks[0].expect("ends")
    message: Any = way.files.to_rank(Rank(0), start(asked))
    way.ranks[0].forget("ends")
    assert way.unpacked(0, message)["a.0"] == DATA


def test_a_run_that_waits_for_a_person_gives_the_service_its_values_back(way: Way) -> None:
    told = start(way.submitted())
    approval = Approval(
        number=0, label="", within=60, goes_on=False, shown=(m.ShownValue(name="n", value=told.inputs["b.0"]),)
    )
    waits = m.Waits(run=RUN, approval=approval, rest=Resumption(answers=(), kept=dict(told.inputs)), end=finished())
    message: Any = way.files.to_service(waits)
    naive = start(m.Submit(run=RUN, task="t", params={}, inputs=GIVEN)).inputs
    assert message.rest.kept == naive
    assert message.approval.shown[0].value == naive["b.0"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=m.Waits) == message


def test_replicas_are_chosen_by_posted_values_as_by_those_inside(way: Way, tmp_path: Path) -> None:
    folder = tmp_path / "replicated"
    folder.mkdir()
    files, service = PassedFiles(folder, lambda: True), PostSender(folder / posting.CONDUCTOR, "service")
    data = os.urandom(3 * LOOKED_AT)
    others = (data[:-1] + b"x" if data[-1:] != b"x" else data[:-1] + b"y", data + b"x")
    found: list[Any] = []
    for value in (data, data, *others):
        blob = m.Blob(data=value)
        asked = m.Submit(run=RUN, task="t", params={}, inputs={"a": (blob,), "b": (m.Many(items=(blob,)),)})
        heard: Any = files.heard(service.request(asked))
        assert isinstance(heard.inputs["a"][0], m.Posted)
        assert beginnings_of(heard) == beginnings_of(asked)
        found.append(beginnings_of(heard))
    assert found[0] == found[1]
    assert len(set(found)) == 3
    files.to_service(finished())
    files.close()
    service.close()


def test_other_messages_pass_as_they_are(way: Way) -> None:
    small = m.Submit(run=RUN, task="t", params={}, inputs={"a": (m.Small(value=1),)})
    asked = way.service.request(small)
    assert asked == small
    way.files.heard(asked)
    for message in (m.Cancel(run=RUN), start(asked)):
        assert way.files.to_rank(Rank(0), message) is message
    assert way.files.to_service(one := finished()) is one
