"""The steps around the networks of speech in every frame: words into a talker, codes out of it and into a vocoder. On a
GPU each is one launch, where the operations below are five to twenty.

Shape letters: B frames, T rows of a table, W width, V codes of a codebook, C codes of a frame.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Verdicts(NamedTuple):
    """The meaning of a frame's first code, each `[B]`."""

    code: Tensor
    """int64, 0 where none could be chosen."""
    stop: Tensor
    """bool, like those that follow: this frame is the last."""
    derailed: Tensor
    """The speech went on for too long after its last word."""
    finite: Tensor
    """A code could be chosen."""


class Frames(NamedTuple):
    """The codes of a batch of frames."""

    codes: Tensor
    """int64 `[B, C]`"""
    embedding: Tensor
    """`[B, W]`: the sum of the codes' embeddings."""
    finite: Tensor
    """bool `[B]`: all codes but the first could be chosen."""


def spoken_rows(text: Tensor, frame: Tensor, heard: Tensor, rows: Tensor, words: Tensor, pad: int, eos: int) -> Tensor:
    """Words int64 `[B]`, -1 for none, and the last frames `[B, W]` -> the rows `[B, W]` of their sums: a word's is that
    of the table `words`; after the last one comes that of `eos` once, then those of `pad`.

    `heard` float32 `[T, 4]`, of whose rows these are the whole numbers `rows` `[B]`: words so far, and 1 once they have
    ended; the positions that are left out behind the first frame, and again once they are. It is brought up to date."""
    if frame.is_cuda:
        from walkgraph.layers.kernels import speech as kernels

        return kernels.spoken_rows(text, frame, heard, rows, words, pad, eos)
    wide = rows.long()
    kept, silent = heard[wide], text < 0
    end = torch.where(kept[:, 1] > 0, pad, eos)
    heard[wide] = torch.stack([kept[:, 0] + ~silent, kept[:, 1].masked_fill(silent, 1), kept[:, 2], kept[:, 2]], 1)
    return words[torch.where(silent, end, text).clamp(max=len(words) - 1)] + frame


def bar_codes(logits: Tensor, begin: int, eos: int, frame: Tensor, least: Tensor) -> None:
    """Set logits `[B, V]` of codes from `begin` on to -inf, but that of `eos` only where the int64 `[B]` index of the
    frame is below `least` `[B]`."""
    if logits.is_cuda:
        from walkgraph.layers.kernels import speech as kernels

        kernels.bar_codes(logits, begin, eos, frame, least)
        return
    code = torch.arange(logits.shape[1], device=logits.device)
    barred = (code >= begin) & ((code != eos) | (frame < least)[:, None])
    logits.masked_fill_(barred, -torch.inf)


def verdicts(
    token: Tensor, heard: Tensor, rows: Tensor, frame: Tensor, allowed: Tensor, eos: int, after: int
) -> Verdicts:
    """Codes int64 `[B]`, -1 where none could be chosen. `heard` and `rows` as in `spoken_rows`; int64 `[B]` frame: its
    index, and allowed: frames for each word, after which come `after` more; 0 for any number."""
    if token.is_cuda:
        from walkgraph.layers.kernels import speech as kernels

        return Verdicts(*kernels.verdicts(token, heard, rows, frame, allowed, eos, after))
    words, ended = heard[rows.long(), :2].long().unbind(1)
    derailed = (allowed > 0) & (ended > 0) & (words > 0) & (frame >= allowed * words + after)
    # An answer without words has no sound.
    return Verdicts(token.clamp(min=0), (token == eos) | derailed | (words == 0), derailed, token >= 0)


def whole_frames(tokens: Tensor, first: Tensor, table: Tensor) -> Frames:
    """Codes int64 `[B, C]`, below 0 where none could be chosen, which counts as code 0. first `[B, W]`: the embeddings
    of the first codes; table `[(C - 1) * V, W]`: those of all others, code by code. Sums in float32."""
    if tokens.is_cuda:
        from walkgraph.layers.kernels import speech as kernels

        return Frames(*kernels.whole_frames(tokens, first, table))
    codes, others = tokens.clamp(min=0), tokens.shape[1] - 1
    begins = torch.arange(0, len(table), len(table) // others, device=table.device)
    further = table[codes[:, 1:] + begins].sum(1, dtype=torch.float32)
    return Frames(codes, (first + further).to(first.dtype), (tokens[:, 1:] >= 0).all(1))


def frame_rows(codes: Tensor, table: Tensor) -> Tensor:
    """Codes int64 `[..., C]` -> `[..., W]`: the mean of their embeddings, summed in float32. table `[C * V, W]`."""
    if codes.is_cuda:
        from walkgraph.layers.kernels import speech as kernels

        return kernels.frame_rows(codes, table)
    size = codes.shape[-1]
    begins = torch.arange(0, len(table), len(table) // size, device=table.device)
    return table[codes + begins].mean(-2, dtype=torch.float32).to(table.dtype)
