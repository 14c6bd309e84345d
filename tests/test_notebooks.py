"""The notebooks: executed from beginning to end, and the outputs they are kept with are true.

`notebooks/text` has each notebook as text, which is what people edit. Each runs in a copy beside a
copy of what it imports. Cells tagged ``exact`` must give what is on file; pictures made of pixels
are not compared. ``pytest --update-golden tests/test_notebooks.py`` writes the notebooks anew.
"""

from __future__ import annotations

import os
import re
import shutil
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path

import jupytext
import nbformat
import pytest
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TEXTS = sorted((ROOT / "notebooks" / "text").glob("*.py"))
#: what cells may display: formulas, tables, drawings, and pictures made of pixels
LATEX, TABLE, SVG, PIXELS = "text/latex", "text/html", "image/svg+xml", "image/png"

#: what runs before each notebook, so that it has no variables of another one
AFRESH = "%reset -f"


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell):
    """What a cell printed, as one text."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def displayed(notebook, kind):
    """Everything of one kind that the cells display."""
    return [
        output.data[kind]
        for cell in code_cells(notebook)
        for output in cell.outputs
        if kind in output.get("data", ())
    ]


def exact(notebook):
    """What the cells tagged ``exact`` print and display."""
    return [
        (printed(cell), [{**o.data, PIXELS: None} for o in cell.outputs if "data" in o])
        for cell in code_cells(notebook)
        if "exact" in cell.metadata.get("tags", ())
    ]


def accuracy(notebook):
    [cell] = [c for c in code_cells(notebook) if "accuracy" in c.metadata.get("tags", ())]
    return float(re.search(r"test accuracy: (\S+)%", printed(cell))[1])


def from_text(path):
    """The notebook of a text, without outputs."""
    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # else drawn at random
    return notebook


def stored(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs the notebook of a text and returns it with its outputs.

    The notebooks share one process, which loads TVM once, and not their variables.
    """
    folder = tmp_path_factory.mktemp("clone")
    for name in ("notebooks", "tutorials", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("_build"))
    kernel = None

    def run(path):
        nonlocal kernel
        notebook = from_text(path)
        notebook.cells.insert(0, nbformat.v4.new_code_cell(AFRESH))
        client = NotebookClient(
            notebook,
            km=kernel,
            timeout=600,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(folder / "notebooks")}},
        )
        kernel = kernel or client.create_kernel_manager()
        client.owns_km = False
        client.execute()
        del notebook.cells[0]
        for number, cell in enumerate(code_cells(notebook), start=1):  # as in a process of its own
            cell.execution_count = number
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = number
        notebook.metadata["language_info"] = {"name": "python"}
        return notebook

    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *inherited]))
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        yield run
        if kernel is not None:
            run_sync(kernel.shutdown_kernel)(now=True)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_run_gives_what_is_on_file(path, run, request):
    if "import torch" in path.read_text("utf-8") and not find_spec("torch"):
        pytest.skip("without torch")
    executed = run(path)
    if request.config.getoption("--update-golden"):
        nbformat.write(executed, ROOT / "notebooks" / f"{path.stem}.ipynb")
        return
    kept = stored(path.stem)
    assert len(exact(kept)) > 0
    assert exact(executed) == exact(kept)
    for kind in (LATEX, TABLE, SVG, PIXELS):
        assert len(displayed(executed, kind)) == len(displayed(kept, kind))
    if path.stem == "train_digits":
        assert accuracy(executed) >= 97
        assert accuracy(kept) >= 97


def test_each_notebook_is_its_text():
    assert [path.stem for path in NOTEBOOKS] == [path.stem for path in TEXTS]
    for path in TEXTS:
        notebook, text = stored(path.stem), from_text(path)
        for here, there in zip(notebook.cells, text.cells, strict=True):
            assert (here.cell_type, here.source) == (there.cell_type, there.source)
            assert here.metadata.get("tags", []) == there.metadata.get("tags", [])


def test_notebooks_show_formulas_tables_drawings_and_pictures():
    kept = [nbformat.read(path, as_version=4) for path in NOTEBOOKS]
    assert len(kept) > 6
    for kind in (LATEX, TABLE, SVG, PIXELS):
        assert sum(bool(displayed(notebook, kind)) for notebook in kept) > 3, kind
    for notebook in kept:
        for text in displayed(notebook, SVG):
            assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert displayed(notebook, SVG) + displayed(notebook, PIXELS) != []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_links_lead_to_files(path):
    notebook = nbformat.read(path, as_version=4)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    for link in re.findall(r"\]\((?!https?:|#)([^)\s#]+)", prose):
        assert (path.parent / link).exists(), link


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_stored_outputs_are_complete_and_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr", printed(cell)
            output.get("data", {}).pop(PIXELS, None)  # base64 is full of slashes
    assert not re.search(r"/(home|root|Users|tmp|work|opt)\b", nbformat.writes(notebook))
