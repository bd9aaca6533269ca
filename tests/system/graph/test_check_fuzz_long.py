"""More of the mangled documents that the `unit` tier judges; at the long scale until five thousand have been."""

import pytest

from tests.safety.plugin import Figure, Scale
from tests.unit.graph.test_check_fuzz import DOCUMENTS
from tests.unit.graph.test_check_fuzz import test_mangled_documents as judge

QUICK = 20
"""Seeds that the `unit` tier judges."""


@pytest.mark.safety("S2")
def test_more_mangled_documents(scale: Scale, figure: Figure) -> None:
    seeds = range(QUICK, scale(24, 100))
    for seed in seeds:
        judge(seed)
    figure("mangled documents, judged without a service", DOCUMENTS * len(seeds))
