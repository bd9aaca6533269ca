"""Shared by all tiers: the folder of a test determines its tier, and torch uses one thread.

With several processes (`-n`), files that share a service or a browser form a group that runs in one process. The
groups run first, longest first; each quick file is a group by itself and fills the remaining time. No test relies on
having the machine to itself.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent
# Of all modules, before any is imported: asserts of helpers explain themselves too, and optimized Python executes all.
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in TESTS.iterdir() if path.is_dir()))
pytest_plugins = ["tests.safety.plugin"]
# Of services that tests start, too: on full cores, threads that wait for each other take ten times the work's CPU time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Processes of one host send as hosts do: otherwise, UCX would find memory that they share.
os.environ.setdefault("UCX_TLS", "tcp,self")

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
TOGETHER = ("system", "safety", "browser", "gpu")
"""Folders whose files, unless a group has them, are one group: they may share what others of their folder start."""
GROUPS = {
    "browser/editor": "wander canvas keyboard gallery safety",
    "browser/drawing": "shards redraw stream choice step_loop keep open markup keys order map replicas hosts",
    "browser/pages": "between trace call play chat history settings spoken run_drawn approval_step called_task "
    "blueprint files",
    "browser/across": "draw newcomer debug live taps badges film",
    "system/deployments": "deployment choices step_loops steering reliability priority streams steering_fuzz peers "
    "maps nested_calls",
    "system/openai": "chat language turns images realtime speech spoken around",
    "system/documents": "docs readme notebooks ten_minutes",
    "system/starts": "service drain request_way",
    "safety/load": "deploys soak kills connections readers",
    "system/published": "service_openapi service_fuzz socket_fuzz socket_storm",
    "safety/faults": "fault_points store_kills optimized",
    "safety/limits": "overload machine cancels media numbers paths outside rows lock",
    "system/measures": "benchmarks",
    "unit/numbers": "same_numbers",
    "system/outward": "examples agents calls_of_itself calls_outside",
    "system/plain": "spoken_faults scratch task_calls large_values selecting native blueprint_runs nested",
    "system/held": "debugging approvals service_switch kept media",
    "system/surfaces": "tls cli",
    "system/store": "store_postgresql service_store",
    "system/traces": "exports",
    "system/packages": "wheel plugin",
    "system/graphs": "check_fuzz_long",
}
"""Tier and name of a group -> its files, less `test_`. Those that take longest first: of groups, and of their files."""
_PLACES = {
    (group.partition("/")[0], f"test_{stem}"): (place, group)
    for place, (group, stems) in enumerate(GROUPS.items())
    for stem in stems.split()
}
_ORDER = {place: number for number, place in enumerate(_PLACES)}

NUMBERS: dict[str, tuple[float, float, str]] = {
    "schedules": (2_000, 10_000, "simulated worlds that are run"),
    "openapi-cases": (1_000, 2_500, "requests made from the OpenAPI document, in all"),
    "gestures": (7, 100, "what is done at random in the editor"),
    "pipelines": (25, 100, "random graphs of small components"),
    "storm-seconds": (6.0, 60.0, "how long runs are steered at random, in all"),
    "placements": (5, 100, "graphs that are placed at random over eight ranks"),
    "held-rounds": (2, 10, "deployments whose conductor is held at first"),
}
"""Option -> its value at the short and at the long scale, and its meaning."""

# Neither the time of an example nor that of drawing one says anything on a machine that does other work.
for scale, examples in (("short", 25), ("long", 100)):
    settings.register_profile(scale, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--scale", choices=("short", "long"), default="short", help="how many random cases there are")
    for name, (short, long, about) in NUMBERS.items():
        parser.addoption(f"--{name}", type=type(short), help=f"{about}: {short}; at the long scale {long}")
    parser.addoption("--schedule-seed", type=int, default=0, help="the seed of the first of them")
    parser.addoption("--soak-minutes", type=float, help="how long the soak lasts, whatever the scale")


def pytest_configure(config: pytest.Config) -> None:
    scale = config.option.scale
    settings.load_profile(scale)
    for name, (short, long, _) in NUMBERS.items():
        key = name.replace("-", "_")
        if getattr(config.option, key) is None:
            setattr(config.option, key, long if scale == "long" else short)


@pytest.fixture
def storm_seconds(request: pytest.FixtureRequest) -> float:
    return request.config.getoption("--storm-seconds")


@pytest.fixture
def openapi_cases(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--openapi-cases")


@pytest.fixture
def gestures(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--gestures")


@pytest.fixture
def placements(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--placements")


@pytest.fixture
def held_rounds(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--held-rounds")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    # Modules and tests live as long as the process: garbage is not looked for among them, now or later.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        return (yield)
    finally:
        # What a file leaves, such as modules and kept models, lives on. Each full collection of all files after it,
        # which product code asks for too, would look through it.
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


@pytest.hookimpl(tryfirst=True)  # pytest-xdist's own reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.scale == "short":
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    for item in items:
        tier, group, _ = _file(item.path)
        if tier is not None:
            item.add_marker(tier)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: _file(item.path)[2])


@cache
def _file(path: Path) -> tuple[str | None, str, tuple[int, int]]:
    """Return the tier of a file, its group, and its place: that of the group and within it."""
    inside = path.relative_to(TESTS)
    folder, file = inside.parts[0], (inside.parts[0], inside.stem)
    place, group = _PLACES.get(file, (len(GROUPS), folder if folder in TOGETHER else str(inside)))
    return TIERS.get(folder), group, (place, _ORDER.get(file, 0))


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
