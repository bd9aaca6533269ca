"""Posted values: the service gets the bytes that the worker sent, and neither keeps anything of them afterwards."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from walkgraph.conductor.client import open_files
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.processes import posting
from walkgraph.wire.processes.posting import (
    EARLY_SECONDS,
    MAP_BYTES,
    POST_BYTES,
    Lost,
    PostOffice,
    PostSender,
    WorkerPost,
    rank_office,
)
from walkgraph.wire.values import any_posted, leaves_changed

RUN = RunId("r")
HEADER = m.TensorHeader(dtype="uint8", shape=(POST_BYTES,))


class Way(NamedTuple):
    sender: PostSender
    office: PostOffice


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    office = PostOffice(tmp_path / posting.SERVICE)
    sender = PostSender(tmp_path / posting.SERVICE, "0.1")
    yield Way(sender, office)
    sender.close()
    office.close()


def output(value: m.Value) -> m.Output:
    return m.Output(run=RUN, name="o", index=0, value=value)


def posted(way: Way, data: bytes, header: m.TensorHeader | None = None) -> m.Posted:
    found = way.sender.post(RUN, memoryview(data), header)
    assert found is not None
    return found


def maps() -> int:
    return Path("/proc/self/maps").read_text().count("walkgraph-post")


@pytest.mark.parametrize("nbytes", [POST_BYTES, MAP_BYTES - 1, MAP_BYTES, MAP_BYTES + 1])
def test_a_tensor_arrives_as_it_was(way: Way, nbytes: int) -> None:
    data = os.urandom(nbytes)
    value: Any = way.office.fetch(output(posted(way, data, m.TensorHeader(dtype="uint8", shape=(nbytes,))))).value
    naive = m.InlineTensor(dtype="uint8", shape=(nbytes,), data=data)
    assert value == naive
    assert msgspec.msgpack.encode(value) == msgspec.msgpack.encode(naive)
    with pytest.raises(TypeError):
        value.data[0] = 1


def test_media_arrive_as_bytes_also_within_other_values(way: Way) -> None:
    blobs = [os.urandom(POST_BYTES) for _ in range(3)]
    many = m.Many(items=(posted(way, blobs[0]), m.Named(items={"a": posted(way, blobs[1])}), m.Small(value=1)))
    part = m.Part(modality="image", value=posted(way, blobs[2]))
    said = m.Conversation(turns=(m.Turn(role="assistant", parts=(part,)),))
    first, second = (way.office.fetch(output(value)).value for value in (many, said))
    a, b, c = (m.Blob(data=blob) for blob in blobs)
    assert first == m.Many(items=(a, m.Named(items={"a": b}), m.Small(value=1)))
    assert second == m.Conversation(turns=(m.Turn(role="assistant", parts=(m.Part(modality="image", value=c),)),))


def test_a_value_outlives_its_worker_and_is_gone_with_its_last_view(way: Way) -> None:
    before = maps()
    told = posted(way, bytes(MAP_BYTES), m.TensorHeader(dtype="uint8", shape=(MAP_BYTES,)))
    way.sender.close()
    value: Any = way.office.fetch(output(told)).value
    part = value.data[:16]
    assert maps() == before + 1
    del value
    assert maps() == before + 1, "a part of it is still in use"
    assert bytes(part) == bytes(16)
    del part
    assert maps() == before


def test_the_files_of_dropped_outputs_are_given_up_with_their_run(way: Way) -> None:
    way.office.forget(RUN)
    posted(way, bytes(POST_BYTES))
    way.office.forget(RUN)
    files = open_files()
    kept = way.sender.post(RunId("other"), bytes(POST_BYTES))
    for _ in range(3):
        posted(way, bytes(POST_BYTES))
    way.office.forget(RUN)
    assert open_files() == files + 1, "that of the other run"
    assert kept is not None
    way.office.fetch(output(kept))
    assert open_files() == files


def test_a_value_that_can_not_be_posted_travels_in_its_message(tmp_path: Path) -> None:
    assert PostSender(tmp_path / posting.SERVICE, "0.1").post(RUN, bytes(POST_BYTES)) is None, "nobody is there"
    office, sender = PostOffice(tmp_path / posting.SERVICE), PostSender(tmp_path / posting.SERVICE, "0.1")
    taken = 0
    while sender.post(RUN, b"x") is not None:
        taken += 1
        assert taken < 100_000
    assert taken, "until the socket is full"
    office.forget(RUN)
    assert sender.post(RUN, b"x") is not None
    sender.close()
    office.close()


def test_a_value_is_lost_if_its_file_does_not_come_or_is_another(way: Way, tmp_path: Path) -> None:
    with pytest.raises(Lost):
        way.office.fetch(output(m.Posted(sender="0.1", number=7, nbytes=8)))
    told = posted(way, bytes(POST_BYTES), HEADER)
    with pytest.raises(Lost):
        way.office.fetch(output(msgspec.structs.replace(told, nbytes=POST_BYTES + 1)))
    # Each is fetched once.
    with pytest.raises(Lost):
        way.office.fetch(output(told))
    unsealed = os.memfd_create("unsealed", os.MFD_CLOEXEC)
    os.write(unsealed, bytes(POST_BYTES))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
        raw.connect(str(tmp_path / posting.SERVICE))
        letter = {"run": RUN, "sender": "evil", "number": 1}
        socket.send_fds(raw, [msgspec.msgpack.encode(letter)], [unsealed])
        os.close(unsealed)
        with pytest.raises(Lost):
            way.office.fetch(output(m.Posted(sender="evil", number=1, nbytes=POST_BYTES, header=HEADER)))


def test_letters_that_no_worker_writes_are_counted_and_their_files_closed(way: Way, tmp_path: Path) -> None:
    told = posted(way, bytes(POST_BYTES))
    way.office.forget(RunId("other"))
    files = open_files()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
        raw.connect(str(tmp_path / posting.SERVICE))
        for letter in (b"noise", b"\x80", msgspec.msgpack.encode({"run": RUN, "sender": 1, "number": "x", "more": 0})):
            with (tmp_path / "file").open("wb") as file:
                socket.send_fds(raw, [letter], [file.fileno()])
        assert way.office.fetch(output(told)).value == m.Blob(data=bytes(POST_BYTES))
        way.office.forget(RUN)
        assert way.office.rejected == 3
        assert open_files() == files + 1, "both ends of this socket, without the value's file"


def answer_of(value: m.Value) -> m.TaskAnswer:
    outputs = {"large": value, "small": m.Small(value=1)}
    return m.TaskAnswer(run=RUN, rank=Rank(1), step=0, use=2, iteration=(), outputs=outputs)


def test_large_values_of_an_answer_go_to_the_worker_and_all_else_inside_it(tmp_path: Path) -> None:
    post, sender = WorkerPost(tmp_path, Rank(1), 4), PostSender(tmp_path / rank_office(Rank(1)), "service")
    data, more = os.urandom(MAP_BYTES), os.urandom(POST_BYTES)
    tensor = m.InlineTensor(dtype="uint8", shape=(MAP_BYTES,), data=data)
    small = m.InlineTensor(dtype="uint8", shape=(2,), data=b"ab")
    naive = m.Many(items=(tensor, m.Named(items={"blob": m.Blob(data=more)}), small))
    told: Any = sender.answer(answer_of(naive))
    assert told.outputs["small"] == m.Small(value=1)
    assert len(msgspec.msgpack.encode(told)) < 1000, "without their bytes"
    found = leaves_changed(
        told.outputs["large"], lambda one: post.office.opened(one) if isinstance(one, m.Posted) else one
    )
    assert found == naive
    piece = m.TaskPiece(run=RUN, rank=Rank(1), step=0, use=2, iteration=(), output="o", value=tensor)
    passed: Any = sender.answer(piece)
    assert isinstance(passed.value, m.Posted)
    view: Any = post.office.opened(passed.value)
    view.data[0] = data[0] ^ 255
    assert bytes(view.data[1:]) == data[1:], "what a worker writes there changes its own memory"
    sender.close()
    post.close()


def test_a_value_without_posted_parts_stays_the_same_object() -> None:
    blob = m.Blob(data=b"x")
    turns = (m.Turn(role="user", parts=(m.Part(modality="image", value=blob),)),)
    for value in (blob, m.Many(items=(blob, m.Named(items={"a": blob}))), m.Conversation(turns=turns)):
        assert leaves_changed(value, lambda leaf: leaf) is value
        assert leaves_changed(value, lambda leaf: m.Absent()) != value


def test_a_worker_that_is_started_again_gets_what_is_sent_to_it(tmp_path: Path) -> None:
    first, sender = WorkerPost(tmp_path, Rank(0), 1), PostSender(tmp_path / rank_office(Rank(0)), "service")
    assert sender.post(RUN, b"x") is not None
    first.office.fetch(output(m.Small(value=1)))
    first.office.forget("other")
    first.close()
    second = WorkerPost(tmp_path, Rank(0), 2)
    assert sender.post(RUN, b"y") is None, "the connection has ended: the value goes inside its message"
    told = sender.post(RUN, b"z")
    assert told is not None
    assert second.office.opened(told) == m.Blob(data=b"z")
    sender.close()
    second.close()


def test_the_files_of_unknown_runs_stay_while_their_message_may_still_come(tmp_path: Path) -> None:
    now = 0.0
    office = PostOffice(tmp_path / posting.SERVICE, clock=lambda: now)
    sender = PostSender(tmp_path / posting.SERVICE, "0.1")
    told: dict[str, Any] = {run: sender.post(RunId(run), run.encode()) for run in ("ended", "known", "begins", "late")}
    before = open_files()
    office.forget_all_but("ended", {"known"})
    assert open_files() == before + 1 + 3, "the connection, and the files of all but the run that has ended"
    assert office.opened(told["begins"]) == m.Blob(data=b"begins")
    now = EARLY_SECONDS + 1
    office.forget_all_but("other", {"known"})
    assert open_files() == before + 1 + 1
    assert office.opened(told["known"]) == m.Blob(data=b"known")
    for run in ("ended", "late"):
        with pytest.raises(Lost):
            office.opened(told[run])
    sender.close()
    office.close()


def test_values_of_a_request_are_posted_and_those_that_can_not_be_go_inside_it(tmp_path: Path) -> None:
    data = os.urandom(POST_BYTES)
    large, small = m.Blob(data=data), m.Blob(data=b"x")
    given = m.Submit(
        run=RUN,
        task="t",
        params={},
        inputs={"a": (large, small), "b": (m.Many(items=(large,)),)},
        parts=(m.Part(modality="image", value=large),),
    )
    sender = PostSender(tmp_path / posting.CONDUCTOR, "service")
    assert sender.request(given) == given, "nobody is there"
    office = PostOffice(tmp_path / posting.CONDUCTOR)
    told = sender.request(given)
    assert sender.count == 3
    assert len(msgspec.msgpack.encode(told)) < 1000, "without their bytes"
    several = [*told.inputs["a"], *told.inputs["b"], told.parts[0].value]
    assert any_posted(several)
    assert not any_posted((large, m.Many(items=(small,))))
    found = [
        leaves_changed(value, lambda one: office.shown(one) if isinstance(one, m.Posted) else one) for value in several
    ]
    assert found == [*given.inputs["a"], *given.inputs["b"], large]
    sender.close()
    office.close()


def test_processes_that_share_a_file_read_all_of_it(way: Way, tmp_path: Path) -> None:
    """A file that was passed on has one position for all that have it."""
    data = os.urandom(POST_BYTES)
    told = posted(way, data)
    post, on = WorkerPost(tmp_path, Rank(0), 1), PostSender(tmp_path / rank_office(Rank(0)), "conductor")
    file = way.office.file(told)
    os.lseek(file, 100, os.SEEK_SET)
    assert on.pass_on(posting.Letter(run=RUN, sender=told.sender, number=told.number), file)
    naive = m.Blob(data=data)
    assert [way.office.shown(told), post.opener(RUN)(told), way.office.opened(told)] == [naive] * 3
    on.close()
    post.close()
