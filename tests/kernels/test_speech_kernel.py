"""The steps around the networks of speech, in one launch each, against the plain operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.compiling import Compiler
from walkgraph.layers.kernels import speech as kernels
from walkgraph.layers.sound import speech

COMPILES = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels import speech

SIZES = "text_stride", "frame_stride", "vocabulary", "pad", "eos", "stride", "codes", "begin", "batch", "after"
WHOLE = "text", "tokens", "token", "allowed", "least", "code"
CASES = {
    speech.spoken_kernel: {"W": 1024, "BLOCK": 1024},
    speech.bar_kernel: {"BLOCK": 256},
    speech.verdicts_kernel: {"BLOCK": 32},
    speech.frames_kernel: {"C": 16, "W": 1024, "PLACES": 16, "BLOCK": 1024},
    speech.rows_kernel: {"C": 16, "W": 1024, "BLOCK": 1024},
}
for kernel, constants in CASES.items():
    constants |= {"PDL": True}
    types = dict.fromkeys(SIZES, "i32") | dict.fromkeys(WHOLE, "*i64") | {"heard": "*fp32", "rows": "*i32"}
    types |= dict.fromkeys(("stop", "derailed", "finite"), "*i1")
    if kernel is not speech.spoken_kernel:
        types["frame"] = "*i64"
    if kernel in (speech.frames_kernel, speech.rows_kernel):
        types["codes"] = "*i64"
    signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"launch_pdl": True})
    print(kernel.__name__)
"""
KIND = {"cuda": torch.bfloat16, "cpu": torch.float16}


def of(device: str, *tensors: Tensor) -> list[Tensor]:
    return [one.to(device, copy=True) for one in tensors]


def test_words_are_read_and_counted_as_by_the_twin(device: str) -> None:
    torch.manual_seed(1)
    words, frame = torch.randn(9, 40).to(KIND[device]), torch.randn(5, 40).to(KIND[device])
    # A word, one past the table, the end of an answer, after its end, and a row's first frame.
    text, rows = torch.tensor([[3], [11], [-1], [-1], [0]]), torch.tensor([4, 0, 2, 6, 1], dtype=torch.int32)
    heard = torch.tensor([[2, 0, 7, 7], [0, 0, 5, 0], [3, 0, 0, 0], [1, 1, 1, 1], [8, 0, 2, 2], [0] * 4, [3, 1, 4, 4]])
    mine, its = heard.float(), heard.float().to(device)
    wanted = speech.spoken_rows(text[:, 0], frame, mine, rows, words, 6, 7)
    given, last, at, table = of(device, text, frame, rows, words)
    found = kernels.spoken_rows(given[:, 0], last, its, at, table, 6, 7)
    torch.testing.assert_close(found.cpu(), wanted, rtol=0.0, atol=0.0)
    assert torch.equal(its.cpu(), mine)
    assert mine[2].tolist() == [3, 1, 0, 0]


@pytest.mark.parametrize("codes", [40, 700])
def test_codes_are_barred_as_by_the_twin(codes: int, device: str) -> None:
    logits, frame, least = torch.randn(3, codes), torch.tensor([0, 4, 5]), torch.tensor([0, 5, 5])
    its, at, fewest = of(device, logits, frame, least)
    speech.bar_codes(logits, 20, 30, frame, least)
    kernels.bar_codes(its, 20, 30, at, fewest)
    assert torch.equal(its.cpu(), logits)
    assert logits[:, 30].isfinite().tolist() == [True, False, True]
    assert not logits[:, 31:].isfinite().any()
    assert logits[:, :20].isfinite().all()


def test_verdicts_are_the_twin_s(device: str) -> None:
    #          code, words, ended, frame, allowed
    cases = [(5, 3, 0, 99, 4), (9, 3, 0, 1, 0), (-1, 3, 0, 1, 0), (5, 0, 1, 1, 0), (5, 3, 1, 22, 4), (5, 3, 1, 21, 4)]
    token, words, ended, frame, allowed = torch.tensor([*cases, (5, 3, 1, 999, 0)]).unbind(1)
    rows = torch.tensor([6, 1, 0, 3, 2, 5, 4], dtype=torch.int32)
    heard = torch.zeros(7, 4)
    heard[rows.long(), 0], heard[rows.long(), 1] = words.float(), ended.float()
    given = token.contiguous(), heard, rows, frame.contiguous(), allowed.contiguous()
    wanted = speech.verdicts(*given, 9, 10)
    found = kernels.verdicts(*of(device, *given), 9, 10)
    for mine, its in zip(wanted, found, strict=True):
        assert torch.equal(its.cpu(), mine)
    assert wanted.stop.tolist() == [False, True, False, True, True, False, False]
    assert wanted.derailed.tolist() == [False] * 4 + [True, False, False]
    assert wanted.finite.tolist() == [True, True, False, True, True, True, True]


def test_codes_are_embedded_as_by_the_twin(device: str) -> None:
    torch.manual_seed(2)
    tokens, first = torch.randint(0, 7, (4, 6)), torch.randn(4, 40).to(KIND[device])
    tokens[1, 3], tokens[2, 0] = -1, -1
    table = torch.randn(5 * 7, 40).to(KIND[device])
    wanted = speech.whole_frames(tokens, first, table)
    codes, embedding, finite = kernels.whole_frames(*of(device, tokens, first, table))
    assert torch.equal(codes.cpu(), wanted.codes)
    torch.testing.assert_close(embedding.cpu(), wanted.embedding, rtol=1e-2, atol=1e-2)
    assert finite.tolist() == wanted.finite.tolist() == [True, False, True, True]


def test_frames_of_a_vocoder_are_means_as_by_the_twin(device: str) -> None:
    torch.manual_seed(3)
    codes, table = torch.randint(0, 7, (2, 3, 4)), torch.randn(4 * 7, 40).to(KIND[device])
    wanted = torch.stack([table.float()[codes[..., at] + 7 * at] for at in range(4)]).mean(0)
    torch.testing.assert_close(speech.frame_rows(codes, table.float()), wanted)
    found = kernels.frame_rows(*of(device, codes, table))
    torch.testing.assert_close(found.cpu().float(), wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.xdist_group("kernels/compiled")
def test_they_compile_for_hopper(compiler: Compiler) -> None:
    names = ["spoken_kernel", "bar_kernel", "verdicts_kernel", "frames_kernel", "rows_kernel"]
    assert compiler.run(COMPILES).split() == names
