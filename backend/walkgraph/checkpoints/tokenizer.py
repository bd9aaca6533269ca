"""The tokenizer of a folder: `tokenizer.json`, or Qwen2's `vocab.json`, `merges.txt` and `tokenizer_config.json`."""

import json
import re
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from walkgraph.checkpoints.chat_template import Piece, SpecialToken, text_of
from walkgraph.checkpoints.fields import read_file
from walkgraph.checkpoints.files import TOKENIZER, TOKENIZER_PARTS
from walkgraph.errors import InvalidInput

_ENDS = (("<|im_start|>", "<|im_end|>"), ("<|begin_of_text|>", "<|end_of_text|>"), ("<bos>", "<eos>"), ("<s>", "</s>"))
"""Names of the tokens that begin and end a text, in several families."""
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2's vocabularies cut a text before its pieces are merged."""
_MOST_BYTES = 256 * 2**20
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""A token of one byte, in vocabularies whose other tokens are characters."""
_PRINTED = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + at): byte for at, byte in enumerate(_OTHERS)}
"""How vocabularies of bytes write them: those that print as they are, the others as characters from 256 on."""


class Trained:
    """A trained tokenizer. In a client's text the names of special tokens are plain text; with `plain`, those of all
    added tokens."""

    def __init__(self, path: Path, *, plain: bool = False) -> None:
        try:
            self._tokenizer = _merged(path.parent) if path.name == TOKENIZER_PARTS[0] else _whole(path, plain)
        except InvalidInput:
            raise
        except Exception as error:  # the library raises bare `Exception` for a file it can't read
            raise InvalidInput(f"`{path.name}` is not a readable tokenizer; export it again") from error
        # A special token's name in a client's text is text like any other.
        self._tokenizer.encode_special_tokens = True
        known = [(self._tokenizer.token_to_id(a), self._tokenizer.token_to_id(b)) for a, b in _ENDS]
        found = next(((a, b) for a, b in known if a is not None and b is not None), None)
        if found is None:
            raise InvalidInput(f"`{path.name}` has none of the begin and end tokens {_ENDS}")
        self.bos, self.eos = found

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def prompt(self, text: str) -> list[int]:
        """A text that is to be continued: with the tokens that this tokenizer puts around a text by itself."""
        return self._tokenizer.encode(text).ids

    def encode_pieces(self, pieces: Sequence[Piece]) -> list[int]:
        """A prompt of special tokens and text. Cut at the tokens if its text has the name of one; otherwise encoded
        whole, as the tokenizer may treat the beginning of a text differently."""
        if not any(name in piece for piece in pieces if isinstance(piece, str) for name in self._added):
            return self._parsing.encode(text_of(pieces), add_special_tokens=False).ids
        found: list[int] = []
        for piece in pieces:
            number = self._tokenizer.token_to_id(piece.text) if isinstance(piece, SpecialToken) else None
            text = piece.text if isinstance(piece, SpecialToken) else piece
            found += self.encode(text) if number is None else [number]
        return found

    @cached_property
    def _added(self) -> tuple[str, ...]:
        return tuple(token.content for token in self._tokenizer.get_added_tokens_decoder().values())

    @cached_property
    def _parsing(self) -> tokenizers.Tokenizer:
        """The same tokenizer; to it the names of special tokens are those tokens."""
        return tokenizers.Tokenizer.from_str(self._tokenizer.to_str())

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token, which may be a part of a character; the name of an added one. Empty for a number that
        is no token."""
        name = self._tokenizer.id_to_token(token)
        if name is None or name in self._added:
            return (name or "").encode()
        if isinstance(self._tokenizer.decoder, decoders.ByteLevel):
            return bytes(_BYTES[character] for character in name if character in _BYTES)
        byte = _BYTE.fullmatch(name)
        return bytes([int(byte[1], 16)]) if byte else name.replace("\u2581", " ").encode()


def added_tokens(folder: Path) -> dict[str, int] | None:
    """Tokens that aren't pieces of text, by name, from `tokenizer.json` or `tokenizer_config.json`; None without
    either. Raises `InvalidInput`."""
    whole, config = folder / TOKENIZER, folder / TOKENIZER_PARTS[2]
    path = whole if whole.is_file() else config
    if not path.is_file():
        return None
    try:
        document: Any = json.loads(_text(path))
        if path == whole:
            return {str(token["content"]): int(token["id"]) for token in document.get("added_tokens") or ()}
        listed: Any = document.get("added_tokens_decoder") or {}
        return {str(token["content"]): int(key) for key, token in listed.items()}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the added tokens in `{path.name}` are not readable; export it again") from error


def _whole(path: Path, plain: bool) -> tokenizers.Tokenizer:
    text = _text(path)
    return tokenizers.Tokenizer.from_str(_all_special(text) if plain else text)


def _merged(folder: Path) -> tokenizers.Tokenizer:
    """Merge byte pairs like Qwen2's slow tokenizer, with every added token special. Raises `InvalidInput`."""
    vocab: Any = json.loads(_text(folder / TOKENIZER_PARTS[0]))
    if not isinstance(vocab, dict) or not all(type(number) is int for number in cast(dict[str, Any], vocab).values()):
        raise InvalidInput(f"`{TOKENIZER_PARTS[0]}` is not a readable tokenizer; export it again")
    merges = _pairs(folder / TOKENIZER_PARTS[1], cast(dict[str, int], vocab))
    tokenizer = tokenizers.Tokenizer(models.BPE(cast(dict[str, int], vocab), merges))
    tokenizer.normalizer = normalizers.NFC()
    cut = pre_tokenizers.Split(tokenizers.Regex(_PIECES), behavior="isolated")
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, pieces])
    tokenizer.decoder = decoders.ByteLevel()
    for name, number in sorted((added_tokens(folder) or {}).items(), key=lambda token: token[1]):
        tokenizer.add_special_tokens([name])  # pyright: ignore[reportUnknownMemberType]
        if tokenizer.token_to_id(name) != number:
            raise InvalidInput(f"`tokenizer_config.json` numbers `{name}` {number}, which does not follow `vocab.json`")
    return tokenizer


def _pairs(path: Path, vocab: Collection[str]) -> list[tuple[str, str]]:
    """The merges in order. Raises InvalidInput with the number of an invalid line."""
    found: list[tuple[str, str]] = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or line.startswith("#version"):
            continue
        pair = line.split(" ")
        if len(pair) != 2 or not all(piece in vocab for piece in (*pair, "".join(pair))):
            raise InvalidInput(
                f"line {number} of `{path.name}` is not a merge of two "
                f"pieces of `{TOKENIZER_PARTS[0]}`; export both again"
            )
        found.append((pair[0], pair[1]))
    return found


def _text(path: Path) -> str:
    try:
        return read_file(path, _MOST_BYTES).decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"`{path.name}` is not UTF-8; export it again") from None


def _all_special(text: str) -> str:
    """A tokenizer's file with every added token marked special, as its library can skip only those."""
    document = json.loads(text)
    for token in document.get("added_tokens", ()):
        token["special"] = True
    return json.dumps(document)
