"""Measures the way of a large value from the worker to its client, through the whole server, in every encoding.

    python benchmarks/values.py [--mebibytes 32] [--frames 15] [--rounds 12] [--clients 64] [--each 4] [--out FILE]
        [--check]

The script starts a service with the plain command in its own home. A component without weights makes a tensor of
float32 on the CPU, and a client process takes it. Times are from the connection to the last byte; for the SDK, which
keeps its connection, from the call to the array in NumPy. CPU is the CPU time of each process with all its threads,
the client's without its start.

    alone     one client after the other, by encoding; next to each take is a plain copy of as many bytes through a
              local socket, from one thread to another, and `ratio` compares the medians of the two. `nothing` is the
              same request for a single number
    frames    values of 704 KiB, as the frames that a world model predicts, that come one after the other in one run
    together  so many clients at once, for a smaller value each, as bytes. `rise` is the most that service, conductor
              and worker together held beyond what they held before: their own memory, and shared memory of the machine
    slow      clients that take the head of their answer and then nothing: the memory that each process holds for them,
              and the time of a small request meanwhile
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from _common import ROOT, Row, show, spread, write
from _service import home, is_ready, processes_of, service, when

RESULTS = ROOT / "benchmarks" / "results" / "values.json"
TAKERS = Path(__file__).with_name("_takers.py")
NAME, TASK = "values", "make"
MIB = 1024 * 1024
NUMBER_BYTES = 4
FRAME_BYTES = 256 * 1408 * 2
"""A frame of V-JEPA 2-AC in 16 bits."""
SAMPLE_SECONDS = 0.01
SLOW = 8
GRAPH: Mapping[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": NAME,
    "nodes": {"make": {"component": "synthetic.tensor", "params": {"n": "=n"}}},
    "walks": {
        TASK: {
            "body": [{"loop": "frames", "times": "times", "body": ["make"]}],
            "edges": [{"from": "make.items", "to": "@out.items", "each": True}],
        }
    },
    "tasks": {
        TASK: {
            "outputs": ["items"],
            "params": {
                "n": {"type": "integer", "default": 1, "min": 1, "max": 2**28},
                "times": {"type": "integer", "default": 1, "min": 1, "max": 64},
            },
            "steps": [{"walk": TASK}],
        }
    },
}
ACCEPTED: Mapping[str, str] = {
    "JSON": "application/json",
    "bytes": "application/octet-stream",
    "form": "multipart/mixed",
    "msgpack": "application/vnd.msgpack",
    "safetensors": "application/x-safetensors",
    "events": "text/event-stream",
}
"""HTTP's encodings by what the client accepts."""


def main() -> None:
    given = options()
    with home() as folder, service(folder, starter=False) as server:
        server.client.deploy(GRAPH, None, NAME)
        when(server.client, NAME, is_ready)
        here = Here(folder, server.client.url)
        alone = [here.alone(way, given.mebibytes, given.rounds) for way in here.ways]
        alone.append(here.alone("bytes", 0, given.rounds))
        show(f"alone: a value of {given.mebibytes} MiB", alone)
        frames = [here.frames(way, given.frames, given.rounds) for way in ("form", "SDK", "SDK stream")]
        show(f"frames: {given.frames} values of {FRAME_BYTES // 1024} KiB", frames)
        together = [here.together(given.clients, given.each, given.together)]
        show(f"together: {given.clients} clients, {given.each} MiB each", together)
        slow = [here.slow(SLOW, given.mebibytes)]
        show(f"slow: {SLOW} clients of {given.mebibytes} MiB", slow)
    write(
        None if given.check else given.out,
        "cpu",
        {"alone": alone, "frames": frames, "together": together, "slow": slow},
    )


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--mebibytes", type=int, default=32, help="size of the value that one client takes")
    arguments.add_argument("--frames", type=int, default=15, help="values of one run that come one after the other")
    arguments.add_argument("--rounds", type=int, default=12, help="takes in each encoding")
    arguments.add_argument("--clients", type=int, default=64, help="clients at once")
    arguments.add_argument("--each", type=int, default=4, help="MiB that each of them takes")
    arguments.add_argument("--together", type=int, default=4, help="rounds of all of them")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    given = arguments.parse_args()
    if given.check:
        given.mebibytes, given.rounds, given.clients, given.each, given.together = 1, 1, 2, 1, 1
        given.frames = 2
    return given


class Here:
    """The service of this benchmark and its processes."""

    def __init__(self, folder: Path, url: str) -> None:
        self._url, self._token = urlsplit(url), (folder / "token").read_text().strip()
        self._processes = processes_of(folder)

    @property
    def ways(self) -> tuple[str, ...]:
        return (*ACCEPTED, "WebSocket", "WebSocket frames", "KServe", "SDK", "SDK stream")

    def alone(self, way: str, mebibytes: int, rounds: int) -> Row:
        nbytes = max(NUMBER_BYTES, mebibytes * MIB)
        return {"encoding": way if mebibytes else "nothing", "MiB": mebibytes, **self._in_turn(way, nbytes, 1, rounds)}

    def frames(self, way: str, count: int, rounds: int) -> Row:
        return {"encoding": way, "values": count, **self._in_turn(way, FRAME_BYTES, count, rounds)}

    def _in_turn(self, way: str, each: int, count: int, rounds: int) -> Row:
        """Takes so many values of so many bytes in each request."""
        nbytes = count * each
        orders = {**self._orders(way, each, count), "how": "in_turn", "rounds": rounds}
        with self._used() as used:
            found = _taken(orders)
        times, copies = spread(found["times"], 1e3), spread(found["copies"], 1e3)
        assert found["taken"] >= nbytes, found["taken"]
        row: dict[str, Any] = {f"{name} ms": value for name, value in times.items()}
        row |= {"copy ms": copies["median"], "ratio": times["median"] / copies["median"]}
        row |= {"sent / value": found["taken"] / nbytes}
        # One take before the others counts too.
        used = {name: seconds * rounds / (rounds + 1) for name, seconds in used.items()} | {"client": found["used"]}
        return {**row, **_per_mebibyte(used, rounds * nbytes / MIB)}

    def together(self, clients: int, each: int, rounds: int) -> Row:
        orders = {**self._orders("bytes", each * MIB), "how": "at_once", "clients": clients, "rounds": rounds}
        with self._used() as used, self._rise() as rise:
            found = _taken(orders)
        times = sorted(found["times"])
        p50, p99 = (1e3 * times[round(share * (len(times) - 1))] for share in (0.5, 0.99))
        row = {"clients": clients, "MiB each": each, "p50 ms": p50, "p99 ms": p99, "p99 / p50": p99 / p50, **rise}
        return {**row, **_per_mebibyte({**used, "client": found["used"]}, clients * each * rounds)}

    def slow(self, clients: int, mebibytes: int) -> Row:
        orders = {**self._orders("bytes", mebibytes * MIB), "how": "slow", "clients": clients}
        with self._rise() as rise, _takers() as takers:
            _order(takers, orders)
            assert takers.stdout is not None
            assert takers.stdout.readline() == "begun\n"
            held = {f"{name} holds MiB": rise.held(name) for name in self._processes}
            small = _taken({**self._orders("bytes", NUMBER_BYTES), "how": "in_turn", "rounds": 8})
            _order(takers, {})
            assert json.loads(takers.stdout.readline())["taken"] > mebibytes * MIB
        return {"clients": clients, **held, "small ms": spread(small["times"], 1e3)["median"], **rise}

    def _orders(self, way: str, each: int, count: int = 1) -> dict[str, Any]:
        body = {"params": {"n": each // NUMBER_BYTES, "times": count}}
        orders: dict[str, Any] = {
            "host": self._url.hostname,
            "port": self._url.port,
            "token": self._token,
            "deployment": NAME,
            "task": TASK,
            "nbytes": count * each,
            "body": body,
        }
        match way:
            case "WebSocket" | "WebSocket frames":
                binary = "?frames=binary" if way.endswith("frames") else ""
                return {**orders, "way": "websocket", "path": f"/ws/v1/tasks/{NAME}/{TASK}{binary}"}
            case "SDK" | "SDK stream":
                return {**orders, "way": way.lower().replace(" ", "_")}
            case "KServe":
                asked = {
                    "inputs": [],
                    "outputs": [{"name": "items", "parameters": {"binary_data": True}}],
                    "parameters": body["params"],
                }
                path = f"/v2/models/{NAME}/versions/{TASK}/infer"
                return {**orders, "way": "http", "request": self._post(path, "*/*", asked)}
            case _:
                path = f"/v1/tasks/{NAME}/{TASK}"
                return {**orders, "way": "http", "request": self._post(path, ACCEPTED[way], body)}

    def _post(self, path: str, accept: str, body: Mapping[str, Any]) -> str:
        text = json.dumps(body)
        return (
            f"POST {path} HTTP/1.1\r\nHost: {self._url.netloc}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Accept: {accept}\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n{text}"
        )

    @contextmanager
    def _used(self) -> Iterator[dict[str, float]]:
        """CPU seconds by process, once it is over."""
        before = {name: _cpu(pid) for name, pid in self._processes.items()}
        used: dict[str, float] = {}
        yield used
        used |= {name: _cpu(pid) - before[name] for name, pid in self._processes.items()}

    @contextmanager
    def _rise(self) -> Iterator["Rise"]:
        rise = Rise(self._processes)
        try:
            yield rise
        finally:
            rise.stop()


class Rise(dict[str, float]):
    """The most that the processes hold beyond what they held at first, MiB; looked at again and again until stopped."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        super().__init__()
        self._processes = processes
        self._first, self._most = self._look(), 0.0
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._keep_looking)
        self._looking.start()

    def held(self, name: str) -> float:
        """Memory that one process holds now beyond what it held at first; shared memory counts where it is mapped."""
        return self._look()[name] - self._first[name]

    def stop(self) -> None:
        self._over.set()
        self._looking.join()
        self["rise MiB"] = self._most

    def _keep_looking(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            now = self._look()
            self._most = max(self._most, sum(now[name] - self._first[name] for name in now))

    def _look(self) -> dict[str, float]:
        """Memory of each process without what is shared, and all that is shared on this machine."""
        found = {name: _status(Path(f"/proc/{pid}/status"), "RssAnon") for name, pid in self._processes.items()}
        return {**found, "shared": _status(Path("/proc/meminfo"), "Shmem")}


@contextmanager
def _takers() -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, str(TAKERS)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as takers:
        yield takers


def _order(takers: subprocess.Popen[str], orders: Mapping[str, Any]) -> None:
    assert takers.stdin is not None
    takers.stdin.write(json.dumps(orders) + "\n")
    takers.stdin.flush()


def _taken(orders: Mapping[str, Any]) -> dict[str, Any]:
    with _takers() as takers:
        _order(takers, orders)
        assert takers.stdout is not None
        return json.loads(takers.stdout.readline())


def _per_mebibyte(used: Mapping[str, float], mebibytes: float) -> Row:
    """CPU milliseconds a MiB by process, and of all together; none for values of no size."""
    if mebibytes < 1:
        return {}
    found = {f"{name} ms/MiB": 1e3 * seconds / mebibytes for name, seconds in used.items()}
    return {**found, "all ms/MiB": sum(found.values())}


def _cpu(pid: int) -> float:
    """Seconds of a core."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(path: Path, name: str) -> float:
    """MiB of a line in kB."""
    return int(path.read_text().partition(f"{name}:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
