"""Every kernel, with the cut that it gets on each kind of GPU, is one that has been compiled for it and fits.

`tests/golden/kernels.txt` has what was compiled. Whatever it lacks is compiled here and must be recorded; nothing else
is, as that takes minutes: `./dev test --kernels`. In processes of their own: in this one, kernels are interpreted.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kernels.everywhere.__main__ import GPUS, recorded
from tests.support.compiling import Compiler
from walkgraph.layers.kernels.gpu import KINDS

SMALL = """
import torch
from dataclasses import replace
from triton.runtime import driver
from triton.runtime.errors import OutOfResources
from tests.kernels.everywhere.cases import CASES
from tests.kernels.everywhere.driver import Imagined
from walkgraph.layers.kernels.gpu import KINDS

driver.set_active(Imagined(KINDS["A100"], 0))
CASES["norms"].run()
print(driver.active.loaded.registers > 0)
driver.set_active(Imagined(replace(KINDS["A100"], shared=16), 1))
try:
    CASES["norms"].run()
except OutOfResources as refused:
    print(refused)
"""


def test_kernels_are_those_that_were_compiled_for_every_gpu() -> None:
    outside = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = (sys.executable, "-m", "tests.kernels.everywhere")
    done = subprocess.run(command, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.xdist_group("kernels/compiled")
def test_a_kernel_that_does_not_fit_is_refused(compiler: Compiler) -> None:
    loaded, refused = compiler.run(SMALL).splitlines()
    assert loaded == "True"
    assert "shared memory" in refused


def test_what_was_compiled_fits_and_uses_matrix_cores_where_it_multiplies() -> None:
    lines = recorded()
    assert {line.gpu for line in lines} == set(GPUS)
    assert len({KINDS[gpu].capability for gpu in GPUS}) == 6
    assert all(int(line.shared) <= KINDS[line.gpu].shared and int(line.registers) <= 255 for line in lines)
    of_linears = {line.cores for line in lines if line.kernel in ("int4_kernel", "tiles_kernel", "attend_kernel")}
    assert "-" not in of_linears
