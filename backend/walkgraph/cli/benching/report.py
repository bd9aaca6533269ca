"""The folder of a report: `results.json`, and a self-contained `report.html`."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from walkgraph.cli.benching import tables
from walkgraph.errors import InvalidInput

EXTRA = "charts need matplotlib: pip install 'walkgraph[report]' and run again"
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #111827; background: #fff; max-width: 1080px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.about { color: #4b5563; margin-top: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #e5e7eb; text-align: right; white-space: nowrap; }
th { color: #4b5563; font-weight: 600; font-size: 0.85rem; }
th:first-child, td:first-child, table.facts td, table.facts th { text-align: left; }
.named td:nth-child(2), .named th:nth-child(2) { text-align: left; }
table.facts td { white-space: normal; overflow-wrap: anywhere; }
code { background: #f3f4f6; padding: 0.1rem 0.3rem; border-radius: 4px; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 1.5rem; margin-top: 2rem; }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: 0.3rem; } svg { width: 100%; height: auto; }
.warning { border-left: 4px solid #d97706; background: #fffbeb; padding: 0.4rem 0.8rem; margin: 0.4rem 0; }
"""


def write(folder: Path, results: Mapping[str, Any]) -> list[str]:
    """Write the report and return its file names. Raises InvalidInput if the folder can't be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / "report.html").write_text(page(results), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"`{folder}` can't be written: {error.strerror}") from None
    return [str(folder / "results.json"), str(folder / "report.html")]


def page(results: Mapping[str, Any]) -> str:
    about, rows = results["about"], results["rows"]
    title = f"{about['deployment']} · {about['task']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="about">Measured {escape(about["date"])} with <code>{escape(about["command"])}</code></p>',
        *(f'<p class="warning">{escape(text)}</p>' for text in results["warnings"]),
        "<h2>Latency</h2>",
        _table(tables.HEADERS, tables.main(rows)),
        "<p>TTFT: time to the first output. ITL: time between outputs. E2E: time to the end. All count from when a "
        "request was due, so waiting in this client is included.</p>",
    ]
    if results["slo"]:
        goals = ", ".join(f"{name} {tables.took(most)}" for name, most in results["slo"].items())
        parts += [
            f"<h2>Within {escape(goals)}</h2>",
            _table(("LOAD", "GOOD", "SHARE", "A SECOND"), tables.goodput(rows)),
        ]
    parts += _charts(rows)
    if found := tables.tokens(rows):
        parts += ["<h2>Tokens and iterations</h2>", f'<div class="named">{_table(tables.TOKENS, found)}</div>']
    parts += [
        "<h2>Environment</h2>",
        _facts(about),
        "<h2>Request</h2>",
        f"<p><code>{escape(_request(results))}</code></p>",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def has_pictures() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _charts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not has_pictures():
        return [f"<p>{escape(EXTRA)}</p>"]
    if not any(one["completed"] for one in rows):
        return []
    from walkgraph.cli.benching.charts import charts

    figures = [f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>" for title, svg in charts(rows)]
    return ['<div class="charts">', *figures, "</div>"]


def _table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headers)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _facts(about: Mapping[str, Any]) -> str:
    rows = [
        (name, ", ".join(value) if isinstance(value, list) else str(value))
        for name, value in about.items()
        if name not in ("command", "date") and value not in (None, "", [])
    ]
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f'<table class="facts"><tbody>{body}</tbody></table>'


def _request(results: Mapping[str, Any]) -> str:
    text = json.dumps(results["request"], ensure_ascii=False)
    return text if len(text) <= 1000 else text[:1000] + " …"
