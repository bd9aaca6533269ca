"""The page *Keys*: a key is made, shown once, and revoked after a confirmation; and the audit log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from walkgraph.client import ProblemError
from walkgraph_editor import session
from walkgraph_editor.views import keys

SCRIPT = "from walkgraph_editor.views import keys\nkeys.page()"
# A test's press runs the whole page, not the dialog alone.
DIALOG = """
from walkgraph_editor import session
from walkgraph_editor.views import keys
keys._secret()
keys._new(session.client())
"""
KEY: dict[str, Any] = {
    "id": "0badcafe",
    "name": "robot",
    "scopes": ["infer"],
    "requests_per_minute": None,
    "concurrent": None,
    "created_at": 1.0,
    "expires_at": None,
    "revoked_at": None,
    "used_at": None,
    "valid": True,
    "running": 0,
}
ENTRY: dict[str, Any] = {
    "id": 1,
    "at": 1.0,
    "caller": "token",
    "caller_name": "",
    "address": "127.0.0.1",
    "action": "key.add",
    "target": "robot",
    "details": {},
    "outcome": "done",
    "reason": "",
}
SECRET = "wg_0badcafe_secret"
Opener = Callable[..., AppTest]


class FakeKeys:
    def __init__(self, *keys: dict[str, Any], entries: int = 0, refusal: ProblemError | None = None) -> None:
        self.listed = list(keys)
        self.entries = entries
        self.refusal = refusal
        self.made: list[dict[str, Any]] = []
        self.revoked: list[str] = []
        self.asked: list[dict[str, Any]] = []

    def keys(self, *, former: bool) -> list[dict[str, Any]]:
        assert former
        if self.refusal is not None:
            raise self.refusal
        return self.listed

    def add_key(self, name: str, scopes: list[str], **limits: Any) -> dict[str, Any]:
        if name == "taken":
            raise ProblemError(422, {"detail": "another key has this name"})
        self.made.append({"name": name, "scopes": scopes, **limits})
        self.listed.append({**KEY, "name": name})
        return {**self.listed[-1], "secret": SECRET}

    def revoke_key(self, id_: str) -> dict[str, Any]:
        self.revoked.append(id_)
        self.listed = [{**key, "valid": False, "revoked_at": 2.0} for key in self.listed]
        return self.listed[0]

    def audit(self, **asked: Any) -> list[dict[str, Any]]:
        self.asked.append(asked)
        return [{**ENTRY, "id": number} for number in range(min(self.entries, asked["limit"]))]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opener:
    def open_with(client: FakeKeys, script: str = SCRIPT) -> AppTest:
        monkeypatch.setattr(session, "client", lambda: client)
        return whole(AppTest.from_string(script, default_timeout=300).run())

    return open_with


def whole(app: AppTest) -> AppTest:
    assert not app.exception
    return app


def press(app: AppTest, label: str) -> AppTest:
    return whole(next(button for button in app.button if button.label == label).click().run())


def test_a_key_is_shown_once(opened: Opener) -> None:
    client = FakeKeys()
    app = opened(client)
    assert app.info[0].value.startswith("There are no keys.")
    app = opened(client, DIALOG)
    app.text_input[0].set_value("robot")
    app.number_input[1].set_value(4)
    next(box for box in app.selectbox if box.label == "Expires").set_value("in a day")
    app = press(app, "Create key")
    assert not app.error
    wanted = {"requests_per_minute": None, "concurrent": 4, "expires_in": 86_400.0}
    assert client.made == [{"name": "robot", "scopes": ["infer"], **wanted}]
    assert [code.value for code in app.code] == [SECRET]
    assert not press(app, "I have copied it").code
    assert opened(client).dataframe[0].value["name"].tolist() == ["robot"]


@pytest.mark.parametrize(("name", "said"), [("", "A key needs a name"), ("taken", "another key has this name")])
def test_a_key_that_cant_be_made_says_why(opened: Opener, name: str, said: str) -> None:
    client = FakeKeys()
    app = opened(client, DIALOG)
    app.text_input[0].set_value(name)
    app = press(app, "Create key")
    assert said in app.error[0].value
    assert client.made == []


def test_former_keys_are_shown_where_somebody_asks(opened: Opener) -> None:
    gone = {**KEY, "name": "old", "valid": False, "expires_at": 5.0}
    app = opened(FakeKeys(KEY, gone))
    assert app.dataframe[0].value["name"].tolist() == ["robot"]
    app = whole(app.toggle[0].set_value(True).run())
    assert app.dataframe[0].value["state"].tolist() == ["valid", "expired"]


def test_who_may_not_is_told_why(opened: Opener) -> None:
    app = opened(FakeKeys(refusal=ProblemError(403, {"detail": "no"})))
    assert "needs the scope `admin`" in app.info[0].value
    assert not app.button
    app = opened(FakeKeys(refusal=ProblemError(429, {"detail": "too many requests"})))
    assert app.error[0].value == "too many requests"


def test_the_log_is_filtered_and_goes_on(opened: Opener) -> None:
    client = FakeKeys(KEY, entries=60)
    app = opened(client)
    assert len(app.dataframe[1].value) == keys.PAGE
    assert app.dataframe[1].value["caller"][0] == "the service's token"
    app = press(app, "Show older entries")
    assert len(app.dataframe[1].value) == 60
    boxes = {box.label: box for box in app.selectbox}
    assert boxes["Caller"].options == ["the service's token", "the studio", "the service itself", "robot"]
    boxes["Caller"].set_value("0badcafe")
    boxes["Action"].set_value("key")
    boxes["Outcome"].set_value("refused")
    boxes["Within"].set_value("a day")
    client.entries = 0
    app = whole(app.run())
    asked = client.asked[-1]
    assert (asked["caller"], asked["action"], asked["outcome"]) == ("0badcafe", "key", "refused")
    assert asked["since"] > 1e9
    assert "matches these filters" in app.info[0].value


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((None, None), "none"),
        ((600, None), "600 requests per minute"),
        ((60, 1), "60 requests per minute, 1 run at once"),
    ],
)
def test_limits_are_told_in_words(limits: tuple[Any, Any], words: str) -> None:
    rate, runs = limits
    assert keys.limits_of({**KEY, "requests_per_minute": rate, "concurrent": runs}) == words  # type: ignore[typeddict-item]


def test_a_key_is_valid_expired_or_revoked() -> None:
    states = [({}, "valid"), ({"expires_at": 9.0}, "expired"), ({"revoked_at": 1.0, "expires_at": 99.0}, "revoked")]
    for more, state in states:
        assert keys.state_of({**KEY, **more}, 10.0) == state  # type: ignore[typeddict-item]
