"""Text in and out, by the tokenizer in the folder of a weight set: `tokenizer.json`, or what Qwen2 publishes as
`vocab.json`, `merges.txt` and `tokenizer_config.json`.

Weights drawn at random have no tokenizer: there a token is a byte, and the configuration names the special ones.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers

from walkgraph.errors import InvalidInput, NotFound, Refused
from walkgraph.networks.base import Call, CallFailed, LoadContext, Operator, Outputs, States
from walkgraph.networks.checkpoint import added_tokens
from walkgraph.networks.presets import text_edges

_ENDS = (("<|im_start|>", "<|im_end|>"), ("<|begin_of_text|>", "<|end_of_text|>"), ("<bos>", "<eos>"), ("<s>", "</s>"))
"""Begin and end of a text, by the names that families give them."""
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How a text is cut before its pieces are merged, in Qwen2's vocabularies."""
_CUT = "\ufffd"
_LONGEST_CHARACTER = 4
"""Tokens that one character is cut into at most: a token is a byte at least."""


class Vocabulary(Protocol):
    bos: int
    eos: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens give no text; bytes that are no character give U+FFFD."""
        ...


class Bytes:
    def __init__(self, bos: int, eos: int) -> None:
        self.bos, self.eos = bos, eos

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


class Trained:
    """With `plain`, the name of any added token in a client's text is text; otherwise that of the special ones."""

    def __init__(self, path: Path, *, plain: bool = False) -> None:
        try:
            self._tokenizer = _merged(path.parent) if path.name == "vocab.json" else _whole(path, plain)
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

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


def _whole(path: Path, plain: bool) -> tokenizers.Tokenizer:
    text = path.read_text("utf-8")
    return tokenizers.Tokenizer.from_str(_all_special(text) if plain else text)


def _merged(folder: Path) -> tokenizers.Tokenizer:
    """Byte pairs merged as Qwen2's slow tokenizer does it, with every added token special. Raises `InvalidInput`."""
    vocab: dict[str, int] = json.loads((folder / "vocab.json").read_text("utf-8"))
    lines = (folder / "merges.txt").read_text("utf-8").splitlines()
    pairs = [line.split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    merges = [(left, right) for left, right in pairs]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges))
    tokenizer.normalizer = normalizers.NFC()
    cut = pre_tokenizers.Split(tokenizers.Regex(_PIECES), behavior="isolated")
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, pieces])
    tokenizer.decoder = decoders.ByteLevel()
    for name, number in sorted((added_tokens(folder) or {}).items(), key=lambda token: token[1]):
        tokenizer.add_special_tokens([name])
        if tokenizer.token_to_id(name) != number:
            raise InvalidInput(f"`tokenizer_config.json` numbers `{name}` {number}, which does not follow `vocab.json`")
    return tokenizer


def _all_special(text: str) -> str:
    """A tokenizer's file with every added token marked special: the only ones that its library can leave unread."""
    document = json.loads(text)
    for token in document.get("added_tokens", ()):
        token["special"] = True
    return json.dumps(document)


class TextOperator(Operator):
    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        if Vocabulary not in context.shared:
            context.shared[Vocabulary] = _vocabulary(context)
        return cls(context.shared[Vocabulary])


class Tokenizer(TextOperator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": torch.tensor(self._ids(call), dtype=torch.int64)} for call in calls]

    def _ids(self, call: Call) -> list[int]:
        text = call.inputs["text"]
        if not isinstance(text, str):
            raise CallFailed(f"`{call.node}` takes text", "text", code="invalid_input")
        # A lone surrogate is no character and has no bytes.
        ids = self.vocabulary.encode(text.encode(errors="replace").decode())
        return [self.vocabulary.bos, *ids, self.vocabulary.eos] if call.params["wrap"] else ids


class Start(TextOperator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"token": torch.tensor([self.vocabulary.bos])} for _ in calls]


class Finish(TextOperator):
    """The end token, after the one that is there where that one doesn't end the text (it was cut at its length)."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": self._ids(call.inputs["token"])} for call in calls]

    def _ids(self, token: torch.Tensor) -> torch.Tensor:
        last, eos = token.tolist(), self.vocabulary.eos
        return torch.tensor(last if last == [eos] else [*last, eos], dtype=torch.int64)


class Detokenizer(TextOperator):
    """Text as it comes: what a token adds to the text of those before it, once no character is cut.

    The state holds how many of its ids are text already, then the ids: those last shown, which a decoder may need to
    place a space, and those that wait for the rest of a character.
    """

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": self._text(call, states)} for call in calls]

    def _text(self, call: Call, states: States) -> str:
        kept = states.tensor(call.states["tail"])
        shown, *before = kept.tolist() if kept is not None else [0]
        ids = [*before, *call.inputs["token"].tolist()]
        old, new = self.vocabulary.decode(ids[:shown]), self.vocabulary.decode(ids)
        if new.endswith(_CUT) and len(ids) - shown < _LONGEST_CHARACTER:
            states.put(call.states["tail"], torch.tensor([shown, *ids]))
            return ""
        states.put(call.states["tail"], torch.tensor([len(ids) - shown, *ids[shown:]]))
        return new[len(old) :]


def tokenizer_file(context: LoadContext) -> Path:
    """`tokenizer.json`, or `vocab.json` where the tokenizer is in several files. Raises `NotFound` and `Refused`."""
    if context.folder is None:
        raise Refused("text nodes read the tokenizer of a weight set; name one in the node's `weights`")
    path = context.folder / "tokenizer.json"
    if path.is_file():
        return path
    if all((context.folder / name).is_file() for name in ("vocab.json", "merges.txt", "tokenizer_config.json")):
        return context.folder / "vocab.json"
    raise NotFound(
        f"`{context.folder.name}` has no `{path.name}`, nor `vocab.json`, `merges.txt` and `tokenizer_config.json`; "
        "put the model's tokenizer beside its weights"
    )


def _vocabulary(context: LoadContext) -> Vocabulary:
    if context.random is not None:
        return Bytes(*text_edges(context.random[0]))
    return Trained(tokenizer_file(context))
