"""Digests of values: equal digests mean equal values, to the noise of their dtype.

A value in host memory is digested as it is. One on a device can't be without waiting for it, so its digest is made of
what it was computed from, where that determines it: the operator, the parameters and the digests of the inputs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from walkgraph.abi.calls import Call, Outputs
from walkgraph.abi.operator import Operator
from walkgraph.graph.conversation import Conversation

_SIZE: Final = 16
_LONGEST: Final = 64 << 20
"""The most bytes of a value that are digested."""


class Digests:
    def __init__(self, wanted: Callable[[str], bool] = lambda node: True) -> None:
        """`wanted`: true for nodes whose outputs get digests."""
        self._wanted = wanted
        self._known = WeakIdKeyDictionary()
        self._operators = WeakIdKeyDictionary()
        self._numbers = count()

    def watch(self, calls: Sequence[Call]) -> None:
        """Let calls with states ask for the digests of their inputs; only caches are found by them."""
        for call in calls:
            if call.states:
                call.digest = partial(self._of_input, call)

    def same(self, value: Tensor, copy: Tensor) -> None:
        """Note that a tensor is a copy of another one."""
        if copy is not value and (digest := self._known.get(value)) is not None:
            self._known[copy] = digest

    def _of_call(self, operator: Operator, call: Call) -> bytes | None:
        """The digest of everything that a call's outputs follow from; None if that is not known."""
        if not operator.pure:
            return None
        number = self._operators.get(operator)
        if number is None:
            number = self._operators[operator] = next(self._numbers)
        params = sorted((name, value) for name, value in call.params.items() if name != "seed")
        made = blake2b(repr((number, params)).encode(), digest_size=_SIZE)
        for port in sorted(call.inputs):
            digest = self._of_input(call, port)
            if digest is None:
                return None
            made.update(repr(port).encode() + digest)
        return made.digest()

    def note(self, operator: Operator, call: Call, outputs: Outputs) -> None:
        """Note what the outputs of a deterministic call follow from."""
        if not self._wanted(call.node) or not any(isinstance(value, Tensor) for value in outputs.values()):
            return
        of_call = self._of_call(operator, call) if call.content is None else call.content
        for port, value in outputs.items():
            if of_call is not None and isinstance(value, Tensor):
                self._known[value] = blake2b(of_call + port.encode(), digest_size=_SIZE).digest()

    def _of_input(self, call: Call, port: str) -> bytes | None:
        value = call.host.get(port, call.inputs.get(port))
        if not isinstance(value, Tensor):
            return digest_of(value)
        # Each look into a weak dictionary takes as long as a digest, so there is one.
        digest: bytes | None = self._known.get(value)
        if digest is None and (digest := digest_of(value)) is not None:
            self._known[value] = digest
        return digest


def digest_of(value: Any) -> bytes | None:
    """The digest of a value's contents; None where they aren't in host memory, are too large, too deep, or of an
    unknown kind."""
    try:
        return _digest(value)
    except (RecursionError, TypeError):  # too deep, or with keys that have no order
        return None


def _digest(value: Any) -> bytes | None:
    match value:
        case str() | bytes() | bool() | int() | float():
            return blake2b(_kind(value) + _data(value), digest_size=_SIZE).digest()
        case Tensor() if value.device.type == "cpu" and value.nbytes <= _LONGEST:
            kind = repr((value.dtype, tuple(value.shape))).encode()
            made = blake2b(kind, digest_size=_SIZE, person=b"tensor")
            if value.numel():  # one without values can have strides that bytes can't
                made.update(value.detach().contiguous().flatten().view(torch.uint8).numpy().data)
            return made.digest()
        case list() | tuple():
            return _together(_kind(value), cast("Sequence[Any]", value))
        case Mapping():
            named = cast("Mapping[str, Any]", value)
            return _together(b"mapping", [one for name in sorted(named) for one in (name, named[name])])
        case Conversation():
            parts = [part.value for turn in value.turns for part in turn.parts]
            kinds = [[part.modality for part in turn.parts] for turn in value.turns]
            turns = [(turn.role, turn.tool_calls, turn.tool_call_id) for turn in value.turns]
            return _together(b"messages", [repr((turns, kinds, value.tools)), *parts])
        case _:
            return None


def _kind(value: Any) -> bytes:
    """The name of a value's type, which no other kind's begins with."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}:".encode(errors="surrogatepass")


def _data(value: str | bytes | float) -> bytes:
    """The bytes of a simple value. Those of an integer have no longest length, unlike its decimal digits."""
    match value:
        case str():
            return str.encode(value, errors="surrogatepass")
        case bytes():
            return bytes(value)
        case int():
            return hex(value).encode()
        case _:
            return float.hex(value).encode()


def _together(kind: bytes, values: Sequence[Any]) -> bytes | None:
    """The digest of several values in order."""
    made = blake2b(kind + str(len(values)).encode(), digest_size=_SIZE)
    for value in values:
        digest = _digest(value)
        if digest is None:
            return None
        made.update(digest)
    return made.digest()
