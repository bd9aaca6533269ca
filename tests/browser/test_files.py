"""A person gives a task an archive, and takes the archive that it makes along."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.support.serving import Service
from walkgraph.client import File
from walkgraph.graph import codec
from walkgraph.graph.build import GraphBuilder

NAME = "tidy"


def graph() -> dict[str, Any]:
    """The texts of an archive, trimmed, in another one."""
    g = GraphBuilder(NAME)
    unpack = g.node("unpack", "files.unzip", params={"type": "text"})
    trim = g.node("trim", "text.trim")
    pack = g.node("pack", "files.zip", params={"type": "text"})
    with g.walk("go", folder="bytes") as w:
        w.use(unpack)
        with w.map(unpack["items"], bound="256", width=4):
            w.use(trim)
        w.use(pack)
        w.edge(w.input("folder"), unpack["archive"])
        w.edge(unpack["items"], trim["text"], each=True)
        w.edge(trim["text"], pack["items"], collect="list")
        w.edge(unpack["names"], pack["names"])
        w.edge(pack["archive"], w.out("tidied"))
    with g.task("tidy", outputs=["tidied"]) as t:
        folder = t.input("folder", "bytes", description="A ZIP archive of texts.")
        t.step("go", {"folder": folder})
    return codec.dump(g.build())


def archive() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("in/red.txt", "  roses ")
        file.writestr("blue.txt", "violets\n")
        file.writestr("cover.png", b"\x89PNG\r\n\x1a\n")
    return made.getvalue()


def contents(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name).decode() for name in file.namelist()}


TIDIED = {"in_red.txt": "roses", "blue.txt": "violets"}


@pytest.fixture
def deployed(running: Service) -> Iterator[Service]:
    with running.client() as client:
        client.deploy(graph())
        running.wait_ready(NAME)
        yield running
        client.undeploy(NAME)


def test_an_archive_goes_in_and_comes_out(person: Person, deployed: Service) -> None:
    page = person.page
    person.go(f"playground?deployment={NAME}")
    page.get_by_label("Folder: file").set_input_files(
        {"name": "texts.zip", "mimeType": "application/zip", "buffer": archive()}
    )
    expect(page.get_by_text("texts.zip ·")).to_be_visible()
    page.get_by_role("form").get_by_role("button", name="Run").click()
    made = page.get_by_role("region", name="Tidied")
    expect(made.get_by_text("tidied.zip ·")).to_be_visible()
    person.look("an_archive")
    with page.expect_download() as download:
        made.get_by_role("button", name="Download tidied.zip").click()
    kept = person.keep(download.value)
    assert kept.suffix == ".zip"
    assert contents(kept.read_bytes()) == TIDIED


def test_the_client_takes_files_too(deployed: Service) -> None:
    with deployed.client() as client:
        found = client.task(NAME, "tidy")(folder=archive()).file("tidied")
        assert isinstance(found, File)
        assert contents(found.data) == TIDIED
