"""The promises of reliability and security, a row each, with the budget that its figures are held against."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    promise: str
    budget: str


ROWS = {
    "R1": Row(
        "A worker is killed at a random step, two deployments under 32 streams",
        "typed end within 1 s; not ready within 0.5 s; back within 5 s; other deployment: no error, p99 ≤ 1.5x",
    ),
    "R2": Row("A worker hangs", "lost within its step deadline + 1 s, then restarted"),
    "R3": Row(
        "The service is killed", "workers gone within 1 s; four deployments back within 5 s + load; nothing left"
    ),
    "R4": Row("A component raises at every load", "at most 5 restarts in 60 s, then `failed` with its reason"),
    "R5": Row("A client disconnects: reset, closed, half-open", "pages free within 1 s; half-open found within 20 s"),
    "R6": Row("1,000 runs are started and cancelled in 60 s", "all pages free, no task left, memory flat"),
    "R7": Row(
        "Ten times the capacity is offered for 60 s",
        "goodput ≥ 95 %; admitted p99 ≤ 2x; rest 429 or 503 with Retry-After; +200 MB at most; normal within 5 s",
    ),
    "R8": Row(
        "2,000 idle connections, 200 that send a byte a second, 200 slow readers",
        "`/health/live` p99 < 100 ms; open files return to their number",
    ),
    "R9": Row(
        "50 telemetry clients that don't read",
        "a step's p99 changes < 2 %; ≤ 1 MiB a client; told what was dropped or closed after 30 s; others lossless",
    ),
    "R10": Row("32 threads deploy and undeploy, 256 each", "only documented errors; the last operation wins; no leak"),
    "R11": Row("A graph that can't be deployed", "refused before a process starts, or rolled back; the old one serves"),
    "R12": Row("Memory runs out at a step", "only that run fails, `out_of_memory`; it succeeds once there is room"),
    "R13": Row(
        "NaN or infinity in a node's output", "`numeric_error` names node, port and step; never a 500; < 1 % a step"
    ),
    "R14": Row(
        "The store is killed, full, migrated, shared (SQLite and PostgreSQL)",
        "every acknowledged write is there; no half deployment; migrations run again; 8 x 1,000 writes, none locked",
    ),
    "R15": Row(
        "The N-th send, receive, allocation, open or launch fails, for every N",
        "the run ends right or with a typed error; nothing leaks",
    ),
    "R16": Row("SIGTERM under load", "503 at once; runs end within 30 s; exit 0; a second signal is immediate"),
    "R17": Row(
        "Every transport carries the same bits",
        "1,000 random tensors identical; a peer killed in a transfer: typed within 1 s; torn frames rejected",
    ),
    "R18": Row(
        "A soak of valid, invalid, cancelled requests and kills", "memory, files, threads flat; a planted leak is found"
    ),
    "R19": Row("The clock jumps, a pipe is full, EINTR, no more open files", "typed errors, then it recovers"),
    "R20": Row("Equal seeds", "equal tokens on every placement and after a restart"),
    "R21": Row(
        "A host of a cluster is cut off, or all its processes are killed",
        "3 s lose nothing; then typed end within 6 s of the cut, 1 s of the kill; back or on another host in 60 s",
    ),
    "S1": Row("Requests made from the published OpenAPI, 20,000", "no 500; every answer matches the schema"),
    "S2": Row("Mutated graphs, 50,000", "only 2xx and 4xx; ≤ 50 ms each; memory flat"),
    "S3": Row("Bombs: depth, numbers, sizes, encodings", "the exact documented code for each"),
    "S4": Row("Every route and socket without a token", "401, except four that are public"),
    "S5": Row("12 origins, 50 hosts, content types", "refused on every mutating route and every socket"),
    "S6": Row("300 paths that lead out of a folder, symlinks among them", "404, no byte"),
    "S7": Row("1,000 pickles and garbage frames on every socket", "all rejected and counted, nothing executed"),
    "S8": Row("10,000 mutated tensor headers", "a typed error each, no crash"),
    "S9": Row("2,000 damaged pictures and 2,000 damaged sounds", "400 only, nothing internal in a message"),
    "S10": Row("Messages of errors", "no path, process id, address or traceback"),
    "S11": Row("Listening sockets of the running product", "loopback only, unless asked; then a token is required"),
    "S12": Row("The lock file", "hashed; no known vulnerability"),
    "S13": Row("The source", "no pickle, eval, exec, shell, unsafe load, or assert as a guard"),
    "S14": Row("All tests under `python -O`", "pass"),
    "S15": Row("The token and other secrets", "not in logs, addresses, process arguments or exported traces"),
    "S16": Row("Files that the product makes", "0600, folders 0700"),
    "S17": Row(
        "40 tricks to make nodes call servers that aren't listed, or answers that hold the service up",
        "no connection beyond the list; a typed error each",
    ),
}
