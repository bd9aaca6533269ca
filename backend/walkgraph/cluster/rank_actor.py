"""The actor of a rank, a process of its own on the rank's host: its worker is its child, and ends with it."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from walkgraph.cluster.host_folder import entered, folder_of
from walkgraph.settings import actor_environment, copied_checkpoints
from walkgraph.wire.processes import forks
from walkgraph.wire.spec import LOG, DeploymentSpec, write_spec


class RankActor:
    """Ray calls its methods one after the other, in its main thread. They take and give bytes and numbers alone."""

    _entered: int | None = None
    """The folder's lock, which ends with this process."""
    _worker: "subprocess.Popen[bytes] | None" = None

    def begin(self, fork: bytes, spec: bytes) -> int:
        """Start the worker; returns its process number. `spec`: that of the deployment, for a folder on this host;
        empty: it is in its folder already."""
        asked = msgspec.msgpack.decode(fork, type=forks.Fork)
        if spec:
            found = msgspec.json.decode(spec, type=DeploymentSpec)
            folder = folder_of(found)
            self._entered = entered(folder)
            roots = (*found.checkpoint_roots, str(copied_checkpoints()))
            write_spec(folder, msgspec.structs.replace(found, checkpoint_roots=roots))
            asked = msgspec.structs.replace(asked, directory=str(folder))
        with (Path(asked.directory) / LOG).open("ab") as log:
            words = ("-m", "walkgraph.worker.child", msgspec.json.encode(asked).decode(), "--parent", str(os.getpid()))
            self._worker = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                env=actor_environment(),
                stdout=log,
                stderr=log,
            )
        return self._worker.pid

    def wait(self) -> int:
        """The exit status of the worker, once it has ended."""
        return -1 if self._worker is None else self._worker.wait()
