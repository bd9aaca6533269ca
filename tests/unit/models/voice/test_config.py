"""A speaker's config: what is written is read, and what is wrong is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from walkgraph.errors import InvalidInput, NotFound
from walkgraph.models.voice.config import read_voice, voice_json
from walkgraph.models.voice.presets import voice_config

TINY = voice_config("voice-tiny")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(voice_json(TINY))
    assert read_voice(tmp_path) == TINY


def test_a_folder_without_a_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"config\.json"):
        read_voice(tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "other"}, "`format`"),
        ({"vocab": 100}, "twice the codec's 64 codes"),
        ({"units": ["A", "A", " "]}, "each unit once"),
        ({"units": ["A"]}, "`units` must have"),
        ({"units": "A"}, "a list of 1 to"),
        ({"units": ["", " "]}, "a list of 1 to"),
        ({"codec": {"codes": 64, "bands": 8, "rate": 24000, "hop": 320, "top": 12001}}, r"12001 Hz|`codec\.top`"),
        ({"codec": {"codes": 64, "bands": 1, "rate": 24000, "hop": 320, "top": 11000}}, "`codec.bands`"),
        ({"heads": 3}, "`heads` 3"),
        ({"more": 1}, "`more`"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**json.loads(voice_json(TINY)), **change}))
    with pytest.raises(InvalidInput, match=told):
        read_voice(tmp_path)
