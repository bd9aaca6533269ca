"""Clients that take large values. It reads orders as JSON from standard input and writes results as JSON to standard
output; `values.py` starts it."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from websockets.sync.client import connect

from walkgraph.client import Client, Result, Task, Tensor

PIECE = 256 * 1024
CODE = "200"


def http(orders: Mapping[str, Any], meanwhile: Callable[[], None] = lambda: None) -> int:
    """Asks, and reads to the end of the connection; returns the bytes of the answer. `meanwhile` is called once the
    answer has begun, before it is read on."""
    buffer = memoryview(bytearray(PIECE))
    with socket.create_connection((orders["host"], orders["port"])) as asking:
        asking.sendall(orders["request"].encode())
        taken = asking.recv_into(buffer)
        assert bytes(buffer[:12]).split()[1].decode() == CODE, bytes(buffer[:taken])
        meanwhile()
        while count := asking.recv_into(buffer):
            taken += count
    return taken


def websocket(orders: Mapping[str, Any]) -> int:
    address = f"ws://{orders['host']}:{orders['port']}{orders['path']}"
    headers = {"Authorization": f"Bearer {orders['token']}"}
    with connect(address, additional_headers=headers, max_size=None, compression=None) as asking:
        asking.send(json.dumps(orders["body"]))
        return sum(len(message) for message in asking)


def sdk(orders: Mapping[str, Any]) -> int:
    return _read(_task(orders)(**orders["body"]["params"]))


def sdk_stream(orders: Mapping[str, Any]) -> int:
    with _task(orders).stream(**orders["body"]["params"]) as outputs:
        for _ in outputs:
            pass
    return _read(outputs.result)


def _read(result: Result) -> int:
    """Bytes of its tensors, as arrays."""
    return sum(value.numpy().nbytes for value in result["items"] if isinstance(value, Tensor))


def _task(orders: Mapping[str, Any]) -> Task:
    url = f"http://{orders['host']}:{orders['port']}"
    return _tasks(url, orders["token"], orders["deployment"], orders["task"])


@cache
def _tasks(url: str, token: str, deployment: str, task: str) -> Task:
    return Client(url, token).task(deployment, task)


WAYS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "http": http,
    "websocket": websocket,
    "sdk": sdk,
    "sdk_stream": sdk_stream,
}


def copied(nbytes: int) -> float:
    """Seconds of a plain copy of so many bytes through a local socket, from one thread to another."""
    data, buffer = bytes(nbytes), memoryview(bytearray(PIECE))
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        began = time.perf_counter()
        sending = threading.Thread(target=theirs.sendall, args=(data,))
        sending.start()
        left = nbytes
        while left:
            left -= ours.recv_into(buffer)
        sending.join()
        return time.perf_counter() - began


def timed(orders: Mapping[str, Any]) -> tuple[float, float, int]:
    """(seconds, CPU seconds of this process, bytes) of one take."""
    used, began = time.process_time(), time.perf_counter()
    taken = WAYS[orders["way"]](orders)
    return time.perf_counter() - began, time.process_time() - used, taken


def in_turn(orders: Mapping[str, Any]) -> dict[str, Any]:
    """Takes one after the other, each beside a plain copy of as many bytes."""
    timed(orders)
    took: list[tuple[float, float, int]] = []
    copies: list[float] = []
    for _ in range(orders["rounds"]):
        copies.append(copied(orders["nbytes"]))
        took.append(timed(orders))
    seconds, used, taken = zip(*took, strict=True)
    return {"times": seconds, "copies": copies, "used": sum(used), "taken": taken[0]}


def at_once(orders: Mapping[str, Any]) -> dict[str, Any]:
    """All clients ask at the same time, as many rounds."""
    clients: int = orders["clients"]
    together = threading.Barrier(clients)

    def one(_: int) -> list[float]:
        times: list[float] = []
        for _ in range(orders["rounds"]):
            together.wait()
            began = time.perf_counter()
            http(orders)
            times.append(time.perf_counter() - began)
        return times

    used = time.process_time()
    with ThreadPoolExecutor(clients) as pool:
        times = [seconds for found in pool.map(one, range(clients)) for seconds in found]
    return {"times": times, "used": time.process_time() - used}


def slow(orders: Mapping[str, Any]) -> dict[str, Any]:
    """Clients whose answers have begun say so and read no further, until a line comes."""
    clients: int = orders["clients"]
    begun = threading.Barrier(clients + 1)
    over = threading.Event()

    def stopped() -> None:
        begun.wait()
        over.wait()

    with ThreadPoolExecutor(clients) as pool:
        asked = [pool.submit(http, orders, stopped) for _ in range(clients)]
        begun.wait()
        print("begun", flush=True)
        sys.stdin.readline()
        over.set()
        taken = [one.result() for one in asked]
    return {"taken": min(taken)}


HOW = {"in_turn": in_turn, "at_once": at_once, "slow": slow}

if __name__ == "__main__":
    given = json.loads(sys.stdin.readline())
    print(json.dumps(HOW[given["how"]](given)), flush=True)
