"""`python -m walkgraph.worker.child FORK --parent P`: a worker that an actor starts on its host.

It dies with the actor, however that ends. `die_with` is called before the slow imports for that reason.
"""

import argparse
import gc
from pathlib import Path

import msgspec

from walkgraph.wire.processes import forks
from walkgraph.wire.processes.common import die_with, named


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("fork")
    arguments.add_argument("--parent", type=int, required=True)
    given = arguments.parse_args()
    die_with(given.parent)
    asked = msgspec.json.decode(given.fork, type=forks.Fork)
    named(f"rank {asked.rank}")

    # Nothing that imports make is garbage.
    gc.disable()
    from walkgraph.ids import Rank
    from walkgraph.worker.fork_server import COLLECTIONS
    from walkgraph.worker.serve import serve

    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    gc.enable()
    serve(Path(asked.directory), Rank(asked.rank), asked.start, asked.ports)


if __name__ == "__main__":
    main()
