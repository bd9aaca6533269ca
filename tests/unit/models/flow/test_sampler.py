"""The flow's schedule, guidance and steps against the formulas, one picture at a time."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from walkgraph.models.flow import sampler


def naive_guide(v: Tensor, vt: Tensor, vi: Tensor, st: float, si: float, renorm: str, low: float) -> Tensor:
    """One picture `[N, C]`, with plain sums."""

    def norm(x: Tensor) -> float:
        return math.sqrt(sum(float(e) ** 2 for e in x.flatten()))

    def shrink(guided: Tensor, per_token: bool) -> Tensor:
        if per_token:
            return torch.stack(
                [g * min(max(norm(w) / (norm(g) + 1e-8), low), 1) for g, w in zip(guided, v, strict=True)]
            )
        return guided * min(max(norm(v) / (norm(guided) + 1e-8), low), 1)

    text = vt + st * (v - vt)
    if renorm == "text_channel":
        text = shrink(text, per_token=True)
        return vi + si * (text - vi)
    both = vi + si * (text - vi)
    return both if renorm == "none" else shrink(both, per_token=renorm == "channel")


@pytest.mark.parametrize("renorm", ["global", "channel", "text_channel", "none"])
@pytest.mark.parametrize("low", [0.0, 0.9])
def test_guidance_equals_its_formula_for_every_picture_of_a_batch(renorm: sampler.Renorm, low: float) -> None:
    torch.manual_seed(0)
    v, vt, vi = torch.randn(3, 2, 5, 4).unbind(0)
    st, si = torch.tensor([4.0, 1.5]), torch.tensor([2.0, 1.2])
    out = sampler.guide(
        v,
        vt,
        vi,
        text_scale=st[:, None, None],
        image_scale=si[:, None, None],
        renorm=renorm,
        renorm_min=low,
    )
    for i in range(2):
        torch.testing.assert_close(out[i], naive_guide(v[i], vt[i], vi[i], float(st[i]), float(si[i]), renorm, low))


def test_a_branch_that_is_off_leaves_no_trace() -> None:
    v, vt, vi = torch.randn(3, 1, 5, 4).unbind(0)
    assert sampler.guide(v, renorm="global") is v
    text = sampler.guide(v, vt, text_scale=3.0, renorm="none")
    torch.testing.assert_close(text, vt + 3 * (v - vt))
    torch.testing.assert_close(sampler.guide(v, vt, vi, text_scale=3.0, renorm="none"), text)


@pytest.mark.parametrize("renorm", ["global", "channel", "text_channel", "none"])
def test_without_the_texts_guidance_there_is_none(renorm: sampler.Renorm) -> None:
    """As in the published code, which looks at the pictures' scale where the text's is above 1."""
    v, vt, vi = torch.randn(3, 2, 5, 4).unbind(0)
    assert torch.equal(sampler.guide(v, None, vi, image_scale=2.0, renorm=renorm), v)
    assert torch.equal(sampler.guide(v, vt, vi, text_scale=1.0, image_scale=2.0, renorm=renorm), v)
    scales = torch.tensor([1.0, 3.0])[:, None, None]
    some = sampler.guide(v, vt, vi, text_scale=scales, image_scale=2.0, renorm=renorm)
    assert torch.equal(some[0], v[0])
    assert not torch.allclose(some[1], v[1])


def test_equal_contexts_make_two_scales_one() -> None:
    """Without a picture in the prompt the image branch equals the full one: 1 + 1.5 (4 - 1) = 5.5."""
    v, vt = torch.randn(2, 1, 5, 4).unbind(0)
    two = sampler.guide(v, vt, v, text_scale=4.0, image_scale=1.5)
    torch.testing.assert_close(two, sampler.guide(v, vt, text_scale=5.5), rtol=1e-4, atol=1e-5)


def test_fifty_times_give_forty_nine_steps_of_which_forty_one_are_guided() -> None:
    times = sampler.timesteps(50, 3.0)
    assert times[0] == 1
    assert times[-1] == 0
    assert times[1] == pytest.approx(3 * (48 / 49) / (1 + 2 * 48 / 49))
    assert int(sampler.inside(times[:-1], 0.4, 1.0).sum()) == 41
    assert sampler.inside(torch.tensor([0.4, 1.0]), 0.4, 1.0).tolist() == [False, True]


def test_exact_velocities_lead_from_noise_to_data() -> None:
    data, noise = torch.randn(2, 6, 4).unbind(0)
    times, x = sampler.timesteps(7, 3.0), noise
    for t, t_next in itertools.pairwise(times):
        here, v = sampler.interpolate(data, noise, t)
        torch.testing.assert_close(x, here, rtol=1e-4, atol=1e-5)
        x = sampler.euler(x, v, t, t_next)
    torch.testing.assert_close(x, data, rtol=1e-4, atol=1e-5)
