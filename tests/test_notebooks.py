"""The notebooks: executed from beginning to end, and the outputs they are kept with are true.

Each runs in a copy beside a copy of the tutorials. Cells tagged ``exact`` must print what is on
file; ``pytest --update-golden`` puts the outputs of the run on file instead.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell):
    """What a cell printed, as one text."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def tagged(notebook, tag):
    """The texts that the cells with a tag printed."""
    cells = [cell for cell in code_cells(notebook) if tag in cell.metadata.get("tags", ())]
    return [printed(cell) for cell in cells]


def accuracy(notebook):
    [text] = tagged(notebook, "accuracy")
    return float(re.search(r"test accuracy: (\S+)%", text)[1])


def pictures(notebook):
    return [
        output.data["image/png"]
        for cell in code_cells(notebook)
        for output in cell.outputs
        if "image/png" in output.get("data", ())
    ]


@pytest.fixture(scope="module")
def executed(request, tmp_path_factory):
    """The train_digits notebook, run in a copy; written back when golden files are updated."""
    copy = tmp_path_factory.mktemp("clone")
    for folder in ("notebooks", "tutorials"):
        shutil.copytree(ROOT / folder, copy / folder)
    path = ROOT / "notebooks" / "train_digits.ipynb"
    notebook = nbformat.read(path, as_version=4)
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *inherited]))
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(copy / "notebooks")}},
        ).execute()
    if request.config.getoption("--update-golden"):
        notebook.metadata["language_info"] = {"name": "python"}
        nbformat.write(notebook, path)
    return notebook


def test_train_digits_learns(executed):
    assert accuracy(executed) >= 97
    assert len(pictures(executed)) == 3


def test_train_digits_is_kept_with_its_outputs(executed):
    stored = nbformat.read(ROOT / "notebooks" / "train_digits.ipynb", as_version=4)
    assert accuracy(stored) >= 97
    assert len(pictures(stored)) == 3
    assert tagged(stored, "exact") == tagged(executed, "exact")
    assert any("dw2[" in text for text in tagged(stored, "exact"))


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
            output.get("data", {}).pop("image/png", None)  # base64 is full of slashes
    assert not re.search(r"/(home|root|Users|tmp|work|opt)\b", nbformat.writes(notebook))
