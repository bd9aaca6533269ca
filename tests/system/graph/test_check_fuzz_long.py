"""The same mangled documents as in the `unit` tier, until five thousand have been judged."""

import pytest

from tests.unit.graph.test_check_fuzz import test_mangled_documents as judge


@pytest.mark.parametrize("seed", range(20, 100))
def test_more_mangled_documents(seed: int) -> None:
    judge(seed)
