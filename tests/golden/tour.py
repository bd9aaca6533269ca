"""Lines of the code that `docs/extending/tour.md` links to, and the command that updates the links.

python -m tests.golden.tour
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "extending" / "tour.md"
LINK = re.compile(r"\[`(\w+)`\]\((\.\./\.\./\S+\.py)#L(\d+)\)")


def with_lines(text: str) -> str:
    """`text`, each link at the line where the file defines its name. Raises LookupError for a name that it doesn't."""
    return LINK.sub(lambda link: f"[`{link[1]}`]({link[2]}#L{line_of(PAGE.parent / link[2], link[1])})", text)


def line_of(path: Path, name: str) -> int:
    """The line of the only class or function of that name, the outermost if there are several."""
    level: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while level:
        inner = [child for node in level for child in ast.iter_child_nodes(node)]
        for node in inner:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                return node.lineno
        level = inner
    raise LookupError(f"{path.name} defines no {name}")


if __name__ == "__main__":
    PAGE.write_text(with_lines(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
