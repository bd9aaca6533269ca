"""A service, a Chromium, and a person in front of it. A page that logs an error, or throws, fails its test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.browser.expecting import set_options
from tests.browser.person import PATIENCE, Person, empty
from tests.support.serving import Service, service, starter

FLAGS = (
    "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --force-color-profile=srgb --use-fake-ui-for-media-stream --use-fake-device-for-media-stream"
).split()
# A page lives for seconds: a sixth of its CPU time went into compiling for speed.
FLAGS.append("--js-flags=--no-opt --no-maglev")
BROWSERS = ("chromium-headless-shell", "chromium")
"""The first has no window to draw, and takes a sixth less of a test's CPU time."""
WINDOW = {"width": 1440, "height": 900}


TWO_RANKS = {
    "format": "walkgraph/placement@1",
    "groups": [
        {"nodes": ["*"], "ranks": [0], "memory": "1GiB"},
        {"nodes": ["llm_cfg_text"], "ranks": [1], "memory": "512MiB"},
    ],
    "ranks": [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cpu"}],
}

set_options(timeout=PATIENCE * 1000)


def browser_path() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Closed after the last test of this folder: until then Playwright's event loop runs in this thread."""
    path = browser_path()
    assert path, "the browser tier needs chromium; `./dev test` installs it where it may"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the starter deployed. Tests edit graphs of their own, or leave of others no more than a layout;
    a file that changes what is deployed has a service of its own."""
    with starter(tmp_path_factory) as found:
        yield found


@pytest.fixture(scope="package")
def across(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service for tests that watch: `shapes` on two ranks; `guided`, the same but for its guidance; `reach`; and
    `synthetic_faults`. For a file whose own `running` gives it on."""
    with service(tmp_path_factory.mktemp("across") / "home") as found:
        found.up("--no-deploy")
        with found.client() as client:
            graph = client.document("graph", "shapes")[0]
            graph["nodes"]["combine_cfg"]["params"]["text_scale"] = "=cfg_text_scale + 1"
            client.deploy("shapes", {**TWO_RANKS, "name": "two", "graph": "shapes"})
            client.deploy({**graph, "name": "guided"}, {**TWO_RANKS, "name": "two", "graph": "guided"})
            for name in ("synthetic_faults", "reach"):
                client.deploy(name)
        for name in ("shapes", "guided", "synthetic_faults", "reach"):
            found.wait_ready(name)
        yield found


@pytest.fixture(scope="package")
def window(chromium: Browser) -> Iterator[BrowserContext]:
    """Shared, so that what pages load is fetched once."""
    clipboard = ["clipboard-read", "clipboard-write"]
    context = chromium.new_context(viewport=WINDOW, permissions=clipboard, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE * 1000)
    yield context
    context.close()


@pytest.fixture
def person(
    window: BrowserContext, running: Service, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Person]:
    """Logged in, on an empty page that keeps still: frames of movements take a processor of their own. The browser
    knows nothing of the tests before, though it is the same tab, unless a test closed it or failed: another tab starts
    a process, which compiles the page anew; that is half of what it takes to open one. Screenshots that a test takes
    lie in its temporary folder, if it doesn't run beside others or if it fails."""
    faults: list[str] = []
    heard = {
        "console": lambda message: faults.extend(_fault(message)),
        "weberror": lambda thrown: faults.append(f"thrown: {thrown.error}"),
    }
    for event, hear in heard.items():
        window.on(event, hear)  # type: ignore[call-overload]
    page = window.pages[0] if window.pages else window.new_page()
    forget(page, running.told["url"])
    found = Person(page, running, tmp_path, alone=not hasattr(request.config, "workerinput"))
    found.log_in()
    yield found
    failed = _failed(request)
    if failed:
        found.alone = True
        found.look("at_the_end")
        # For a report from a machine whose files are gone.
        print(page.url, *page.locator("main, .wg").all_inner_texts(), sep="\n")
    for open_page in window.pages:
        if open_page is not page or failed:
            open_page.close()
    if not page.is_closed():
        found.leave()
        settle(page)
    for event, hear in heard.items():
        window.remove_listener(event, hear)
    window.set_offline(False)
    unexpected = [fault for fault in faults if not any(word in fault for word in found.expected)]
    assert unexpected == []


def settle(page: Page) -> None:
    """Make a tab that a test has left empty look and behave like a new one."""
    page.unroute_all()
    page.mouse.move(0, 0)
    page.set_viewport_size(WINDOW)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")


def forget(page: Page, origin: str) -> None:
    """Clear everything that the browser keeps of this origin, except its cache."""
    # What the tab keeps can be cleared only by a page of this origin.
    empty(page, origin)
    page.evaluate("sessionStorage.clear()")
    kept = "cookies,local_storage,indexeddb,cache_storage,service_workers"
    session = page.context.new_cdp_session(page)
    session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": kept})
    session.detach()
    page.context.clear_cookies()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    report = yield
    if report.when == "call":
        item.stash[_OUTCOME] = report.failed
    return report


_OUTCOME = pytest.StashKey[bool]()


def _failed(request: pytest.FixtureRequest) -> bool:
    return request.node.stash.get(_OUTCOME, True)


def _fault(message: ConsoleMessage) -> list[str]:
    # Streamlit's page asks for its server below the page's own path first.
    guessed = "/_stcore/" in message.location["url"]
    return [f"console: {message.text} ({message.location})"] if message.type == "error" and not guessed else []
