"""Brings the checkpoints of a deployment to those of its hosts that lack them, from the service's own host.

Each piece is read once, as an object of Ray, and every host takes it from wherever the cluster has it by then.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from walkgraph.cluster.checkpoint_files import PIECE_BYTES, CopyBegun, Files
from walkgraph.errors import InvalidInput
from walkgraph.placement.tables import Plan

WINDOW = 4
"""Pieces of a checkpoint that are under way at once."""
_SOURCE = "checkpoint:"

_log = logging.getLogger(__name__)


def needed(plan: Plan) -> dict[str, set[str]]:
    """Checkpoint -> the other hosts whose ranks load it."""
    found: dict[str, set[str]] = {}
    for rank in plan.ranks:
        for index in rank.nodes if rank.host else ():
            weights = plan.nodes[index].weights
            source = plan.weights[weights].source if weights is not None else ""
            if source.startswith(_SOURCE):
                found.setdefault(source.removeprefix(_SOURCE), set()).add(rank.host)
    return found


async def bring(name: str, roots: Sequence[str], source: Any, hosts: Mapping[str, Any]) -> None:
    """Copy a checkpoint to the hosts that lack it. `source`, `hosts`: actors, which have `HostActor`'s methods. Where
    the source lacks it too, nothing is copied. Raises InvalidInput where a host has no room."""
    where = msgspec.msgpack.encode((name, roots))
    told = await source.checkpoint.remote(where)
    files = msgspec.msgpack.decode(told, type=Files | None)
    if files is None:
        return
    begun: dict[str, CopyBegun] = {}
    for host, actor in hosts.items():
        answer = msgspec.msgpack.decode(await actor.begin_copy.remote(where, told), type=CopyBegun | None)
        if answer is not None:
            begun[host] = answer
            _check_room(host, name, files, answer)
    if not begun:
        return
    _log.info("checkpoint %s is copied to %s", name, ", ".join(begun))
    lacking = [hosts[host] for host in begun]
    under_way: list[list[Any]] = []
    for index, file in enumerate(files):
        first = min(one.there[index] for one in begun.values()) // PIECE_BYTES * PIECE_BYTES
        for start in range(first, max(file.size, 1), PIECE_BYTES):
            piece = source.piece.remote(where, file.name, start)
            under_way.append([actor.take_piece.remote(where, told, index, start, piece) for actor in lacking])
            if len(under_way) >= WINDOW:
                await asyncio.gather(*under_way.pop(0))
    for taken in under_way:
        await asyncio.gather(*taken)
    await asyncio.gather(*(actor.finish_copy.remote(where, told) for actor in lacking))


def _check_room(host: str, name: str, files: Files, begun: CopyBegun) -> None:
    missing = sum(file.size for file in files) - sum(begun.there)
    if missing > begun.free:
        raise InvalidInput(
            f"host `{host}` lacks checkpoint `{name}`, and has {begun.free / 1e9:.1f} GB free for the "
            f"{missing / 1e9:.1f} GB of a copy; free some, or put the folder under a checkpoint root there"
        )
