"""The header of W3C Trace Context: accepted and refused values, and the header of the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkgraph.telemetry import traceparent
from walkgraph.telemetry.traceparent import Parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RUN = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-fe", False),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
    ],
)
def test_what_the_standard_allows(header: str, sampled: bool) -> None:
    assert traceparent.parse(header) == Parent(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{'٤' * 32}-{SPAN}-01",
    ],
)
def test_what_it_forbids(header: str | None) -> None:
    assert traceparent.parse(header) is None


@given(
    trace=st.integers(1, 2**128 - 1).map("{:032x}".format),
    span=st.integers(1, 2**64 - 1).map("{:016x}".format),
    sampled=st.booleans(),
)
def test_what_is_written_is_read(trace: str, span: str, sampled: bool) -> None:
    parent = Parent(trace, span, sampled)
    assert traceparent.parse(traceparent.write(parent)) == parent
    own = traceparent.of_run(RUN, parent)
    assert (own.trace, own.sampled) == (trace, sampled)


def test_a_run_without_a_caller_has_a_trace_of_its_own() -> None:
    own = traceparent.of_run(RUN, None)
    assert own == traceparent.of_run(RUN, None)
    assert (own.trace, own.sampled) == (RUN, True)
    for odd in ("0" * 32, "no run"):
        assert traceparent.parse(traceparent.write(traceparent.of_run(odd, None))) is not None
