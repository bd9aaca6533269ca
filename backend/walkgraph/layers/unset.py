"""Modules that are built for their names and shapes alone; their values come from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def unset() -> Iterator[None]:
    """What is built within lies on `meta`, and nothing is drawn for it."""
    with torch.device("meta"), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    """Skips `torch.nn.init`, whose normal numbers on `meta` import torch's compiler: seconds of each process."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if getattr(func, "__module__", None) == "torch.nn.init":
            return given["tensor"] if "tensor" in given else args[0]
        return func(*args, **given)
