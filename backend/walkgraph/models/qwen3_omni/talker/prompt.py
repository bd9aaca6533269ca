"""The talker's prompt: the user's turns, and the eight positions of the answer before its first word.

Only ids of the user's turns come from the thinker, and projected rows where a turn has sound or pictures. A turn's
positions are the thinker's, moved to where the turn before ended, because what lies between the user's turns (the
system's and earlier answers) is not read. Rows that the prompt of an earlier run had are found by their names.

A prompt may be read in two: the turns into a state that keeps turns alone, and the positions of the answer into a copy
of it. The next turn goes on from the first one, behind which there is no answer.

Shape letters: M rows of the user's turns, W width.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed
from walkgraph.abi.operator import Capture
from walkgraph.abi.states import Placed, Segment, States
from walkgraph.architectures.prompts.captured_prompts import CapturedPrompts, PromptAnswers
from walkgraph.architectures.prompts.paged_prompts import PagedPrompts
from walkgraph.layers.attention.few_attention import supported
from walkgraph.models.qwen3_omni.talker.config import TalkerConfig
from walkgraph.models.qwen3_omni.talker.model import Talker

_FROM, _TO = "@from", "@to"
"""Parameters of a call for a part of a prompt: its rows."""
_OPENING = "opening"
_UNKNOWN = -1
"""The name of a row of which it isn't known what it was computed from."""


class Prefix(NamedTuple):
    """The ids of the answer's positions before its first word."""

    words: tuple[int, ...]
    """Ids of the thinker's vocabulary."""
    codes: tuple[int, ...]
    """Ids of the talker's own vocabulary, added at the last of these positions."""


def prefix_of(config: TalkerConfig, speaker: int) -> Prefix:
    said, codec = config.spoken, config.codec
    codes = (codec.nothink, codec.think_bos, codec.think_eos, speaker, codec.pad)
    return Prefix((*said.opening, *[said.pad] * (len(codes) - 1), said.bos), codes)


class Placement(NamedTuple):
    """The positions of a prompt's rows."""

    positions: Tensor
    """float32 `[M + 8, 3]`"""
    next: float
    """The position of the answer's first frame."""
    ahead: float
    """Positions between that one and the next, which follows the largest of all: a video with sound may have positions
    beyond those of the text behind it."""


def placed(positions: Tensor, extra: int) -> Placement:
    """positions `[M, 3]` on the host: those of pieces that follow each other, each counted from its own start, where
    they are 0 on all axes. `extra`: rows of text behind them."""
    # By NumPy, whose calls are short.
    rows = positions.double().numpy().copy()
    starts, base = np.flatnonzero((rows == 0).all(1)).tolist(), 0.0
    for at, end in zip(starts, [*starts, len(rows)][1:], strict=True):
        rows[at:end] += base
        base = float(rows[end - 1].max()) + 1
    behind = np.repeat(base + np.arange(extra)[:, None], rows.shape[1], 1)
    following = base + extra
    ahead = max(0.0, float(rows.max()) - following) if len(rows) else 0.0
    return Placement(torch.from_numpy(np.concatenate([rows, behind]).astype(np.float32)), following, ahead)


def opens(call: Call) -> bool:
    """True if the positions of the answer are behind the turns of a prompt."""
    return bool(call.params.get(_OPENING, True))


def is_prompt(call: Call) -> bool:
    """A call without any input reads the positions of the answer alone."""
    return call.inputs.get("ids") is not None or all(call.inputs.get(port) is None for port in ("text", "frame"))


class _Unread(NamedTuple):
    """The rows of a prompt that have to be computed."""

    call: Call
    place: Placement
    """The placement of the whole prompt."""
    part: range
    names: Sequence[int] | None
    """As in `Segment.tokens`."""
    span: float


class Prompts:
    """Reads prompts: the rows and positions that follow from the inputs of calls are appended to their states."""

    def __init__(self, network: Talker, words: Tensor, device: torch.device, capture: Capture | None = None) -> None:
        """`words` `[N, W]`: the row of every word."""
        self._network, self._config, self._words, self._device = network, network.config, words, device
        self._media = torch.tensor(self._config.spoken.media, device=device)
        stack = self._config.stack
        served = supported(device, words.dtype, stack.heads, stack.kv_heads, stack.head_dim)
        form = PagedPrompts(self._keep, group=stack.heads // stack.kv_heads, axes=3, what="a spoken prompt")
        self._captured = CapturedPrompts(form, capture if served else None)

    def prefix(self, call: Call) -> Prefix:
        """Raises CallFailed for a speaker that the weights don't have."""
        if not opens(call):
            return Prefix((), ())
        known, asked = self._config.speakers, str(call.params["speaker"]).lower()
        if asked not in known:
            raise CallFailed(
                f"there is no speaker `{asked[:40]}`; choose one of {', '.join(sorted(known))}", code="invalid_input"
            )
        return prefix_of(self._config, known[asked])

    def read(self, calls: Sequence[Call], states: States) -> None:
        """Append the prompts of calls, without the rows that others have computed."""
        asked: list[_Unread] = []
        for call in calls:
            part, place = self.part(call), self.placed(call)
            # The counter moves with the last row of all, as rows of pictures share positions.
            span = place.next if part.stop == len(place.positions) else 0.0
            names, key = self.names(call, part), call.states["kv"]
            found = 0 if names is None else states.reuse(key, names, answered=False, span=span)
            if found < len(part):
                asked.append(_Unread(call, place, part[found:], None if names is None else names[found:], span))
        if asked:
            self._append(asked, states)

    def _append(self, asked: Sequence["_Unread"], states: States) -> None:
        rows, positions, segments = list[Tensor](), list[Tensor](), list[Segment]()
        numbers = torch.arange(sum(len(one.part) for one in asked), device=self._device)
        for one, mine in zip(asked, numbers.split([len(one.part) for one in asked]), strict=True):
            key, here = one.call.states["kv"], slice(one.part.start, one.part.stop)
            rows.append(self.rows(one.call)[here])
            positions.append(one.place.positions[here] + states.place(key))
            segments.append(Segment(state=key, rows=mine, mode="causal", span=one.span, tokens=one.names))
        attend, x, at = states.attend(segments), torch.cat(rows), torch.cat(positions)
        if self._captured.read(x, at.flatten().tolist(), attend.causal()) is None:
            self._network.keep(x, self._on_device(at), attend.placed())
        states.commit(attend)

    def _keep(self, x: Tensor, positions: Tensor, ends: Tensor, to: Placed) -> PromptAnswers:
        self._network.keep(x, positions, to)
        return PromptAnswers()

    def part(self, call: Call) -> range:
        """The rows of a prompt that a call appends: all of them, or those of its part."""
        return range(int(call.params.get(_FROM, 0)), int(call.params.get(_TO, self._count(call))))

    def ends(self, call: Call) -> bool:
        """True if the part of a prompt that a call appends is the last one."""
        return self.part(call).stop == self._count(call)

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        """Calls for parts of at most this many rows."""
        part = self.part(call)
        return [
            replace(call, params={**call.params, _FROM: at, _TO: min(at + rows, part.stop)})
            for at in range(part.start, part.stop, rows)
        ]

    def names(self, call: Call, part: range) -> Sequence[int] | None:
        """Numbers that determine the keys and values of these rows, with those before them; None for a prompt whose ids
        the host doesn't have, or with media of which it isn't known what they were computed from."""
        prefix = self.prefix(call)
        ids = () if call.inputs.get("ids") is None else call.numbers("ids")
        if ids is None:
            return None
        if not set(self._config.spoken.media).isdisjoint(ids):
            named = call.numbers("names")
            if named is None or len(named) != len(ids) or _UNKNOWN in named or call.inputs.get("positions") is None:
                return None
            ids = named
        plain = len(prefix.words) - len(prefix.codes)
        codes = (*[-1] * (len(ids) + plain), *prefix.codes)
        # The name of a row of media is below zero, so it is none of these.
        words = zip((*ids, *prefix.words), codes, strict=True)
        return [word + (code + 1 << 32) if word >= 0 else word for word, code in words][part.start : part.stop]

    def rows(self, call: Call) -> Tensor:
        """`[M + 8, W]`. Raises CallFailed for inputs that don't fit together."""
        ids, media, prefix = call.inputs.get("ids"), call.inputs.get("media"), self.prefix(call)
        words = self._on_device(torch.tensor(prefix.words, dtype=torch.int64))
        if ids is not None:
            if ids.dim() != 1 or not len(ids):
                raise CallFailed(f"`{call.node}` takes token ids `[m]`, at least one, and got {list(ids.shape)}", "ids")
            words = torch.cat([ids, words])
        rows = self._words[words.clamp(0, len(self._words) - 1)]
        if media is not None and len(media):
            there = torch.isin(words, self._media)
            # Without reading how many there are: row i of the media is that of the i-th such id.
            number = (there.cumsum(0) - 1).clamp(0, len(media) - 1)
            rows = torch.where(there[:, None], media.to(rows.dtype)[number], rows)
        codes = self._network.embed(self._on_device(torch.tensor(prefix.codes, dtype=torch.int64)))
        rows[len(rows) - len(codes) :] += codes
        return rows

    def placed(self, call: Call) -> Placement:
        """Without `positions`, rows follow each other as those of text do."""
        extra, positions, whole = len(self.prefix(call).words), call.near("positions"), _turns(call)
        if positions is None:
            return placed(torch.arange(whole)[:, None].expand(-1, 3), extra)
        if positions.shape != (whole, 3):
            raise CallFailed(f"`{call.node}` takes a position on three axes for each of its `ids`", "positions")
        return placed(positions.cpu(), extra)

    def heard(self, call: Call, before: Tensor | None) -> Tensor:
        """float32 `[4]`: the talker's state `heard` behind a prompt. `before`: as it was behind the turns before this
        one, if the state has some."""
        place = self.placed(call)
        reached = self._on_device(torch.tensor([0, 0, place.ahead, 0], dtype=torch.float32))
        if before is None:
            return reached
        left = self._on_device(torch.tensor([0, 0, 1, 0], dtype=torch.float32)) * (before - place.next)
        return torch.maximum(reached, left)

    def _count(self, call: Call) -> int:
        """Rows of a whole prompt."""
        return _turns(call) + len(self.prefix(call).words)

    def _on_device(self, value: Tensor) -> Tensor:
        """Move to the device without waiting for it."""
        return value.to(self._device, non_blocking=True)


def _turns(call: Call) -> int:
    """Rows of the user's turns in a prompt."""
    ids = call.inputs.get("ids")
    return 0 if ids is None else len(ids)
