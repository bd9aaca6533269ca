"""`python -m walkgraph.worker.process --dir D --parent P`: the process of one rank.

It reads the rank and the number of its start from its standard input once it has imported all it needs.

The process dies with its parent, however the parent ends. It is therefore bound to it before torch is imported, which
takes seconds.
"""

import argparse
import gc
import signal
import sys
from pathlib import Path
from types import FrameType

from walkgraph.ids import Rank
from walkgraph.wire.process import die_with


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--dir", type=Path, required=True)
    arguments.add_argument("--parent", type=int, required=True)
    given = arguments.parse_args()
    die_with(given.parent)
    signal.signal(signal.SIGTERM, _leave)

    # All that imports make stays: to look for garbage in it again and again takes a tenth of the time.
    gc.disable()
    from walkgraph.worker.serve import serve

    gc.freeze()
    gc.enable()
    assigned = sys.stdin.readline().split()
    if not assigned:
        sys.exit("the parent has no rank for this process")
    rank, start = map(int, assigned)
    serve(given.dir, Rank(rank), start)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
