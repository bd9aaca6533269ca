"""The text of a service error when it is printed."""

from __future__ import annotations

from walkgraph.client import ProblemError


def test_an_error_tells_all_that_is_wrong() -> None:
    faults = [
        {"pointer": "/params/steps", "code": "too_large", "message": "`steps` must be 200 or less"},
        {"pointer": "", "code": "missing", "message": "`prompt` is missing"},
    ]
    error = ProblemError(422, {"detail": "the request is invalid; see `errors`", "errors": faults})
    assert (
        str(error) == "the request is invalid:\n  /params/steps: `steps` must be 200 or less\n  /: `prompt` is missing"
    )
    assert error.detail == "the request is invalid; see `errors`"


def test_what_the_sentence_says_already_is_not_repeated() -> None:
    fault = {"pointer": "/task", "code": "not_found", "message": "there is no task `x`"}
    assert str(ProblemError(404, {"detail": "there is no task `x`", "errors": [fault]})) == "there is no task `x`"
    assert str(ProblemError(404, {"detail": "there are none"})) == "there are none"
