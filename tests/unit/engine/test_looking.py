"""Samples of values, compared with NumPy and plain loops."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from walkgraph.engine.kv.paged_state import CacheSummary
from walkgraph.engine.probe import previews, value_probe
from walkgraph.engine.probe.value_probe import BINS, PICKED, ProbedValue, ProbeRequest, ValueProbe
from walkgraph.telemetry.events import (
    HeatPreview,
    MediaPreview,
    NumbersPreview,
    PicturePreview,
    SoundPreview,
    Statistics,
    TextPreview,
)

ALL = ProbeRequest(histogram=True, preview=True, record=True)
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
MASK = (1 << 64) - 1


def looked(value: Any, modality: str = "tensor", wants: ProbeRequest = ALL) -> ProbedValue:
    value_probe = ValueProbe()
    value_probe.take("t", value, modality, wants)
    assert value_probe.pending
    (found,) = value_probe.ready()
    assert not value_probe.pending
    assert found.token == "t"
    return found


# ── statistics ──────────────────────────────────────────────────────────────────────────────────


def counted(value: Tensor) -> Statistics:
    """The twin."""
    numbers = value.double().numpy().reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        low = high = mean = std = 0.0
    else:
        low, high, mean, std = finite.min(), finite.max(), finite.mean(), finite.std()
    histogram = [0] * BINS
    for one in finite:
        histogram[min(BINS - 1, int((one - low) / (high - low) * BINS)) if high > low else 0] += 1
    return Statistics(
        count=len(numbers),
        nan=int(np.isnan(numbers).sum()),
        infinite=int(np.isinf(numbers).sum()),
        low=float(low),
        high=float(high),
        mean=float(mean),
        std=float(std),
        histogram=tuple(histogram) if len(numbers) else (0,) * BINS,
    )


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 7), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    seed = draw(st.integers(0, 2**31))
    value = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * draw(st.sampled_from([1, 1e-3, 100]))
    value = value.to(dtype)
    if dtype in FLOATS and value.numel():
        for bad in draw(st.lists(st.sampled_from([math.nan, math.inf, -math.inf]), max_size=4)):
            value.view(-1)[draw(st.integers(0, value.numel() - 1))] = bad
    return value.mT if value.dim() > 1 and draw(st.booleans()) else value


@settings(max_examples=150)
@given(tensors())
def test_statistics_are_those_of_the_numbers(value: Tensor) -> None:
    found, wanted = looked(value), counted(value)
    assert (found.dtype, found.shape) == (str(value.dtype).removeprefix("torch."), tuple(value.shape))
    got = found.statistics
    assert got is not None
    assert (got.count, got.nan, got.infinite, got.every) == (wanted.count, wanted.nan, wanted.infinite, 1)
    assert (got.low, got.high, got.histogram) == (wanted.low, wanted.high, wanted.histogram)
    assert got.mean == pytest.approx(wanted.mean, rel=1e-12, abs=1e-12)
    assert got.std == pytest.approx(wanted.std, rel=1e-9, abs=1e-9)


def test_many_numbers_are_sampled_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(value_probe.SAMPLED, "cpu", 100)
    value = torch.arange(1001.0)
    got = looked(value).statistics
    assert got is not None
    assert (got.count, got.every) == (1001, 11)
    assert got.mean == value[::11].mean()
    assert sum(got.histogram) == len(value[::11])


def test_sums_without_an_end_are_told_as_large_numbers() -> None:
    got = looked(torch.tensor([1.7e308, -1.7e308, 1.7e308], dtype=torch.float64)).statistics
    assert got is not None
    assert all(math.isfinite(one) for one in (got.low, got.high, got.mean, got.std))


def test_without_a_histogram_there_is_none() -> None:
    got = looked(torch.arange(9.0), wants=ProbeRequest(record=True))
    assert got.statistics is not None
    assert got.statistics.histogram == ()
    assert got.preview is None
    assert got.picked == tuple(range(9))


# ── digests ─────────────────────────────────────────────────────────────────────────────────────


def digested(raw: bytes) -> str:
    """The twin: the sum of mixed words of eight bytes, one by one."""
    total = 0
    for place, start in enumerate(range(0, len(raw), 8), 1):
        word = int.from_bytes(raw[start : start + 8].ljust(8, b"\0"), "little")
        word = (word + place * value_probe._PLACE) & MASK
        word = ((word ^ arithmetic(word, 30)) * value_probe._FIRST) & MASK
        word = ((word ^ arithmetic(word, 27)) * value_probe._SECOND) & MASK
        total += word ^ arithmetic(word, 31)
    word = (total + len(raw) * value_probe._PLACE) & MASK
    word = ((word ^ (word >> 30)) * value_probe._FIRST) & MASK
    return f"{word ^ (word >> 31):016x}"


def arithmetic(word: int, by: int) -> int:
    """Shifted right, the sign drawn along."""
    signed = word - (1 << 64) if word >> 63 else word
    return (signed >> by) & MASK


@settings(max_examples=150)
@given(tensors())
def test_digests_are_those_of_all_bytes(value: Tensor) -> None:
    raw = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    assert looked(value).digest == digested(raw)


@pytest.mark.parametrize("words", [1, 2, 3, 1 << 22])
def test_large_tensors_are_digested_in_pieces(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value = torch.arange(1003, dtype=torch.int32)
    monkeypatch.setattr(value_probe, "_WORDS", words)
    assert looked(value).digest == digested(value.numpy().tobytes())


@settings(max_examples=60)
@given(st.integers(2, 60), st.randoms(use_true_random=False))
def test_any_change_of_a_tensor_changes_its_digest(count: int, chance: Any) -> None:
    value = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    first, i, j = looked(value).digest, chance.randrange(count), chance.randrange(count)
    changed = value.clone()
    changed[i] += 1
    swapped = value.clone()
    swapped[[i, j]] = swapped[[j, i]]
    assert looked(changed).digest != first
    assert (looked(swapped).digest == first) == (value[i] == value[j])
    assert looked(value[:-1]).digest != first
    assert looked(torch.cat([value, value.new_zeros(1)])).digest != first


def test_a_slice_that_begins_anywhere_has_the_digest_of_its_copy() -> None:
    value = torch.arange(64, dtype=torch.uint8)
    assert looked(value[3:61]).digest == looked(value[3:61].clone()).digest


def test_values_that_are_no_tensors() -> None:
    for value, dtype, shape in (
        ("héllo", "text", (5,)),
        (b"\x00\x01", "bytes", (2,)),
        (2.5, "number", ()),
        (True, "number", ()),
        ([1, 2, 3], "list", (3,)),
        ([torch.ones(2), torch.ones(3)], "list", (2,)),
        ({"b": torch.ones(2)}, "list", (1,)),
        (None, "absent", ()),
        (CacheSummary(2, 7, 3), "cache", (2, 7, 3)),
    ):
        found = looked(value)
        assert (found.dtype, found.shape) == (dtype, shape)
        assert found.digest == looked(value).digest
        assert bool(found.digest) == (dtype not in ("absent", "cache"))
    assert looked([torch.ones(2), torch.ones(3)]).digest != looked([torch.ones(3), torch.ones(2)]).digest
    assert looked(True).digest != looked(False).digest
    assert looked("a").digest != looked("b").digest


def test_picked_numbers_lie_at_even_distances() -> None:
    value = torch.arange(10_000).view(100, 100)
    assert looked(value).picked == tuple(float(i * 10_000 // PICKED) for i in range(PICKED))
    assert looked(torch.tensor(3, dtype=torch.int8)).picked == (3.0,)
    assert looked(torch.empty(0)).picked == ()
    odd = looked(torch.tensor([math.nan, math.inf])).picked
    assert math.isnan(odd[0])
    assert odd[1] == math.inf


def test_what_was_taken_first_is_given_first() -> None:
    value_probe = ValueProbe()
    for number, value in enumerate((torch.ones(2), "x", [1], torch.zeros(1))):
        value_probe.take(number, value, "tensor", ProbeRequest())
    assert [one.token for one in value_probe.ready()] == [0, 1, 2, 3]


# ── previews ────────────────────────────────────────────────────────────────────────────────────


def pooled(matrix: np.ndarray[Any, Any], rows: int, columns: int) -> np.ndarray[Any, Any]:
    """The twin: means of the areas that a smaller matrix's cells cover."""
    found = np.zeros((rows, columns))
    height, width = matrix.shape
    for i in range(rows):
        for j in range(columns):
            top, end = i * height // rows, -(-(i + 1) * height // rows)
            left, right = j * width // columns, -(-(j + 1) * width // columns)
            found[i, j] = matrix[top:end, left:right].mean()
    return found


def shown(value: Tensor, modality: str) -> Any:
    return looked(value, modality).preview


def levels(share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.clip(np.round(share * 255), 0, 255)


def near(got: bytes, wanted: np.ndarray[Any, Any]) -> None:
    found = np.frombuffer(got, dtype=np.uint8).astype(float)
    assert found.shape == wanted.reshape(-1).shape
    assert np.abs(found - wanted.reshape(-1)).max() <= 1


@pytest.mark.parametrize("shape", [(3, 40, 50), (40, 50, 3), (3, 300, 200), (1, 30, 20), (2, 3, 30, 20)])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0)])
def test_pixels_are_a_small_picture(shape: tuple[int, ...], low: float, high: float) -> None:
    value = torch.rand(shape, generator=torch.Generator().manual_seed(1)) * (high - low) + low
    picture = shown(value, "pixels")
    assert isinstance(picture, PicturePreview)
    one = value[0] if value.dim() == 4 else value
    one = one if one.shape[0] in (1, 3) else one.permute(2, 0, 1)
    assert max(picture.width, picture.height) <= 128
    assert picture.width / picture.height == pytest.approx(one.shape[2] / one.shape[1], rel=0.05)
    channels = one.expand(3, -1, -1).double().numpy()
    small = np.stack([pooled(channel, picture.height, picture.width) for channel in channels], -1)
    near(picture.rgb, levels((small - low) / (high - low)))


def test_bytes_of_pixels_are_a_picture_as_they_are() -> None:
    value = torch.randint(0, 256, (8, 6, 3), dtype=torch.uint8)
    picture = shown(value, "pixels")
    assert isinstance(picture, PicturePreview)
    assert (picture.width, picture.height, picture.rgb) == (6, 8, value.numpy().tobytes())


@pytest.mark.parametrize("shape", [(64, 16), (8, 8, 16), (4, 8, 8), (8, 8, 2)])
def test_latents_are_a_small_picture_each_channel_by_itself(shape: tuple[int, ...]) -> None:
    value = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    picture = shown(value, "latents")
    assert isinstance(picture, PicturePreview)
    assert (picture.width, picture.height) == (8, 8)
    grid = value.view(8, 8, -1) if len(shape) == 2 or shape[0] == 8 else value.permute(1, 2, 0)
    channels = grid[..., :3] if grid.shape[-1] >= 3 else grid[..., :1].expand(-1, -1, 3)
    low, high = channels.amin((0, 1)), channels.amax((0, 1))
    near(picture.rgb, levels(((channels - low) / (high - low)).double().numpy()))


def test_latents_without_a_grid_are_a_matrix() -> None:
    assert isinstance(shown(torch.randn(65, 16), "latents"), HeatPreview)
    assert isinstance(shown(torch.randn(100), "latents"), HeatPreview)


@pytest.mark.parametrize("shape", [(200, 300), (5, 7, 90), (1000,), (64, 64), (3, 50)])
def test_matrices_are_averaged_down(shape: tuple[int, ...]) -> None:
    value = torch.randn(shape, generator=torch.Generator().manual_seed(3)).bfloat16()
    heat = shown(value, "embeddings")
    assert isinstance(heat, HeatPreview)
    matrix = value.double().numpy().reshape(-1, shape[-1])
    assert (heat.rows, heat.columns) == (min(64, matrix.shape[0]), min(64, matrix.shape[1]))
    small = pooled(matrix, heat.rows, heat.columns)
    assert (heat.low, heat.high) == (pytest.approx(small.min(), abs=1e-5), pytest.approx(small.max(), abs=1e-5))
    near(heat.cells, levels((small - small.min()) / (small.max() - small.min())))


def test_of_a_huge_matrix_some_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "_READ", 1000)
    value = torch.arange(100.0)[:, None].expand(100, 80).contiguous()
    heat = shown(value, "features")
    assert isinstance(heat, HeatPreview)
    assert (heat.rows, heat.low, heat.high) == (13, 0.0, 96.0)


@pytest.mark.parametrize(("count", "rate"), [(1000, 24_000), (32_000, 24_000), (40_001, 12_000), (100_000, 12_000)])
def test_sounds_are_short(count: int, rate: int) -> None:
    value = torch.sin(torch.arange(float(count)) / 9) * 1.2
    sound = shown(value, "waveform")
    assert isinstance(sound, SoundPreview)
    assert sound.rate == rate
    assert len(sound.pcm) <= 64 * 1024
    wanted = value.clamp(max=2).numpy()[:48_000]
    if rate == 12_000:
        wanted = wanted[: len(wanted) // 2 * 2].reshape(-1, 2).mean(1)
    found = np.frombuffer(sound.pcm, dtype="<i2")
    assert np.abs(found - np.round(np.clip(wanted, -1, 1) * 32767)).max() <= 1
    assert shown(value[None], "waveform") == sound


@pytest.mark.parametrize("modality", ["tokens", "codes", "actions", "state", "scalar", "flag"])
def test_few_numbers_are_told_as_they_are(modality: str) -> None:
    assert shown(torch.tensor([3, 1, 2]), modality) == NumbersPreview(values=(3, 1, 2), columns=3)
    assert shown(torch.arange(6.0).view(2, 3), modality) == NumbersPreview(values=tuple(range(6)), columns=3)
    assert shown(torch.tensor(True), modality) == NumbersPreview(values=(1.0,), columns=1)
    many = shown(torch.arange(1000), modality)
    assert isinstance(many, NumbersPreview)
    assert many.values == tuple(range(256))


def test_plain_values_are_told_as_they_are() -> None:
    cases: list[tuple[Any, Any]] = [
        ("x" * 3000, TextPreview(text="x" * 2000)),
        (b"PNG", MediaPreview(data=b"PNG", nbytes=3)),
        (b"x" * 70_000, MediaPreview(data=b"", nbytes=70_000)),
        (7, NumbersPreview(values=(7.0,), columns=1)),
        ([1, 2.5], NumbersPreview(values=(1.0, 2.5), columns=2)),
        (["a"], None),
        (None, None),
    ]
    for value, wanted in cases:
        assert looked(value).preview == wanted


@pytest.mark.parametrize("modality", ["pixels", "latents", "waveform", "tokens", "features", ""])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (3, 0, 5), (1, 1, 1), (2, 2, 2, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_every_tensor_can_be_looked_at(modality: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    found = looked(torch.ones(shape).to(dtype), modality)
    assert (found.preview is None) == (0 in shape)


@pytest.mark.parametrize("modality", ["pixels", "latents", "waveform", "features", "tokens"])
def test_numbers_that_are_none_are_shown_all_the_same(modality: str) -> None:
    value = torch.full((3, 90, 80), math.nan)
    value[0, 0, 0], value[0, 0, 1] = math.inf, 2.0
    assert looked(value, modality).preview is not None


@pytest.mark.parametrize("modality", ["pixels", "latents", "waveform", "features", "tokens"])
def test_nothing_is_read_on_the_host_before_it_is_there(modality: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of a device are read once, from memory of the host."""
    seen: list[str] = []
    for name in ("item", "tolist", "__bool__", "__int__", "__float__", "numpy", "cpu", "nonzero"):
        real: Callable[..., Any] = getattr(Tensor, name)
        monkeypatch.setattr(Tensor, name, lambda *a, real=real, name=name, **k: (seen.append(name), real(*a, **k))[1])
    value_probe = ValueProbe()
    value_probe.take("t", torch.rand(3, 90, 80), modality, ALL)
    assert seen == []
    assert value_probe.ready()
    assert seen


def test_what_cannot_be_looked_at_is_told_by_its_shape_and_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **how: Any) -> Tensor:
        raise torch.OutOfMemoryError("no room")

    assert looked(torch.ones(2, 3).to_sparse()) == ProbedValue("t", "float32", (2, 3))
    monkeypatch.setattr(value_probe, "measured", full)
    assert looked(torch.ones(2, 3)) == ProbedValue("t", "float32", (2, 3))


def test_a_list_is_looked_at_by_the_same_streams() -> None:
    value_probe = ValueProbe()
    value_probe.take("t", [torch.ones(2), torch.ones(3)], "list", ALL)
    assert len(value_probe._sides) == 1  # pyright: ignore[reportPrivateUsage]
    assert [one.dtype for one in value_probe.ready()] == ["list"]
