"""Runs notebooks in separate kernels and stores their outputs.

python -m tests.support.notebooks    runs all of `examples/` against the service of this home, and writes them
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import nbformat

FOLDER = Path(__file__).parents[2] / "examples"
KEPT = "walkgraph"
"""The entry of a notebook's metadata that says of which cells its outputs are."""
SECONDS = 600


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", 4)


def executed(notebook: Any, home: Path) -> Any:
    """A copy, run in a kernel of this interpreter, against the service of a home."""
    with warnings.catch_warnings():
        # Of the libraries that run kernels.
        warnings.simplefilter("ignore")
        from nbclient import NotebookClient
        from traitlets.config import Config

        found = nbformat.from_dict(nbformat.v4.new_notebook(cells=notebook.cells, metadata=notebook.metadata))
        environment = {
            **os.environ,
            "WALKGRAPH_HOME": str(home),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        }
        # Kernels that start at once would take each other's sockets in one folder. A socket's path has 107 bytes.
        with tempfile.TemporaryDirectory(prefix="wgk") as sockets:
            private = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
            client = NotebookClient(
                found,
                timeout=SECONDS,
                startup_timeout=SECONDS,
                kernel_name="python3",
                coalesce_streams=True,
                config=private,
            )
            client.execute(env=environment)
    return found


def sources(notebook: Any) -> str:
    """A digest of what its cells say."""
    text = "\0".join(f"{cell.cell_type}\0{cell.source}" for cell in notebook.cells)
    return hashlib.sha256(text.encode()).hexdigest()


def kinds(notebook: Any) -> list[list[str]]:
    """The outputs of each code cell: its streams, and the media types of its values."""
    return [
        [
            output.get("name") or ", ".join(sorted(output.get("data", {}))) or output.output_type
            for output in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def texts(notebook: Any) -> str:
    """All that was printed and shown in words."""
    found: list[str] = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            found += [output.get("text", ""), *(str(v) for k, v in output.get("data", {}).items() if "text" in k)]
    return "\n".join(found)


def keep(name: str, home: Path) -> None:
    notebook = executed(read(name), home)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        KEPT: {"sources": sources(notebook)},
    }
    nbformat.write(notebook, FOLDER / f"{name}.ipynb")


def main() -> None:
    from walkgraph.settings import Settings

    for name in sys.argv[1:] or names():
        keep(name, Settings().home)


if __name__ == "__main__":
    main()
