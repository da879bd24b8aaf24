"""The notebooks run from their first cell to the last, and are stored without outputs."""

import json
import sys
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_cells_run_in_their_order(path, monkeypatch):
    """In a module without a file, as in Jupyter: what a cell defines goes to other processes by value."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    n_figures = 0
    for source in code:
        exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102 (the notebook's own code)
        n_figures += any(axes.lines for number in plt.get_fignums() for axes in plt.figure(number).axes)
        plt.close("all")
    assert n_figures == sum(".plot(" in source for source in code) > 0
    assert not any(cell.get("outputs") for cell in cells)
