"""`python -m walkgraph.worker.process --dir D --rank R --start N --parent P`: the process of one rank.

The process dies with its parent, however the parent ends. It is therefore bound to it before torch is imported, which
takes seconds.
"""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from walkgraph.ids import Rank
from walkgraph.wire.process import die_with


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--dir", type=Path, required=True)
    arguments.add_argument("--rank", type=int, required=True)
    arguments.add_argument("--start", type=int, required=True)
    arguments.add_argument("--parent", type=int, required=True)
    given = arguments.parse_args()
    die_with(given.parent)
    signal.signal(signal.SIGTERM, _leave)

    from walkgraph.worker.serve import serve

    serve(given.dir, Rank(given.rank), given.start)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
