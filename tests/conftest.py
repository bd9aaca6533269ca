"""What every tier shares: a test's tier is the folder it lies in, and torch stays on one thread.

Run in several processes (`-n`), a file's quick tests stay together. Of those that start processes of their own, some
share a service: these come next, a group at a time in each process. The others, and those in a browser, are the last
two groups. No test counts on having the machine to itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.safety.plugin"]

TESTS = Path(__file__).resolve().parent
TIERS = {
    "unit": "unit",
    "kernels": "unit",
    "golden": "unit",
    "contracts": "contract",
    "system": "system",
    "safety": "system",
    "browser": "browser",
    "gpu": "gpu",
}
PATIENT = {
    "openai": "test_around test_chat test_images test_realtime test_speech",
    "documents": "test_docs test_readme",
    "notebooks": "test_notebooks",
    "graphs": "test_check_fuzz_long",
    "document": "test_service_openapi test_service_fuzz test_socket_fuzz",
    "store": "test_store_postgresql test_service_store",
    "packages": "test_wheel test_plugin",
    "commands": "test_cli",
    "surfaces": "test_native test_tls",
    "measures": "test_benchmarks",
    "traces": "test_exports test_nested",
}
"""Group -> files of `tests/system` that share a service, or a part of the way to it; those that take longest first."""
_PATIENT = {stem: (place, group) for place, (group, stems) in enumerate(PATIENT.items()) for stem in stems.split()}

# Neither the time of an example nor that of drawing one says anything on a machine that does other work.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--storm-seconds", type=float, default=10.0, help="how long runs are steered at random, in all")
    parser.addoption("--openapi-cases", type=int, default=5000, help="requests made from the OpenAPI document, in all")
    parser.addoption("--schedules", type=int, default=1000, help="simulated worlds that are run")
    parser.addoption("--schedule-seed", type=int, default=0, help="the seed of the first of them")
    parser.addoption("--soak-minutes", type=float, help="how long the soak lasts, whatever the scale")
    parser.addoption("--held-rounds", type=int, default=2, help="deployments whose conductor is held at first")


@pytest.fixture
def storm_seconds(request: pytest.FixtureRequest) -> float:
    return request.config.getoption("--storm-seconds")


@pytest.fixture
def openapi_cases(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--openapi-cases")


@pytest.fixture
def held_rounds(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--held-rounds")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places: dict[pytest.Item, tuple[int, int]] = {}
    order = list(dict.fromkeys(TIERS.values()))
    for item in items:
        tier = TIERS.get(item.path.relative_to(TESTS).parts[0])
        if tier is not None:
            item.add_marker(tier)
        place, group = -1, item.path.stem
        if tier == "system":
            place, group = _PATIENT.get(item.path.stem, (len(PATIENT), "processes"))
        elif tier in ("browser", "gpu"):
            group = tier
        item.add_marker(pytest.mark.xdist_group(group))
        places[item] = (order.index(tier) if tier is not None else 0, place)
    # The quick tiers first: a slip in a pure core shows before processes are started.
    items.sort(key=places.__getitem__)


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
