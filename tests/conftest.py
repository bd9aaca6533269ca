"""What every tier shares: a test's tier is the folder it lies in, and torch stays on one thread.

Run in several processes (`-n`), a file's quick tests stay together, and all that start processes of their own come last
and one by one: they need the machine to themselves.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
TIERS = {
    "unit": "unit",
    "kernels": "unit",
    "golden": "unit",
    "contracts": "contract",
    "system": "system",
    "browser": "browser",
    "gpu": "gpu",
}
ALONE = ("system", "browser", "gpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--storm-seconds", type=float, default=10.0, help="how long runs are steered at random, in all")
    parser.addoption("--openapi-cases", type=int, default=5000, help="requests made from the OpenAPI document, in all")


@pytest.fixture
def storm_seconds(request: pytest.FixtureRequest) -> float:
    return request.config.getoption("--storm-seconds")


@pytest.fixture
def openapi_cases(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--openapi-cases")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        tier = TIERS.get(item.path.relative_to(TESTS).parts[0])
        if tier is not None:
            item.add_marker(tier)
        item.add_marker(pytest.mark.xdist_group("alone" if tier in ALONE else item.path.stem))
    # The quick tiers first: a slip in a pure core shows before processes are started.
    order = list(dict.fromkeys(TIERS.values()))
    items.sort(
        key=lambda item: min((order.index(mark.name) for mark in item.iter_markers() if mark.name in order), default=0)
    )


@pytest.fixture(autouse=True)
def _one_torch_thread() -> None:
    # Tests that use torch have imported it by now; the others must not pay for it.
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top of the checkout."""
    return TESTS.parent
