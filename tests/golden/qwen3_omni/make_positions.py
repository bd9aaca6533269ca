"""Writes the positions that `transformers`, which is no requirement of ours, gives for the prompts of `positions.py`:

    PYTHONPATH=.:backend:FOLDER python tests/golden/qwen3_omni/make_positions.py

`positions.npz` then holds for every prompt its positions float32 `[m, 3]`, its ids int64 `[m]` (which tell the order
of a film's rows), and where generated tokens go on.
"""

import importlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.golden.qwen3_omni import positions as tiny
from tests.golden.qwen3_omni.positions import Piece

WORD, SOUND, PICTURE, VIDEO = 7, 1, 2, 3
_SOUND_ON, _SOUND_OFF, _SEEN_ON, _SEEN_OFF = 4, 5, 8, 9
_SIGNS = {SOUND: "a", PICTURE: "p", VIDEO: "v", _SOUND_ON: "(", _SOUND_OFF: ")", _SEEN_ON: "[", _SEEN_OFF: "]"}
_FRAMES = 100
"""The length of a chunk of sound."""


class Answer(NamedTuple):
    ids: np.ndarray
    positions: np.ndarray
    top: float


def published(pieces: Sequence[Piece]) -> Answer:
    films = any(piece.heard and piece.grid for piece in pieces)
    grids = {
        seen: _grids(piece for piece in pieces if piece.grid and (piece.rate is None) == seen) for seen in (True, False)
    }
    sounds = [_frames(piece.count) for piece in pieces if piece.heard]
    ids = torch.tensor([[one for piece in pieces for one in _ids(piece)]])
    model: Any = importlib.import_module("transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe")
    of = model.Qwen3OmniMoePreTrainedModelForConditionalGeneration
    config = SimpleNamespace(
        image_token_id=PICTURE,
        video_token_id=VIDEO,
        audio_token_id=SOUND,
        vision_start_token_id=_SEEN_ON,
        audio_start_token_id=_SOUND_ON,
        position_id_per_seconds=13,
        audio_config=SimpleNamespace(n_window=_FRAMES // 2),
    )
    own = SimpleNamespace(
        spatial_merge_size=2,
        config=config,
        get_llm_pos_ids_for_vision=lambda *given: of.get_llm_pos_ids_for_vision(None, *given),
    )
    found, delta = of.get_rope_index(
        own,
        ids,
        grids[True],
        grids[False],
        torch.ones_like(ids),
        use_audio_in_video=films,
        audio_seqlens=torch.tensor(sounds) if sounds else None,
        second_per_grids=torch.tensor([2 / piece.rate for piece in pieces if piece.rate is not None]),
    )
    return Answer(ids[0].numpy(), found[:, 0].T.numpy(), float(delta) + ids.shape[1])


def _grids(pieces: Iterator[Piece]) -> torch.Tensor | None:
    """In patches, of which 2 by 2 are a cell."""
    found = [(piece.grid[0], 2 * piece.grid[1], 2 * piece.grid[2]) for piece in pieces if piece.grid]
    return torch.tensor(found) if found else None


def _frames(tokens: int) -> int:
    """Frames of sound that give so many embeddings."""
    return tokens // 13 * _FRAMES + 8 * (tokens % 13)


def _ids(piece: Piece) -> list[int]:
    if piece.grid is None:
        return [_SOUND_ON, *[SOUND] * piece.count, _SOUND_OFF] if piece.heard else [WORD] * piece.count
    if piece.heard:
        return _film(piece)
    cells = int(np.prod(piece.grid))
    return [_SEEN_ON, *[PICTURE if piece.rate is None else VIDEO] * cells, _SEEN_OFF]


def _film(piece: Piece) -> list[int]:
    """The order in which the published processor lays a film's rows."""
    assert piece.grid is not None
    assert piece.rate is not None
    processing: Any = importlib.import_module("transformers.models.qwen3_omni_moe.processing_qwen3_omni_moe")
    own = SimpleNamespace(
        image_processor=SimpleNamespace(merge_size=2),
        video_processor=SimpleNamespace(merge_size=2),
        audio_token="a",
        image_token="p",
        video_token="v",
        vision_bos_token="[",
        vision_eos_token="]",
        audio_bos_token="(",
        audio_eos_token=")",
    )
    [text] = processing.Qwen3OmniMoeProcessor.replace_multimodal_special_tokens(
        own,
        ["[v]"],
        iter([piece.count]),
        iter([]),
        iter([np.array([piece.grid[0], 2 * piece.grid[1], 2 * piece.grid[2]])]),
        video_second_per_grid=iter([2 / piece.rate]),
        use_audio_in_video=True,
        position_id_per_seconds=13.0,
        seconds_per_chunk=2.0,
    )
    signs = {sign: one for one, sign in _SIGNS.items()}
    return [signs[sign] for sign in text]


def main() -> None:
    kept: dict[str, np.ndarray] = {}
    for name, pieces in tiny.PROMPTS.items():
        answer = published(pieces)
        kept |= {
            f"{name}: ids": answer.ids,
            f"{name}: positions": answer.positions,
            f"{name}: top": np.array(answer.top),
        }
    np.savez_compressed(tiny.ANSWERS, allow_pickle=False, **kept)


if __name__ == "__main__":
    main()
