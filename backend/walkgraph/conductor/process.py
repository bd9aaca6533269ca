"""`python -m walkgraph.conductor.process --dir D --forks F --parent P`: the process of one deployment.

It dies with its parent, however that ends. `die_with` is called before the slow imports for that reason.
"""

import argparse
import gc
from pathlib import Path

from walkgraph.wire.processes.common import die_with, one_heap


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--dir", type=Path, required=True)
    arguments.add_argument("--forks", type=Path, required=True)
    arguments.add_argument("--parent", type=int, required=True)
    given = arguments.parse_args()
    die_with(given.parent)
    one_heap()

    # Nothing that imports make is garbage: looking for some takes a twentieth of the start.
    gc.disable()
    from walkgraph.conductor.serve import serve

    gc.freeze()
    gc.enable()
    serve(given.dir, given.forks)


if __name__ == "__main__":
    main()
