"""The notebook of the examples runs from its first cell to its last, and shows what it showed when it was written.

`pytest --rewrite tests/pipeline/test_notebook.py` runs it and keeps what its cells show now.
"""

from __future__ import annotations

import ast
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples/pipeline/from_trace_to_witness.ipynb"
RICH = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_"}


def outputs_of(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell as a notebook does: what it prints, and the value of its last line if that is an expression."""
    body = ast.parse(source)
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with redirect_stdout(printed):
        exec(compile(body, NOTEBOOK.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
    if value is not None:
        data = {kind: lines(getattr(value, name)()) for kind, name in RICH.items() if hasattr(value, name)}
        shown = {**data, "text/plain": lines(type(value).__name__ if data else repr(value))}
        outputs.append({"data": shown, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


@pytest.mark.usefixtures("spark")
def test_the_notebook_runs_and_shows_what_it_shows(monkeypatch: pytest.MonkeyPatch, rewrite: bool) -> None:
    monkeypatch.chdir(NOTEBOOK.parent)
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        outputs = outputs_of("".join(cell["source"]), names, count)
        if rewrite:
            cell.update(execution_count=count, outputs=outputs)
        assert (cell["execution_count"], cell["outputs"]) == (count, outputs)
    if rewrite:
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shown = json.dumps([cell["outputs"] for cell in cells])
    assert "violated" in shown, "a verdict"
    assert shown.count("<svg") == 2, "a plot and the picture of a witness"
