"""The benchmark of badges runs: reported events change the badges on the canvas."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.serving import Service

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_the_benchmark_of_badges_can_be_run(
    chromium: Browser, across: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    badges = importlib.import_module("badges")
    with across.client() as client:
        badges.deploy(client)
        try:
            figures = badges.measure(chromium, client, across.home, "summary", 500, badges.WARM + 1.5)
        finally:
            client.undeploy(badges.NAME, grace=0.0)
            client.delete_document("graph", badges.NAME)
    assert figures["events a second"] == pytest.approx(500, rel=0.1)
    # Every call was shown, each after its frame; how soon is the benchmark's to say, on a quiet machine.
    for what in ("frame", "first", "each"):
        shown = [figures[f"{what}, {share}, ms"] for share in ("p50", "p95", "p99", "most")]
        assert shown == sorted(shown)
        assert shown[0] > 0
        assert shown[-1] < 5000
    assert figures["changes of badges a second"] > 40
