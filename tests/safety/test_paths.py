"""Names and links that lead out of a folder of weights find nothing and reveal nothing."""

from __future__ import annotations

import os
import random
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.safety.plugin import Figure, Scale
from tests.unit.service.conftest import Running, quiet, serving
from tests.unit.service.fakes import FakeFleet
from tests.unit.service.test_judging import document
from walkgraph.checkpoints import files
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.placement.sizes import weights_folder
from walkgraph.settings import Settings
from walkgraph.store.session import Store

SECRET = "a secret that lies beside the folders of weights"
ODD = (
    "..", ".", "", "/", "//", "~", "%2e%2e", "..%2f..", "..\\..", "\\\\host\\share", "C:\\x", "a\x00b", "x" * 5000, "*",
    "?", "$HOME", "{a,b}", "\u2025", "\uff0e\uff0e", "CON", "a/../..", "./..", "mine/..", "mine/../secret",
    "file:///etc/passwd",
)  # fmt: skip


def names(chance: random.Random, count: int) -> list[str]:
    """Ways out, by steps up and down, plain and encoded."""
    found = list(ODD)
    while len(found) < count:
        parts = [chance.choice(("..", ".", "secret", "mine", "etc/passwd", "%2e%2e", "\u2024\u2024")) for _ in range(4)]
        text = chance.choice(("/", "//", "\\", "/./")).join(parts)
        found.append(chance.choice(("", "/", "./", "../")) + (quote(text) if chance.random() < 0.3 else text))
    return found


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """A root with links of all kinds, and a secret beside it."""
    root, beside = tmp_path / "root", tmp_path / "secret"
    for folder in (root / "mine", root / "linked", beside):
        folder.mkdir(parents=True)
    (beside / "secret.txt").write_text(SECRET)
    (root / "loop").symlink_to(root / "loop")
    (root / "gone").symlink_to(tmp_path / "nowhere")
    (root / "file").symlink_to(beside / "secret.txt")
    (root / "out").symlink_to(beside)
    (root / "up").symlink_to("..")
    (root / "mine" / "ema.safetensors").symlink_to(beside / "secret.txt")
    (root / "mine" / "config.json").symlink_to(beside / "secret.txt")
    (root / "linked" / "ema.safetensors").symlink_to("/dev/zero")
    os.mkfifo(root / "linked" / "config.json")
    return root


@pytest.mark.safety("S6")
def test_no_name_leads_out_of_its_root(roots: Path, figure: Figure) -> None:
    ways = [*names(random.Random(6), 300), "loop", "gone", "file", "out", "up"]
    for name in ways:
        with pytest.raises(NotFound) as refused:
            weights_folder(f"checkpoint:{name}", [roots])
        assert SECRET not in str(refused.value)
    figure("names that lead nowhere", len(ways), at_least=300)


@pytest.mark.safety("S6")
@pytest.mark.parametrize("name", ["mine", "linked"])
def test_what_a_link_leads_to_is_not_told(roots: Path, name: str) -> None:
    with pytest.raises((InvalidInput, NotFound)) as refused:
        files.tensors(weights_folder(f"checkpoint:{name}", [roots]), "ema")
    assert SECRET not in str(refused.value)
    assert str(roots) not in str(refused.value)


@pytest.mark.safety("S6")
async def test_a_service_tells_nothing_of_them(roots: Path, tmp_path: Path, scale: Scale) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    settings = Settings(home=home, studio=False, checkpoint_roots=(roots,))
    Store.open(settings.database).close()
    with quiet():
        async with serving(settings, FakeFleet()) as running:
            for name in [*names(random.Random(7), scale(60, 300)), "loop", "file", "out", "mine", "linked"]:
                await untold(running, name)


async def untold(running: Running, name: str) -> None:
    graph = document("shapes") | {"weights": {"shapes": {"family": "bagel", "source": f"checkpoint:{name}"}}}
    answer = await running.http.post("/api/v1/graphs/check", json=graph)
    assert answer.status_code == 200, answer.text
    deployed = await running.http.put("/api/v1/deployments/x", json={"graph": graph})
    assert deployed.status_code in (400, 404, 409, 422), deployed.text
    for path in (
        f"/api/v1/graphs/{quote(name, safe='')}",
        f"/studio/static/{quote(name)}",
        f"/api/v1/graphs/{name[:99]}",
    ):
        found = await running.anybody.get(quote(path, safe="/%"))
        assert found.status_code in (400, 401, 404), path
        assert SECRET not in found.text
    assert SECRET not in answer.text + deployed.text
