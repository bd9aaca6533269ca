"""Flow times without torch against torch's own, to the last bit."""

import itertools
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from walkgraph.graph.language.float32 import float32, flow_time
from walkgraph.models.flow import sampler

FUSED = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="this processor rounds `linspace` twice where others, GPUs among them, round it once",
)
STEPS = (
    2,
    3,
    4,
    5,
    6,
    8,
    9,
    10,
    11,
    12,
    16,
    17,
    20,
    21,
    24,
    25,
    26,
    30,
    32,
    33,
    40,
    41,
    49,
    50,
    51,
    64,
    65,
    100,
    101,
    200,
)
SHIFTS = (0.1, 0.3, 1.0, 1.5, 2.0, 2.2, 3.0, 4.0, 5.0, 7.7)
BOUNDS = (0.0, 0.1, 0.2, 0.25, 1 / 3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)
INTERVALS = tuple(itertools.combinations(BOUNDS, 2))


def times(steps: int, shift: float) -> list[float]:
    return [flow_time(i, steps, shift) for i in range(steps)]


@given(st.floats(width=64, min_value=-3e38, max_value=3e38))
def test_a_number_is_rounded_to_the_nearest(value: float) -> None:
    assert struct.pack("d", float32(value)) == struct.pack("d", np.float32(value).item())
    assert float32(float32(value)) == float32(value)


def test_what_is_beyond_single_precision_has_no_nearest() -> None:
    with pytest.raises(OverflowError):
        float32(3.5e38)


@FUSED
@given(steps=st.integers(2, 200), shift=st.floats(0.1, 20))
def test_times_are_those_of_a_tensor(steps: int, shift: float) -> None:
    assert times(steps, shift) == sampler.timesteps(steps, shift).tolist()


@FUSED
@pytest.mark.parametrize("shift", SHIFTS)
def test_guidance_acts_in_the_same_steps_as_on_a_tensor(shift: float) -> None:
    """All shifts together: 23,400 settings. Bounds are compared as `float32(low) < time <= float32(high)`."""
    low, high = (np.array([[float32(pair[end])] for pair in INTERVALS]) for end in (0, 1))
    for steps in STEPS:
        here = np.array(times(steps, shift)[:-1])
        found = (low < here) & (here <= high)
        there = sampler.timesteps(steps, shift)[:-1]
        assert found.tolist() == [sampler.inside(there, *pair).tolist() for pair in INTERVALS]


@pytest.mark.parametrize("shift", [0.5, 1.0, 3.0])
def test_times_fall_from_one_to_zero(shift: float) -> None:
    found = times(10, shift)
    assert found[0] == 1
    assert found[-1] == 0
    assert found == sorted(found, reverse=True)


def test_indices_between_and_beyond_the_steps_have_times_too() -> None:
    assert flow_time(0.5, 3, 1.0) == 0.75
    assert flow_time(4, 4, 1.0) == float32(-1 / 3)
