"""SNAC's decoder: the reference's numbers, windows that compute only what they keep, noise by place."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from walkgraph.errors import InvalidInput, NotFound
from walkgraph.models.snac.config import SnacConfig
from walkgraph.models.snac.model import SNAC, Noise, Snac, counter_noise, interleaved, load_snac, precision, random_snac

torch.set_num_threads(1)
GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "snac_tiny"
CPU = torch.device("cpu")
FRAME = 2048


@pytest.fixture(scope="module")
def cases() -> dict[str, Tensor]:
    return load_file(GOLDEN / "cases.safetensors")


@pytest.fixture(scope="module")
def published() -> Snac:
    return load_snac(GOLDEN)


@pytest.fixture(scope="module")
def tiny() -> Snac:
    return random_snac("snac-tiny", 3, device=CPU)


def given(cases: dict[str, Tensor]) -> Noise:
    return lambda stage, start, stop: cases[f"noise.{stage}"][:, 0, start:stop]


def off(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def codes_of(config: SnacConfig, frames: int, rows: int = 1, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.codebook_size, (rows, frames * config.frame_codes), generator=generator)


# ── the reference ───────────────────────────────────────────────────────────────────────────────


def test_a_public_checkpoint_sounds_as_the_reference(published: Snac, cases: dict[str, Tensor]) -> None:
    assert off(published.decode(cases["codes"]), cases["silent"]) < 1e-5
    assert off(published.decode(cases["codes"], noise=given(cases)), cases["noisy"]) < 1e-5
    assert off(cases["silent"], cases["noisy"]) > 0.1, "the cases tell noise from silence"
    assert cases["silent"].std() > 0.02, "and are no silence themselves"


def test_the_published_size_and_frames() -> None:
    config = SNAC["snac-24khz"]
    with torch.device("meta"):
        names = Snac(config).state_dict()
    assert sum(tensor.numel() for tensor in names.values()) == 13_121_025
    assert (config.frame_codes, config.frame_samples, config.latent_dim) == (7, FRAME, 768)
    assert names["decoder.model.2.block.1.weight"].shape == (1024, 512, 16)
    assert interleaved((4, 2, 1)) == ((0,), (1, 4), (2, 3, 5, 6))
    assert interleaved((1,)) == ((0,),)
    assert interleaved((8, 4, 2, 1))[1] == (1, 8)


def test_weights_may_be_in_the_older_spelling_or_plain(tmp_path: Path, published: Snac) -> None:
    older = {
        name.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): tensor
        for name, tensor in load_file(GOLDEN / "model.safetensors").items()
    }
    for number, state in enumerate((older, published.state_dict())):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text((GOLDEN / "config.json").read_text())
        save_file(state, folder / "model.safetensors")
        mine = load_snac(folder).state_dict()
        assert all(torch.equal(mine[name], tensor) for name, tensor in published.state_dict().items())


def test_a_checkpoint_that_does_not_fit_says_why(tmp_path: Path) -> None:
    config = json.loads((GOLDEN / "config.json").read_text())
    with pytest.raises(NotFound, match=r"config\.json"):
        load_snac(tmp_path)
    for change, message in (
        ({"attn_window_size": 32}, "attention"),
        ({"decoder_rates": [8, 8, 4, 1]}, "decoder_rates"),
        ({"vq_strides": [4, 3, 1]}, "vq_strides"),
        ({"vq_strides": None}, "describe"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(InvalidInput, match=message):
            load_snac(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(NotFound, match=r"model\.safetensors"):
        load_snac(tmp_path)
    state = load_file(GOLDEN / "model.safetensors")
    bias = state.pop("decoder.model.0.bias")
    for change, message in (
        ({}, "missing"),
        ({"decoder.model.0.bias": bias[:3].clone()}, "requires"),
        ({"x": bias}, "x"),
    ):
        save_file(state | change, tmp_path / "model.safetensors")
        with pytest.raises(InvalidInput, match=message):
            load_snac(tmp_path)


# ── windows ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("noisy", [False, True])
def test_what_a_window_keeps_is_what_the_whole_window_sounds_like(
    published: Snac, cases: dict[str, Tensor], noisy: bool
) -> None:
    noise = given(cases) if noisy else None
    whole = published.decode(cases["codes"], noise=noise)
    for start in range(3):
        for stop in range(start + 1, 4):
            kept = published.decode(cases["codes"], (start, stop), noise)
            torch.testing.assert_close(kept, whole[:, start * FRAME : stop * FRAME], rtol=0, atol=1e-6)


@pytest.mark.parametrize("rates", [(3, 5), (2, 7, 3), (5,), (16, 2)])
def test_any_rates_may_be_cut(rates: tuple[int, ...]) -> None:
    config = replace(SNAC["snac-tiny"], decoder_rates=rates, decoder_dim=8, vq_strides=(2, 1), depthwise=False)
    torch.manual_seed(0)
    model = Snac(config).requires_grad_(False)
    codes = codes_of(config, 30, 2)
    whole = model.decode(codes)
    assert whole.shape == (2, 30 * 2 * math.prod(rates))
    for start, stop in ((0, 1), (7, 8), (10, 14), (29, 30)):
        frame = config.frame_samples
        kept = model.decode(codes, (start, stop))
        torch.testing.assert_close(kept, whole[:, start * frame : stop * frame], rtol=0, atol=1e-6)


def test_a_cut_window_takes_less_than_half_of_the_work() -> None:
    config = SNAC["snac-24khz"]
    with torch.device("meta"):
        model, codes = Snac(config), torch.zeros(1, 28, dtype=torch.int64)
    work: list[int] = []
    for keep in ((0, 4), (1, 2)):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.decode(codes, keep)
        work.append(counter.get_total_flops())
    assert work[1] < 0.5 * work[0], work


def test_three_frames_on_each_side_are_all_that_a_frame_hears(published: Snac) -> None:
    codes = codes_of(published.config, 9)
    whole = published.decode(codes)[:, 4 * FRAME : 5 * FRAME]
    assert off(published.decode(codes[:, 7:56], (3, 4)), whole) < 1e-6
    assert off(published.decode(codes[:, 21:49], (1, 2)), whole) > 1e-6


def test_frames_that_are_not_there_are_refused(tiny: Snac) -> None:
    codes = codes_of(tiny.config, 2)
    for given_codes, keep in ((codes, (0, 3)), (codes, (1, 1)), (codes[:, :13], None), (codes[:, :0], None)):
        with pytest.raises(ValueError, match="no frames"):
            tiny.decode(given_codes, keep)


def test_codes_beyond_the_codebook_wrap(tiny: Snac) -> None:
    codes = codes_of(tiny.config, 1)
    assert torch.equal(tiny.decode(codes), tiny.decode(codes + tiny.config.codebook_size))
    assert torch.equal(tiny.decode(codes), tiny.decode(codes - tiny.config.codebook_size))


# ── noise ───────────────────────────────────────────────────────────────────────────────────────


def test_windows_that_overlap_hear_the_same_noise_in_any_batch(tiny: Snac) -> None:
    seed, other = torch.tensor([5]), torch.tensor([-(2**62) - 9])
    for stage, places in enumerate((32, 256, 1024, 2048)):
        early = counter_noise(tiny.config, seed, torch.tensor([3]))(stage, 0, 2 * places)
        late = counter_noise(tiny.config, torch.cat([other, seed]), torch.tensor([3, 4]))(stage, 0, places)
        assert torch.equal(early[0, places:], late[1])
        assert not torch.equal(late[0], late[1])
    first, second = (counter_noise(tiny.config, seed, torch.tensor([0]))(stage, 0, 256) for stage in (1, 2))
    assert not torch.equal(first, second), "stages draw apart"


def test_noise_is_normal(tiny: Snac) -> None:
    drawn = counter_noise(tiny.config, torch.tensor([1]), torch.tensor([0]))(3, 0, 200_000).double()
    assert drawn.isfinite().all()
    assert abs(drawn.mean()) < 0.01
    assert abs(drawn.std() - 1) < 0.01
    assert abs((drawn**4).mean() - 3) < 0.1
    assert abs((drawn[..., 1:] * drawn[..., :-1]).mean()) < 0.01


def test_precision_is_restored() -> None:
    before = torch.backends.cudnn.allow_tf32
    for tf32 in (True, False):
        with precision(tf32=tf32):
            assert torch.backends.cudnn.allow_tf32 == tf32
        assert torch.backends.cudnn.allow_tf32 == before
