"""The pages of the documentation: examples print what stands under them, tables are complete."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import tvm_autodiff as ad
from tests.pages import examples_of, frameworks_of, missing, outputs_of, rewritten
from tvm_autodiff import domain, errors, functions

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: pages that the build of the site takes from elsewhere, or that have a test of their own
ELSEWHERE = ("_build", "generated", "scripts", "notebooks", "changelog", "contributing", "export")
PAGES = [
    path
    for path in sorted(DOCS.glob("**/*.md"))
    if not {*path.relative_to(DOCS).parts, path.stem} & set(ELSEWHERE)
    and examples_of(path.read_text("utf-8"))
]


def name_of(page: Path) -> str:
    """A page in reports of pytest."""
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_print_what_the_page_says(page, request, tmp_path, monkeypatch):
    text = page.read_text("utf-8")
    if missing(text):
        pytest.skip(f"without {', '.join(sorted(missing(text)))}")
    monkeypatch.chdir(tmp_path)  # for examples that write files
    if request.config.getoption("--update-golden"):
        rewritten(page)
        return
    for example, printed in outputs_of(text, str(page)):
        assert printed == (example.printed or ""), f"{page}, line {example.line}"


def test_the_guides_have_examples():
    with_examples = {name_of(page) for page in PAGES}
    for folder in ("how-to", "explanation"):
        guides = {name_of(page) for page in (DOCS / folder).glob("*.md")}
        without = {guide for guide in guides - with_examples if "index" not in guide}
        assert without <= {"how-to/export.md"}
    assert frameworks_of((DOCS / "how-to/from_pytorch.md").read_text("utf-8")) == {"torch"}


def test_every_public_name_has_an_entry():
    pages = "\n".join(path.read_text("utf-8") for path in (DOCS / "reference/api").glob("*.md"))
    listed = set(re.findall(r"^   ([\w.]+)$", pages, re.MULTILINE))
    names = {*ad.__all__, *functions.__all__, *domain.__all__} - {"domain", "__version__"}
    classes = {name for name in names if name in vars(errors)}
    assert names - classes <= listed
    assert {n for n in listed if "." not in n and hasattr(ad, n)} <= names


def test_every_error_and_warning_is_explained():
    page = (DOCS / "reference/errors.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    classes = {
        name
        for name, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, (errors.AutodiffError, errors.AutodiffWarning))
    }
    bases = {"AutodiffError", "AutodiffWarning"}
    assert [name for name, *_ in rows] == sorted(classes - bases, key=[n for n, *_ in rows].index)
    assert len(rows) == len(classes - bases)
    documented = set(re.findall(r"^   (\w+)$", page, re.MULTILINE))
    assert classes == documented
    for name, bases_in_table, _ in rows:
        parents = [base.__name__ for base in getattr(errors, name).__mro__[1:]]
        for builtin in re.findall(r"`(\w+Error)`", bases_in_table):
            assert builtin in parents, name
