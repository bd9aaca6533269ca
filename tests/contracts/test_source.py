"""Forbidden code: one gate over both packages, and a planted violation for every rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts import gate

PACKAGES = ("backend/walkgraph", "editor/walkgraph_editor")

PLANTED = {
    "import pickle": "pickle",
    "from pickle import loads": "pickle",
    "import marshal as m": "marshal",
    "import dill.session": "dill",
    "from cloudpickle import dumps": "cloudpickle",
    "import torch\ntorch.load('x.pt')": "torch.load",
    "from torch import load\nload('x.pt')": "torch.load",
    "import torch as t\nt.load('x.pt')": "torch.load",
    "eval('1')": "eval",
    "exec('x = 1')": "exec",
    "compile('1', '', 'eval')": "compile",
    "__import__('os')": "__import__",
    "import yaml\nyaml.load('a: 1')": "yaml.load",
    "import subprocess\nsubprocess.run('ls', shell=True)": "shell=True",
    "import os\nos.system('ls')": "os.system",
    "import os\nHOME = os.environ['HOME']": "os.environ",
    "from os import environ\nHOME = environ['HOME']": "os.environ",
    "import os\nHOME = os.getenv('HOME')": "os.getenv",
    "from os import getenv as read\nread('HOME')": "os.getenv",
    "import time\ntime.sleep(1)": "time.sleep",
    "from time import sleep\nsleep(1)": "time.sleep",
    "def f(x: int) -> int:\n    assert x > 0\n    return x": "assert",
    "try:\n    pass\nexcept:\n    pass": "except:",
    "def f() -> None:\n    raise NotImplementedError": "NotImplementedError",
}

ALLOWED = (
    "import re\nre.compile('x')",
    "import torch\ntorch.compile(print)",
    "import asyncio\nasyncio.sleep(1)",
    "import yaml\nyaml.safe_load('a: 1')",
    "import subprocess\nsubprocess.run(['ls'], shell=False)",
    "class Model:\n    def eval(self) -> None: ...\nModel().eval()",
    "def check(environ: dict[str, str]) -> None: ...",
)


@pytest.mark.safety("S13")
def test_no_source_file_breaks_a_rule(repository: Path) -> None:
    found = [
        str(finding)
        for path in gate.python_files(repository, *PACKAGES)
        for finding in gate.findings(str(path.relative_to(repository)), path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(("source", "word"), PLANTED.items())
def test_a_planted_violation_is_found(tmp_path: Path, source: str, word: str) -> None:
    package = tmp_path / "backend"
    package.mkdir()
    (package / "planted.py").write_text(source)
    [path] = gate.python_files(tmp_path, "backend")
    found = gate.findings(path.name, path.read_text())
    assert found, source
    assert any(word in finding.text for finding in found)


@pytest.mark.parametrize("source", ALLOWED)
def test_what_only_looks_alike_is_allowed(source: str) -> None:
    assert gate.findings("module.py", source) == []


def test_settings_may_read_the_environment() -> None:
    assert gate.findings("walkgraph/settings.py", "import os\nHOME = os.environ['HOME']") == []


def test_operators_that_describe_a_step_have_it(repository: Path) -> None:
    operators = list((repository / "backend" / "walkgraph" / "models").glob("*/*operators.py"))
    assert operators
    assert {
        f"{path.parent.name}/{path.name}": found
        for path in operators
        if (found := gate.unpaired_steps(path.read_text()))
    } == {}


def test_a_planted_step_without_a_description_is_found() -> None:
    source = "class {name}(Operator):\n    def {method}(self): ...\n"
    for method in ("step", "step_spec"):
        assert gate.unpaired_steps(source.format(name="Lone", method=method)) == ["Lone"]
    assert gate.unpaired_steps(source.format(name="Plain", method="forward")) == []
