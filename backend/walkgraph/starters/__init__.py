"""Small trained models in the package: the first run on a laptop gives real output, without a download."""

from pathlib import Path


def names() -> list[str]:
    """The starters in the package: folders with a `config.json`."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/config.json"))
