"""The documentation builds without a warning and without torch, says all that there is, and its code runs."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from PIL import Image

from tests.support.documents import Block, Running, blocks_of
from walkgraph import plugins
from walkgraph.components import catalogue
from walkgraph.errors import ErrorCode
from walkgraph.graph.check import check
from walkgraph.placement import document as placements
from walkgraph.service.http import limits
from walkgraph.settings import Settings

BUILD_SECONDS = 600
"""Some fifteen on an idle core."""

NOT_RUN = {
    ("quickstart.md", "./dev up"): "starts the service that the other blocks speak with",
    ("concepts.md", "walkgraph plan bagel"): "run by tests/system/test_cli.py; here it would cost seconds",
    ("extending/component.md", "pip install"): "needs a package index; tests/system/test_plugin.py does the same",
    ("extending/component.md", "walkgraph deploy"): "needs the plug-in in the service; likewise",
    ("extending/parity.md", "PYTHONPATH"): "needs a published checkout; tests/golden/test_compare.py runs the command",
    ("importing.md", "walkgraph import"): "needs a checkpoint; tests/unit/importing reads small ones",
    ("language.md", "walkgraph import"): "needs a checkpoint; likewise",
    ("calling/shell.md", "walkgraph answer"): "needs a run that waits; tests/unit/cli/test_answer.py has one",
    ("agents.md", "walkgraph deploy"): "loads another deployment; tests/system/test_agents.py does the same",
    ("outside.md", "export WALKGRAPH_CALL_HOSTS"): "starts another service; tests/system/test_calls_outside.py does",
    ("outside.md", "walkgraph secrets"): "needs a key of another service; likewise",
    ("operations/install.md", "pip install"): "needs a package index",
    ("operations/containers.md", "printf"): "needs Docker; tests/contracts/test_compose.py reads the file",
    ("operations/upkeep.md", "walkgraph deploy shapes"): "other blocks use that deployment; test_service_switch.py",
}
"""Page and first words of each block that is not run, and why."""
ALONE = ("extending/ten_minutes.md",)
"""Pages that a test of their own follows and times: tests/system/test_ten_minutes.py."""


@pytest.fixture(scope="module")
def blocks(repository: Path) -> list[Block]:
    folder = repository / "docs"
    pages = sorted(path for path in folder.rglob("*.md") if "_build" not in path.parts)
    return [block for path in pages for block in blocks_of(str(path.relative_to(folder)), path.read_text())]


# ── the site ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built anew, as `./dev docs` does, where torch can't be imported."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "none" / "torch").mkdir(parents=True)
    (folder / "none" / "torch" / "__init__.py").write_text("raise AssertionError('the documentation imports torch')")
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-n", "-W", "--keep-going", "-b", "html"]
    answer = subprocess.run(
        [*command, "-d", folder / "doctrees", repository / "docs", folder / "html"],
        env={**os.environ, "PYTHONPATH": str(folder / "none")},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def told(site: Path) -> dict[str, str]:
    """The text of each page."""
    return {str(path.relative_to(site)): text_of(path.read_text()) for path in site.rglob("*.html")}


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def test_every_setting_limit_error_verb_and_component_is_there(told: dict[str, str]) -> None:
    assert [n for n in Settings.model_fields if f"WALKGRAPH_{n.upper()}" not in told["reference/settings.html"]] == []
    assert [n for n in limits.TABLE if n not in told["reference/limits.html"]] == []
    for page in ("reference/errors.html", "troubleshooting.html"):
        assert [n for n in get_args(ErrorCode) if n not in told[page]] == []
    verbs = plugins.names("walkgraph.cli.verbs")
    assert [n for n in verbs if f"walkgraph {n}" not in told["reference/cli.html"]] == []
    assert [n for n in catalogue() if n not in told["reference/components.html"]] == []


def test_every_route_and_socket_is_there(told: dict[str, str], documented: Running) -> None:
    page = told["reference/rest.html"]
    operations = published(documented)
    assert len(operations) > 60
    assert [one for one in operations if one not in page] == []
    for socket in ("tasks/{deployment}/{task}", "sessions/{deployment}/{task}", "runs/{run}", "telemetry"):
        assert f"/ws/v1/{socket}" in page
    assert "/v1/realtime" in page


def published(running: Running) -> list[str]:
    import httpx

    token = (running.home / ".walkgraph" / "token").read_text().strip()
    url = f"http://{running.address}/openapi.json"
    document: dict[str, Any] = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=30).json()
    return [f"{method.upper()} {path}" for path, ways in document["paths"].items() for method in ways]


def test_a_link_that_leads_nowhere_is_a_warning(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "conf.py").write_text("extensions = ['myst_parser']\nmyst_heading_anchors = 3\n")
    (tmp_path / "index.md").write_text("# A\n\n[b](#nothing-here)\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "-b", "html", tmp_path, tmp_path / "out"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    assert answer.returncode != 0
    assert "nothing-here" in answer.stderr


# ── its code ────────────────────────────────────────────────────────────────────────────────────


def test_the_table_of_what_is_not_run_is_true(blocks: list[Block]) -> None:
    named = [key for block in blocks if (key := left_out(block)) is not None]
    assert sorted(named) == sorted(NOT_RUN)


def left_out(block: Block) -> tuple[str, str] | None:
    found = (key for key in NOT_RUN if key[0] == block.page and block.code.startswith(key[1]))
    return next(found, None) if block.language == "bash" else None


@pytest.mark.timeout(2400)
def test_every_block_runs(documented: Running, blocks: list[Block], tmp_path: Path) -> None:
    """A page's one after the other, with names and a folder of its own."""
    pages: dict[str, list[Block]] = {}
    for block in blocks:
        if block.language in ("bash", "python") and left_out(block) is None and block.page not in ALONE:
            pages.setdefault(block.page, []).append(block)
    assert sum(map(len, pages.values())) >= 40

    printed = documented.pages(pages, tmp_path)
    assert printed["extending/family.md"][-1] == "as the plain form\n"
    assert all(path.stat().st_size for path in (tmp_path / "calling_rest.md").iterdir())
    filmed(printed["quickstart.md"], tmp_path / "quickstart.md")
    watched(printed["operations/watching.md"], tmp_path / "operations_watching.md")


def filmed(printed: list[str], folder: Path) -> None:
    assert any("reached: yes" in text for text in printed)
    for name, most in (("reach", 1 + 24), ("world", 16)):
        with Image.open(folder / f"{name}.png") as film:
            assert 3 <= getattr(film, "n_frames", 1) <= most


def watched(printed: list[str], folder: Path) -> None:
    _, traces, stopped = printed
    assert "text_to_image on shapes: done" in traces
    assert "identical: " in traces
    assert json.loads((folder / "run.perfetto.json").read_text())["traceEvents"]
    assert json.loads((folder / "run.otlp.json").read_text())["resourceSpans"]
    held, why = stopped.splitlines()
    assert held == "held before vae_decoder"
    assert why.startswith("Of its ")
    metrics = (folder / "metrics.txt").read_text()
    for name in ("walkgraph_time_to_first_token_seconds_count", "walkgraph_kv_cache_usage_perc"):
        assert f'{name}{{deployment="shapes"' in metrics


def test_a_block_of_a_page_that_fails_is_named(tmp_path: Path) -> None:
    nowhere = Running(tmp_path, "127.0.0.1:9", dict(os.environ))
    good, bad = Block("p.md", 1, "python", "x = 1\n"), Block("p.md", 5, "python", "x / 0\n")
    with pytest.raises(AssertionError, match=r"p.md:5\nx / 0"):
        nowhere.pages({"p.md": [good, bad]}, tmp_path / "a")
    with pytest.raises(AssertionError, match=r"p.md:9\nexit 3"):
        nowhere.pages({"p.md": [good, Block("p.md", 9, "bash", "exit 3\n")]}, tmp_path / "b")


def test_every_json_block_is_what_it_seems(blocks: list[Block]) -> None:
    documents = [json.loads(block.code) for block in blocks if block.language == "json"]
    assert len(documents) >= 4
    judged = [faults(found) for found in documents]
    assert [found for found in judged if found] == []


def faults(found: dict[str, Any]) -> list[str]:
    match found:
        case {"format": "walkgraph/graph@1"}:
            return [problem.message for problem in check(found, catalogue()).problems]
        case {"format": "walkgraph/placement@1"}:
            return [message for _, message in placements.faults(found)]
        case {"code": code, "type": kind}:
            known = code in get_args(ErrorCode) and kind == f"urn:walkgraph:problem:{code.replace('_', '-')}"
            return [] if known else [f"no problem: {code}"]
        case {"run": str(), "outputs": dict()}:
            return []
    return ["what is it?"]


def test_planted_faults_of_json_are_found() -> None:
    assert faults({"format": "walkgraph/graph@1", "name": "x", "nodse": {}})
    assert faults({"format": "walkgraph/placement@1", "groups": 3})
    assert faults({"code": "bad", "type": "urn:walkgraph:problem:bad"})
    assert faults({})


def test_blocks_are_found_with_their_files() -> None:
    text = "# A\n\n```bash\nls\n```\n\n```{code-block} python\n:caption: a/b.py\n\nx = 1\n```\n"
    assert blocks_of("p.md", text) == [
        Block("p.md", 3, "bash", "ls\n"),
        Block("p.md", 7, "python", "x = 1\n", "a/b.py"),
    ]
