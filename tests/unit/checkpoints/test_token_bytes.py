"""The bytes of single tokens, in vocabularies of bytes and of characters."""

from __future__ import annotations

import json
from pathlib import Path

from walkgraph.checkpoints.tokenizer import Trained
from walkgraph.starters.shapes.tokens import FILE

TEXT = "a red circle, 漢字 🎈\n\n\té"


def test_tokens_of_bytes_add_up_to_the_text() -> None:
    vocabulary = Trained(FILE)
    ids = vocabulary.encode(TEXT)
    assert b"".join(map(vocabulary.token_bytes, ids)) == TEXT.encode()
    assert vocabulary.token_bytes(vocabulary.eos) == b"<|im_end|>"
    assert vocabulary.token_bytes(10**8) == b""


def test_tokens_of_characters_have_bytes_where_a_character_is_unknown(tmp_path: Path) -> None:
    vocab = {"<s>": 0, "</s>": 1, "\u2581": 2, "a": 3, **{f"<0x{byte:02X}>": 4 + byte for byte in range(256)}}
    model = {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": True, "unk_token": None, "fuse_unk": True}
    added = [
        {"id": at, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for at, name in enumerate(("<s>", "</s>"))
    ]  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "model": model,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
        ]},
    }))  # fmt: skip
    vocabulary = Trained(tmp_path / "tokenizer.json")
    ids = vocabulary.encode("a a é")
    assert b"".join(map(vocabulary.token_bytes, ids)) == "a a é".encode()
    assert vocabulary.token_bytes(0) == b"<s>"
