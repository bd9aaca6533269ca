"""The thinker's operator: it appends a text, media or one token to a conversation, and answers with the next token.

Rows of media pass the same layers as text, at positions on three axes. A text after a piece has one position a row, and
generated tokens too, from where the piece's last rows end, which may be a fraction.

The talker reads of a piece what was appended, the rows of media after some of the layers, the positions, and names of
the rows: numbers that tell what they were computed from. The rows of media are kept with keys and values, so that a
piece that is found has them. Of the
answer it reads the tokens that were appended, as they come: the last one that is generated never is.

Shape letters: m rows of a piece, n rows of its media, W width.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, Outputs, StateKey
from walkgraph.abi.operator import PRECISION, Capture, Example, LoadContext
from walkgraph.abi.states import CacheShape, Placed, Reused, Reuses, States, reused_piece
from walkgraph.abi.step import Row
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.backbone import LanguageBackbone, fed_ids
from walkgraph.architectures.language.joined import Unread, begins, segments
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.language.precision import at_precision
from walkgraph.architectures.prompts.captured_prompts import PromptAnswers, PromptForm
from walkgraph.architectures.prompts.paged_prompts import PagedPrompts
from walkgraph.architectures.weights import Names, load
from walkgraph.models.qwen3_omni.config import OmniConfig, read_omni
from walkgraph.models.qwen3_omni.parts import STEM, THINKER, own_name
from walkgraph.models.qwen3_omni.presets import omni_config
from walkgraph.models.qwen3_omni.thinker.config import ThinkerConfig
from walkgraph.models.qwen3_omni.thinker.pieces import is_media, names_of, piece_of, ports_of, rows_of
from walkgraph.models.qwen3_omni.thinker.rows import (
    AXES,
    BetweenAll,
    BetweenLayers,
    MediaRows,
    embedded,
    features_of,
    packed_rows,
)

_HIDDEN = "hidden"
_LATER = 512
"""The most rows of media that may wait for what follows them."""
_WHOLE = "@ids"
"""Under this name, the last part of a long text has the whole text."""


class Thinker(LanguageBackbone):
    options: ClassVar[tuple[str, ...]] = (PRECISION,)
    tells_logits: ClassVar[bool] = True
    beside: ClassVar[frozenset[str]] = frozenset({"appended", "names", "positions", _HIDDEN})
    fractions: ClassVar[bool] = True
    outputs: ClassVar[Mapping[str, Row]] = {**LanguageBackbone.outputs, "said": Row((1,), torch.int64)}

    def __init__(
        self,
        model: LanguageModel,
        config: ThinkerConfig,
        device: torch.device,
        dtype: torch.dtype,
        capture: Capture | None = None,
    ) -> None:
        super().__init__(model, (config.marks.im_end,), device, dtype, capture)
        self._config = config
        self._own = secrets.token_bytes(16)
        """Tells the names of this operator's rows from those of others, which may have other weights."""

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        config = context.once(OmniConfig, lambda name, seed: omni_config(name), read_omni).thinker
        model = at_precision(thinker_model(context, config), context)
        return cls(model, config, context.device, context.dtype, context.capture)

    def caches(self) -> Mapping[str, CacheShape]:
        outputs = () if self._config.told is None else ((_HIDDEN, self._config.llm.width),)
        return {slot: replace(shape, outputs=outputs) for slot, shape in super().caches().items()}

    def fed(self, call: Call) -> tuple[str, Tensor]:
        if is_media(call):
            return "ids", self._on_device(piece_of(call, self._config).ids)
        return fed_ids(call)

    def rows(self, call: Call) -> int:
        return rows_of(call) if is_media(call) else super().rows(call)

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        if is_media(call):
            return (call,)
        *parts, last = super().split(call, rows)
        whole = call.inputs.get("ids")
        return (*parts, last if whole is None else replace(last, inputs={**last.inputs, _WHOLE: whole}))

    def examples(self) -> Sequence[Example]:
        texts, rows = super().examples(), torch.zeros(4, self._config.llm.width)
        deepstack = rows.expand(self._config.deepstack, -1, -1)
        picture = {"image": rows, "grid": torch.tensor([1, 2, 2]), "deepstack": deepstack}
        return (*texts, *(Example(inputs=media, params=texts[-1].params) for media in ({"audio": rows}, picture)))

    def answers(self, token: Tensor, fed: Tensor) -> dict[str, Tensor]:
        return {**super().answers(token, fed), "said": fed.masked_fill(self.is_end(fed), -1)[:, None]}

    def prompt_form(self) -> PromptForm:
        llm = self._model.config
        return PagedPrompts(self._read_packed, group=llm.heads // llm.kv_heads, axes=AXES)

    def had(self, call: Call, port: str, states: Reuses) -> Reused:
        if not is_media(call):
            return super().had(call, port, states)
        piece, ports = piece_of(call, self._config), ports_of(call)
        return reused_piece(call, ports, "kv", len(piece.ids), piece.span.next, states, self.beside)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs = super().forward(calls, states)
        texts = [call.inputs.get(_WHOLE, call.inputs.get("ids")) for call in calls]
        most = max([len(text) for text in texts if text is not None], default=0)
        places = torch.arange(most, device=self._device).float()[:, None].expand(-1, AXES)
        for call, given, end in zip(calls, outputs, self._ends(calls, states), strict=True):
            if is_media(call):
                given.update(self._told(call, states, end))
            elif call.inputs.get("ids") is not None:
                ids = call.inputs.get(_WHOLE, call.inputs["ids"])
                given["appended"] = given["names"] = ids
                given["positions"] = places[: len(ids)]
        return outputs

    def _ends(self, calls: Sequence[Call], states: States) -> list[int]:
        """The rows of each call's sequence up to its last one. A batch may have several calls on a sequence."""
        ends, found = dict[StateKey, int](), list[int]()
        for call in reversed(calls):
            key = call.states["kv"]
            found.append(ends.setdefault(key, states.length(key)))
            ends[key] -= self.rows(call)
        return found[::-1]

    def defers(self, call: Call) -> bool:
        if not is_media(call):
            return super().defers(call)
        return rows_of(call) <= _LATER and not call.gives(self.beside)

    def logits(self, unread: Sequence[Unread], states: States) -> Tensor:
        pieces = [piece_of(one.call, self._config) if is_media(one.call) else None for one in unread]
        spans = [None if piece is None else piece.span.next for piece in pieces]
        first = begins(unread, states.place, spans)
        attend = states.attend(segments(unread, self._device, spans))
        rows = MediaRows.of(unread, pieces, first)
        ends, positions, media, visual = (self._on_device(part) for part in rows)
        x, features = self._model.model.embed_tokens(torch.cat([one.ids for one in unread])), features_of(unread)
        if any(pieces):
            x[media] = embedded(unread, pieces).to(x.dtype)
        found = None
        if self._prompts.enabled:
            packed = packed_rows(x, visual, features, self._config.deepstack)
            found = self._prompts.read(packed, rows.positions.flatten().tolist(), attend.causal())
        if found is not None:
            (logits,), told = found
            kept = told[0][media] if told else None
        else:
            between = BetweenLayers(media, visual, features, self._config.told)
            logits, kept = self._model.read_rows(x, positions, ends, attend.placed(), between), between.kept
        if any(pieces) and kept is not None:
            states.keep(attend, {_HIDDEN: kept}, media)
        states.commit(attend)
        return logits

    def _read_packed(self, rows: Tensor, positions: Tensor, ends: Tensor, to: Placed) -> PromptAnswers:
        between = BetweenAll(rows, self._config.llm.width, self._config.told)
        logits = self._model.read_rows(between.first, positions, ends, to, between)
        return PromptAnswers([logits], [] if between.kept is None else [between.kept])

    def _told(self, call: Call, states: States, end: int) -> Outputs:
        """Returns what the talker reads of media that a call has appended, or found, as the rows before `end`."""
        piece, key = piece_of(call, self._config), call.states["kv"]
        count, hidden = len(piece.ids), Outputs()
        if self._config.told is not None and (call.read is None or _HIDDEN in call.read):
            hidden[_HIDDEN] = states.kept(key, _HIDDEN, end - count + piece.marks, end - piece.marks)
        names = self._on_device(names_of(count, states.digest(key, end), self._own))
        return {
            **hidden,
            "appended": self._on_device(piece.ids),
            "names": names,
            "positions": self._on_device(piece.span.rows),
        }


def thinker_model(context: LoadContext, config: ThinkerConfig) -> LanguageModel:
    """The model of a weight set, packed."""
    on: dict[str, Any] = {"device": context.device, "dtype": context.dtype}
    return context.once(
        LanguageModel,
        lambda name, seed: drawn(lambda: LanguageModel(config.llm), seed, **on).pack(),
        lambda folder: load(
            lambda: LanguageModel(config.llm),
            folder,
            STEM,
            names=Names(rename=own_name(THINKER)),
            **on,
            progress=context.progress,
        ).pack(),
    )
