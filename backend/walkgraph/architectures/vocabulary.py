"""Text to tokens and back: the tokenizer in a weights folder, or bytes for random weights."""

from collections.abc import Sequence
from typing import Protocol

from walkgraph.abi.operator import LoadContext
from walkgraph.checkpoints.chat_template import Piece, text_of
from walkgraph.checkpoints.files import tokenizer_file
from walkgraph.checkpoints.tokenizer import Trained
from walkgraph.errors import Refused


class Vocabulary(Protocol):
    bos: int
    eos: int

    def encode(self, text: str) -> list[int]: ...

    def prompt(self, text: str) -> list[int]:
        """A text that is to be continued: with the tokens that the tokenizer puts around a text by itself."""
        ...

    def encode_pieces(self, pieces: Sequence[Piece]) -> list[int]:
        """A prompt of special tokens and text. A special token that the vocabulary lacks is text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens give no text; invalid bytes give U+FFFD."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token, which may be a part of a character; the name of a special one."""
        ...


class Bytes:
    def __init__(self, bos: int, eos: int) -> None:
        self.bos, self.eos = bos, eos

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def prompt(self, text: str) -> list[int]:
        return self.encode(text)

    def encode_pieces(self, pieces: Sequence[Piece]) -> list[int]:
        return self.encode(text_of(pieces))

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else f"<{token}>".encode()


def trained(context: LoadContext, *, plain: bool = False) -> Trained:
    """The tokenizer of the weight set's folder. Raises `Refused`, `NotFound` and `InvalidInput`."""
    if context.folder is None:
        raise Refused("text nodes read the tokenizer of a weight set; name one in the node's `weights`")
    return Trained(tokenizer_file(context.folder), plain=plain)
