"""Kernels for every GPU, each with the cut that it gets there: `python -m tests.kernels.everywhere`.

Without arguments, kernels that `tests/golden/kernels.txt` doesn't have are compiled and checked, and the exit code is 1
if there are some, or the file has others. `--record` writes them into the file; `--all` compiles every kernel, whatever
the file has; `--gpu` and `--case` choose some."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kernels.txt"
GPUS = ("A100", "RTX 3090", "L40S", "H100", "B200", "RTX 5090")
"""One of each compute capability."""


class Line(NamedTuple):
    """A compiled kernel."""

    gpu: str
    kernel: str
    key: str
    """Digest of its source, arguments and options."""
    case: str
    """The first that launches it."""
    shared: str = ""
    registers: str = ""
    local: str = ""
    cores: str = ""
    """The instruction by which it multiplies matrices."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.everywhere", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the file of kernels anew")
    parser.add_argument("--all", action="store_true", help="compile every kernel")
    parser.add_argument("--gpu", action="append", choices=GPUS, help="only for this GPU")
    parser.add_argument("--case", action="append", help="only this case")
    given = parser.parse_args(arguments)
    known = {} if given.all else {line[:3]: line for line in recorded()}
    check = Check(known)
    for number, gpu in enumerate(GPUS):
        if gpu in (given.gpu or GPUS):
            check.run(number, gpu, given.case)
    lines, wrong, whole = sorted(set(check.lines)), check.wrong, not given.gpu and not given.case
    print(*("; ".join(line) for line in check.fresh), *wrong, sep="\n")
    if given.record and whole and not wrong:
        GOLDEN.write_text("".join("; ".join(line) + "\n" for line in lines))
        return 0
    stale = whole and {line[:3] for line in lines} != {line[:3] for line in recorded()}
    if stale:
        print("kernels have changed; record them: `python -m tests.kernels.everywhere --record`")
    return 1 if wrong or stale else 0


def recorded() -> list[Line]:
    return [Line(*line.split("; ")) for line in GOLDEN.read_text().splitlines()] if GOLDEN.exists() else []


class Check:
    def __init__(self, known: dict[tuple[str, ...], Line]) -> None:
        """`known`: kernels that aren't compiled again."""
        self._known = known
        self.lines: list[Line] = []
        self.fresh: list[Line] = []
        self.wrong: list[str] = []

    def run(self, number: int, gpu: str, only: list[str] | None) -> None:
        """All cases for one GPU."""
        from triton import knobs
        from triton.runtime import driver

        from tests.kernels.everywhere.cases import CASES
        from tests.kernels.everywhere.driver import Imagined
        from walkgraph.layers.kernels.gpu import KINDS

        imagined = Imagined(KINDS[gpu], number)
        driver.set_active(imagined)
        for name, case in CASES.items():
            if name not in (only or CASES) or not case.serves(imagined.gpu):
                continue

            def seen(**told: Any) -> bool:
                found = self._known.get((gpu, told["fn"].name, _key(told)))
                if found is not None:
                    self.lines.append(found)
                return found is not None

            def made(name: str = name, **told: Any) -> None:
                kernel = told["fn"].jit_function.device_caches[number][0][told["compile"]["key"]]
                kernel._init_handles()  # loads it, and refuses what doesn't fit
                usage, ptx = imagined.loaded, kernel.asm["ptx"]
                if usage is None:
                    raise RuntimeError("a kernel was compiled and not loaded")
                cores = next((word for word in ("tcgen05.mma", "wgmma", "mma.sync") if word in ptx), "-")
                line = Line(
                    gpu,
                    told["fn"].name,
                    _key(told),
                    name,
                    str(usage.shared),
                    str(usage.registers),
                    str(usage.local),
                    cores,
                )
                self.lines.append(line)
                self.fresh.append(line)

            knobs.runtime.jit_cache_hook, knobs.runtime.jit_post_compile_hook = seen, made
            try:
                case.run()
            except Exception as error:  # noqa: BLE001 - the compiler's are of many types
                self.wrong.append(f"{gpu}; {name}; {type(error).__name__}: {' '.join(str(error).split())[-400:]}")


def _key(told: dict[str, Any]) -> str:
    """Digest of what a kernel is compiled from, without the compiler and its paths."""
    data = json.loads(told["compile"]["specialization_data"])
    data["options"].pop("extern_libs", None)
    data.pop("key", None)
    source = told["fn"].jit_function.cache_key
    return hashlib.sha256((source + json.dumps(data, sort_keys=True)).encode()).hexdigest()[:12]


if __name__ == "__main__":
    os.environ.pop("TRITON_INTERPRET", None)
    sys.exit(main(sys.argv[1:]))
