"""The audio encoder of Qwen3-Omni: spectra of any number of sounds to embeddings, 13 per second.

Convolutions see a chunk of a second alone, attention a window of chunks, so a sound's embeddings don't depend on the
others of a batch. The published code pads the last chunk of every sound to the longest chunk of its call; here it is
padded to a whole chunk if its sound has one, and otherwise not: what the published code gives for that sound alone.

Parameter names are the public checkpoint's, below `thinker.audio_tower`.

Shape letters: L frames of a sound, M bands, K chunks, C channels, n embeddings of a sound, R rows (embeddings of all
sounds), W width.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.attention.dense_attention import Attend, BlockAttend
from walkgraph.layers.attention.encoder_attention import EncoderAttention
from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.layers.encoder import EncoderRows, EncoderWeights
from walkgraph.layers.fitted_blocks import FittedBlocks, Projection, fits
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.linear.product import product
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.norm.layer_norm import shifted_norm
from walkgraph.models.qwen3_omni.hearing.config import AudioConfig, halved

CHUNKS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
"""Numbers of chunks that are convolved at once: for every other shape, the library would first choose an algorithm,
which takes 9 ms on an H200. Each chunk takes 6 MB in float32."""
_PERIOD = 10_000.0
Short = Callable[[Tensor, Sequence[int]], Tensor | None]
"""Rows `[R, W]` in windows of these lengths -> `[R, out]`, or None."""
Convolve = Callable[[Tensor], Tensor | None]
"""Chunks float32 `[K, frames, M]` -> `[K, frames / 8, W]`, or None."""
_KERNEL, _STRIDE, _PADDED = 3, 2, 16
"""Kernel and stride of the first convolution, and the width that it is padded to for the library's products."""


class AudioLayer(nn.Module):
    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.self_attn = EncoderAttention(config.width, config.heads)
        self.self_attn_layer_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.fc1 = nn.Linear(config.width, config.hidden)
        self.fc2 = nn.Linear(config.hidden, config.width)
        self.final_layer_norm = nn.LayerNorm(config.width, config.norm_eps)

    def weights(self) -> EncoderWeights:
        return EncoderWeights(
            norm=self.self_attn_layer_norm,
            qkv=self.self_attn.qkv,
            heads=self.self_attn.heads,
            out=self.self_attn.out_proj,
            mlp_norm=self.final_layer_norm,
            fc1=self.fc1,
            fc2=self.fc2,
            activation="gelu",
        )


class AudioEncoder(nn.Module):
    """Serves without gradients, once `pack` has been called."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.config = config
        self.conv2d1 = nn.Conv2d(1, config.channels, 3, 2, padding=1)
        self.conv2d2 = nn.Conv2d(config.channels, config.channels, 3, 2, padding=1)
        self.conv2d3 = nn.Conv2d(config.channels, config.channels, 3, 2, padding=1)
        self.conv_out = nn.Linear(config.channels * config.bands, config.width, bias=False)
        self.layers = nn.ModuleList(AudioLayer(config) for _ in range(config.layers))
        self.ln_post = nn.LayerNorm(config.width, config.norm_eps)
        self.proj1 = nn.Linear(config.width, config.width)
        self.proj2 = nn.Linear(config.width, config.out)
        self._places: dict[torch.device, Tensor] = {}
        self._first: Tensor | None = None
        """The first convolution's weight, `[C, 16]`."""
        self._fitted: FittedBlocks | None = None

    def pack(self) -> Self:
        """Lay out loaded weights so that fewer products read them, and channels are last; this freezes them."""
        with torch.no_grad():
            for conv in (self.conv2d2, self.conv2d3):
                conv.weight.data = conv.weight.data.contiguous(memory_format=torch.channels_last)
            first = self.conv2d1.weight.data.flatten(1)
            self._first = F.pad(first, (0, _PADDED - first.shape[1]))
        for layer in self.layers:
            cast(AudioLayer, layer).self_attn.pack()
        self._fitted = FittedBlocks.of([cast(AudioLayer, layer).weights() for layer in self.layers])
        return self

    def forward(
        self, spectra: Sequence[Tensor], short: Short | None = None, convolve: Convolve | None = None
    ) -> list[Tensor]:
        """Spectra float32 `[L, M]` -> `[n, out]` each. `short`: encodes rows of windows, if they are few; `convolve`:
        does what `convolved` does, for some numbers of chunks."""
        counts = [self.config.tokens(len(spectrum)) for spectrum in spectra]
        reach = self.config.reach
        lengths = [min(reach, count - start) for count in counts for start in range(0, count, reach)]
        x = self._embedded(spectra, convolve)
        made = None if short is None else short(x, lengths)
        if made is None:
            made = self.encoded(x, self._attend(lengths, x))
        return list(made.split(counts))

    def encoded(self, x: Tensor, attend: Attend) -> Tensor:
        """`[R, W]` -> `[R, out]`."""
        if self._fitted is not None and fits(x):
            heads = self.config.heads

            def attended(index: int, qkv: Projection) -> Tensor:
                q, k, v = (part.unflatten(1, (heads, -1)) for part in qkv.rows().chunk(3, 1))
                return attend(index, q, k, v)

            normed = shifted_norm(self._fitted(x, attended), None, self.ln_post)
        else:
            rows = EncoderRows(x)
            for index, layer in enumerate(self.layers):
                rows = rows.layer(index, cast(AudioLayer, layer).weights(), attend, None)
            normed = rows.normed(self.ln_post)
        hidden = product(normed, self.proj1.weight, self.proj1.bias, activation="gelu")
        return product(hidden, self.proj2.weight, self.proj2.bias)

    def _embedded(self, spectra: Sequence[Tensor], convolve: Convolve | None) -> Tensor:
        """Spectra `[L, M]` -> `[R, W]`: chunks of one length are convolved together."""
        groups: dict[int, list[Tensor]] = {}
        for spectrum in spectra:
            chunks = self._chunks(spectrum)
            groups.setdefault(chunks.shape[1], []).append(chunks)
        made = {
            frames: iter(self._all_convolved(_cat(chunks), convolve).split([len(one) for one in chunks]))
            for frames, chunks in groups.items()
        }
        parts: list[Tensor] = []
        for spectrum in spectra:
            frames = len(spectrum)
            rows = next(made[min(frames, self.config.chunk)]).flatten(0, 1)
            parts.append(rows[: self.config.tokens(frames)])
        return _cat(parts)

    def _chunks(self, spectrum: Tensor) -> Tensor:
        """`[L, M]` -> `[K, chunk, M]`, or `[1, L, M]` if it is shorter than a chunk."""
        frames, chunk = len(spectrum), self.config.chunk
        if frames < chunk:
            return spectrum[None]
        whole = F.pad(spectrum, (0, 0, 0, -frames % chunk)) if frames % chunk else spectrum
        return whole.unflatten(0, (-1, chunk))

    def _all_convolved(self, chunks: Tensor, convolve: Convolve | None) -> Tensor:
        """`[K, frames, M]` -> `[K, frames / 8, W]`, with the places of the rows in their chunk."""
        parts, count = list[Tensor](), len(chunks)
        last = count % CHUNKS[-1]
        most = next(size for size in CHUNKS if size >= last) if last else 0
        filled = F.pad(chunks, (0, 0, 0, 0, 0, most - last)) if most > last else chunks
        for some in filled.split(CHUNKS[-1]):
            made = None if convolve is None else convolve(some)
            parts.append(self.convolved(some) if made is None else made)
        return _cat(parts)[:count]

    def convolved(self, chunks: Tensor) -> Tensor:
        """`[K, frames, M]` -> `[K, frames / 8, W]`, with the places of the rows in their chunk."""
        if self._first is None:
            raise RuntimeError(UNPACKED)
        edged = F.pad(chunks.to(self._first.dtype).transpose(1, 2), (1, 1, 1, 1))
        patches = edged.unfold(1, _KERNEL, _STRIDE).unfold(2, _KERNEL, _STRIDE)
        rows = F.pad(patches.flatten(3).flatten(0, 2), (0, _PADDED - _KERNEL**2))
        made = product(rows, self._first, self.conv2d1.bias, activation="gelu")
        x = made.unflatten(0, patches.shape[:3]).permute(0, 3, 1, 2)
        x = F.gelu(self.conv2d3(F.gelu(self.conv2d2(x))))
        x = x.permute(0, 3, 1, 2).flatten(2)
        x = linear(x.flatten(0, 1), self.conv_out.weight).unflatten(0, x.shape[:2])
        return x + self._placed(x.device)[: x.shape[1]].to(x.dtype)

    def _placed(self, device: torch.device) -> Tensor:
        """float32 `[rows of a chunk, W]`, copied to the device once."""
        if device not in self._places:
            self._places[device] = places(halved(self.config.chunk), self.config.width).to(device)
        return self._places[device]

    def _attend(self, lengths: Sequence[int], rows: Tensor) -> Attend:
        """Attention within windows of these lengths."""
        if rows.is_cuda and rows.dtype != torch.float32:
            ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, pin_memory=True)
            blocks = PackedBlocks(ends.to(rows.device, non_blocking=True), max(lengths), self.config.heads)
            return lambda layer, q, k, v: blocks(q, k, v)
        return BlockAttend(lengths)


def _cat(parts: Sequence[Tensor]) -> Tensor:
    """Without a copy of a single part: sounds wait for launches rather than for the GPU."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def places(count: int, width: int) -> Tensor:
    """float32 `[count, width]` on the CPU: sines, then cosines, of 0 to `count` - 1 at rates from 1 to 1 / 10,000."""
    rates = torch.exp(-math.log(_PERIOD) / (width // 2 - 1) * torch.arange(width // 2, dtype=torch.float64))
    angles = torch.arange(count, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1).float()
