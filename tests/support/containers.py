"""Containers on hosts of this machine: commands with processes, a name and folders of their own. They can write only
the folders that a container can, and have no rights."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.namespaces import Host

_ENTER = """
set -e
hostname "$1"; mount --bind "$2" /etc/hosts; shift 2
for folder in /tmp /dev/shm; do mount -t tmpfs tmpfs $folder; done
mount -o bind,remount,ro /
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all -- "$@"
"""


@dataclass(frozen=True)
class Container:
    host: Host
    words: Sequence[str]
    """Its command, without tini, whose part the first process of a namespace has here."""
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Containers:
    """Containers by their names, by which they know each other."""

    found: Mapping[str, Container]
    names: Path
    """The file of their names."""
    variables: Mapping[str, str]
    """What all of them get, over their own environment."""

    @contextmanager
    def up(self, name: str, *more: str) -> Iterator[subprocess.Popen[str]]:
        """A container that runs, with `more` arguments, while the context lasts."""
        one = self.found[name]
        apart = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", _ENTER, "sh")
        process = subprocess.Popen(
            one.host.command(*apart, name, str(self.names), *one.words, *more),
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **one.environment, **self.variables},
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def asked(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """What came of a command that asks the service of a container, from its host."""
        return subprocess.run(
            self.found[name].host.command("walkgraph", *words),
            check=False,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.variables, "WALKGRAPH_URL": "http://127.0.0.1:8421"},
        )

    def walkgraph(self, name: str, *words: str) -> str:
        """What such a command says."""
        answer = self.asked(name, *words)
        answer.check_returncode()
        return answer.stdout

    def hosts(self, name: str) -> Sequence[str]:
        """The hosts that the service of a container knows; none while its own node doesn't answer yet."""
        answer = self.asked(name, "hosts", "--json")
        return [one["name"] for one in json.loads(answer.stdout)] if answer.returncode == 0 else []

    def picture(self, name: str, folder: Path) -> bytes:
        """One of the deployment `shapes`, always the same."""
        words = ("--prompt", "a red circle", "-p", "steps=2", "-p", "seed=7")
        self.walkgraph(name, "run", "shapes", "text_to_image", *words, "-o", str(folder / "circle.png"))
        return (folder / "circle.png").read_bytes()


def until_serving(service: subprocess.Popen[str]) -> None:
    """Wait until a service, up with `--json`, has told its address."""
    assert service.stdout is not None
    assert any('"url"' in line for line in service.stdout), "the service has ended"


def variables(repository: Path, **more: str) -> dict[str, str]:
    """What all containers get: the programs of the image, and a token for Ray and one for the service."""
    return {
        "PATH": f"{repository / 'docker'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "WALKGRAPH_HOME": "/tmp/home",
        "WALKGRAPH_TOKEN": secrets.token_hex(32),
        "WALKGRAPH_HOST": "0.0.0.0",
        "WALKGRAPH_STUDIO": "false",
        **more,
    }


def far_shapes(host: str, folder: Path) -> str:
    """The file of a placement of `shapes` with one of its decoders on another host."""
    document = {
        "format": "walkgraph/placement@1",
        "name": "far",
        "graph": "shapes",
        "groups": [
            {"nodes": ["*"], "ranks": [0], "memory": "1GiB"},
            {"nodes": ["llm_cfg_text"], "ranks": [1], "memory": "512MiB", "host": host},
        ],
        "ranks": [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cpu"}],
    }
    (folder / "far.json").write_text(json.dumps(document))
    return str(folder / "far.json")


def without_tini(words: Sequence[str]) -> Sequence[str]:
    assert tuple(words[:2]) == ("tini", "--")
    return words[2:]


def containers(
    found: Mapping[str, Container], folder: Path, variables: Mapping[str, str], **aliases: str
) -> Containers:
    """`folder`: for a file of their names. `aliases`: further names of containers."""
    names = {**{name: name for name in found}, **aliases}
    path = folder / "names"
    lines = ("127.0.0.1 localhost", *(f"{found[one].host.address} {name}" for name, one in names.items()))
    path.write_text("".join(f"{line}\n" for line in lines))
    return Containers(found, path, variables)
