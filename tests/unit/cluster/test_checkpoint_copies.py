"""Checkpoints come to the hosts that lack them, whole, and each piece is read once."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.deployment import plan_named
from walkgraph.cluster import checkpoint_copies, checkpoint_files, host_actor
from walkgraph.cluster.checkpoint_copies import bring, needed
from walkgraph.cluster.checkpoint_files import CheckpointCopy, CheckpointFile, CopyBegun, files_of, piece_of
from walkgraph.errors import InvalidInput
from walkgraph.placement.tables import WeightsPlan

PIECE = 1000
FILES = {
    "config.json": b"{}",
    "empty.txt": b"",
    "model-00001.safetensors": os.urandom(2 * PIECE),
    "unit/model.safetensors": os.urandom(3 * PIECE + 1),
}


class Method:
    """Ray's form of a method of an actor, in this process."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def remote(self, *given: Any) -> asyncio.Task[Any]:
        async def call() -> Any:
            return self._call(*[await one if isinstance(one, asyncio.Future) else one for one in given])

        return asyncio.ensure_future(call())


class Actor:
    """A host with a home and checkpoint roots of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.copies = folder / "root", folder / "copies"
        self.root.mkdir(parents=True)
        self.asked = Counter[str]()
        self.free: int | None = None
        self._host, self._monkeypatch = object.__new__(host_actor.HostActor), monkeypatch

    def __getattr__(self, name: str) -> Method:
        def call(where: bytes, *given: Any) -> Any:
            self.asked[name] += 1
            self._monkeypatch.setattr(host_actor, "copied_checkpoints", lambda: self.copies)
            # In truth all hosts are asked for the same roots.
            told, _ = msgspec.msgpack.decode(where)
            found = getattr(self._host, name)(msgspec.msgpack.encode((told, [str(self.root)])), *given)
            if name == "begin_copy" and self.free is not None:
                begun = msgspec.msgpack.decode(found, type=CopyBegun)
                return msgspec.msgpack.encode(msgspec.structs.replace(begun, free=self.free))
            return found

        return Method(call)

    def has(self, name: str) -> None:
        for file, content in FILES.items():
            path = self.root / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Actor]:
    for module in (checkpoint_files, checkpoint_copies):
        monkeypatch.setattr(module, "PIECE_BYTES", PIECE)
    found = [Actor(tmp_path / str(number), monkeypatch) for number in range(4)]
    found[0].has("big")
    (found[0].root / "big" / ".cache").mkdir()
    (found[0].root / "big" / ".cache" / "lock").write_text("of nobody else's")
    return found


def copied(actor: Actor, name: str = "big") -> dict[str, bytes]:
    folder = actor.copies / name
    return {file.name: (folder / file.name).read_bytes() for file in files_of(folder)}


async def test_hosts_that_lack_a_checkpoint_get_it_and_each_piece_is_read_once(hosts: list[Actor]) -> None:
    here, there, other, third = hosts
    third.has("big")
    await bring("big", (), here, {"there": there, "other": other, "third": third})
    assert copied(there) == copied(other) == FILES
    assert not third.copies.exists()
    assert here.asked["piece"] == 1 + 1 + 2 + 4
    assert not (there.copies / "big" / ".cache").exists()
    await bring("big", (), here, {"there": there, "other": other, "third": third})
    assert here.asked["piece"] == 8


async def test_a_copy_that_was_broken_off_goes_on(hosts: list[Actor]) -> None:
    here, there, *_ = hosts
    name = "unit/model.safetensors"
    copy = CheckpointCopy(there.copies, "big", files_of(here.root / "big"))
    copy.begin()
    copy.take(3, 0, FILES[name][:PIECE])
    copy.take(3, PIECE, FILES[name][PIECE : PIECE + 500])
    await bring("big", (), here, {"there": there})
    assert copied(there) == FILES
    assert here.asked["piece"] == 1 + 1 + 2 + 3


async def test_a_checkpoint_that_has_changed_is_copied_anew(hosts: list[Actor]) -> None:
    here, there, *_ = hosts
    await bring("big", (), here, {"there": there})
    changed = here.root / "big" / "config.json"
    changed.write_bytes(b"[]")
    os.utime(changed, ns=(0, 1))
    (here.root / "big" / "empty.txt").unlink()
    await bring("big", (), here, {"there": there})
    assert copied(there) == {**{name: FILES[name] for name in FILES if name != "empty.txt"}, "config.json": b"[]"}


async def test_a_file_that_changes_meanwhile_makes_no_copy(hosts: list[Actor]) -> None:
    here, there, *_ = hosts
    files = files_of(here.root / "big")
    copy = CheckpointCopy(there.copies, "big", files)
    copy.begin()
    with pytest.raises(InvalidInput, match="changed while it was copied"):
        copy.finish()
    with pytest.raises(InvalidInput, match=r"byte 5 of `config.json` came before byte 0"):
        copy.take(0, 5, b"x")
    assert not copy.is_made


async def test_a_host_without_room_is_told_of(hosts: list[Actor]) -> None:
    here, there, *_ = hosts
    there.free = 100
    with pytest.raises(InvalidInput, match=r"host `there` lacks checkpoint `big`, and has 0.0 GB free"):
        await bring("big", (), here, {"there": there})
    assert here.asked["piece"] == 0


async def test_what_the_service_lacks_too_is_left_to_the_rank(hosts: list[Actor]) -> None:
    here, there, *_ = hosts
    await bring("small", (), here, {"there": there})
    await bring("..", (), here, {"there": there})
    assert not there.copies.exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b"])
def test_no_file_outside_is_read_or_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="no file of a checkpoint"):
        piece_of(tmp_path, name, 0)
    copy = CheckpointCopy(tmp_path, "big", (CheckpointFile(name, 1, 0),))
    with pytest.raises(InvalidInput, match="no file of a checkpoint"):
        copy.begin()


def test_ranks_on_other_hosts_need_their_checkpoints() -> None:
    _, plan = plan_named("shapes", 1)
    weights = {name: WeightsPlan(family=one.family, source="checkpoint:mine") for name, one in plan.weights.items()}
    far = tuple(msgspec.structs.replace(rank, host="b") for rank in plan.ranks)
    assert needed(msgspec.structs.replace(plan, weights=weights)) == {}
    assert needed(msgspec.structs.replace(plan, ranks=far)) == {}
    assert needed(msgspec.structs.replace(plan, ranks=far, weights=weights)) == {"mine": {"b"}}
