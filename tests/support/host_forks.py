"""The fork servers of two hosts behind one socket, as a conductor knows it: each rank is forked on its own host."""

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from walkgraph.settings import worker_environment
from walkgraph.wire.processes import forks


class HostForks:
    def __init__(self, folder: Path, commands: Sequence[list[str]], host_of: Mapping[int, int]) -> None:
        """`commands`: how a command of each host begins. `host_of`: rank -> its host's place among them."""
        self._folder, self._host_of = folder, host_of
        self.path = folder / "forks"
        self._listener = _listening(self.path)
        self._processes = [self._server(place, command) for place, command in enumerate(commands)]
        threading.Thread(target=self._accept, daemon=True).start()

    async def running(self) -> Path:
        return self.path

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _server(self, place: int, command: list[str]) -> "subprocess.Popen[bytes]":
        with _listening(self._folder / f"forks{place}") as listener:
            file = listener.fileno()
            words = ("-m", "walkgraph.worker.fork_server", "--listen", str(file), "--parent", str(os.getpid()))
            return subprocess.Popen([*command, sys.executable, *words], env=worker_environment(), pass_fds=(file,))

    def _accept(self) -> None:
        while True:
            conductor, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(conductor,), daemon=True).start()

    def _serve(self, conductor: socket.socket) -> None:
        servers = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in self._processes]
        for place, server in enumerate(servers):
            server.connect(str(self._folder / f"forks{place}"))
        sockets = {one.fileno(): one for one in (conductor, *servers)}
        poll = select.poll()
        for file in sockets:
            poll.register(file, select.POLLIN)
        try:
            while all(self._passed(sockets[file], conductor, servers) for file, _ in poll.poll()):
                pass
        finally:
            for one in sockets.values():
                one.close()

    def _passed(self, source: socket.socket, conductor: socket.socket, servers: list[socket.socket]) -> bool:
        """Pass one message on; False if its sender is gone."""
        if source is conductor:
            asked = forks.receive_order(source)
            if asked is None:
                return False
            (message, files), target = asked, servers[self._host_of[asked[0].rank]]
            forks.send(target, message, *files)
        else:
            told = forks.receive_answer(source)
            if told is None:
                return False
            (answer, files) = told
            forks.send(conductor, answer, *files)
        for file in files:
            os.close(file)
        return True


def _listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(str(path))
    made.listen()
    return made
