"""The pages of the documentation: examples print what stands under them, tables are complete."""

from __future__ import annotations

import importlib
import inspect
import re
from importlib.util import find_spec
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
#: pages whose relative links are those of the repository
LINKED = [
    path
    for path in (*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("**/*.md")))
    if not {*path.relative_to(ROOT).parts} & {"_build", "generated", "scripts", "notebooks"}
    and path not in {DOCS / "changelog.md", DOCS / "contributing.md"}
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


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    text = re.sub(r"^```.*?^```$|`[^`\n]+`", "", page.read_text("utf-8"), flags=re.M | re.S)
    found = re.findall(r"\]\((?!https?:|mailto:|#)([^)\s#]+)", text)
    assert [link for link in found if not (page.parent / link).exists()] == []


def test_pages_that_files_mention_exist():
    mentioned = {
        name
        for folder in ("tvm_autodiff", "tests", "benchmarks", "tutorials")
        for path in (ROOT / folder).glob("**/*.py")
        for name in re.findall(r"docs/[\w/-]+\.(?:md|svg|png)", path.read_text("utf-8"))
    }
    assert len(mentioned) > 4
    assert [name for name in sorted(mentioned) if not (ROOT / name).exists()] == []


def test_the_guides_have_examples():
    with_examples = {name_of(page) for page in PAGES}
    for folder in ("how-to", "explanation"):
        guides = {name_of(page) for page in (DOCS / folder).glob("*.md")}
        without = {guide for guide in guides - with_examples if "index" not in guide}
        assert without <= {"how-to/export.md"}
    assert frameworks_of((DOCS / "how-to/from_pytorch.md").read_text("utf-8")) == {"torch"}


def test_every_public_name_has_an_entry():
    """The entries of each module in the pages of the API are its public names."""
    listed: dict[str, set[str]] = {}
    for page in (DOCS / "reference/api").glob("*.md"):
        module = ""
        for line in page.read_text("utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif re.fullmatch(r" {3}~?[\w.]+", line):  # ~ shows the last part of a name
                listed.setdefault(module, set()).add(line.strip(" ~"))
    errors_of = {name for name in ad.__all__ if name in vars(errors)}
    own = {"runtime.compiled.CompiledFunction", "runtime.profile.Profile", "runtime.memory.Memory"}
    assert listed["tvm_autodiff"] == {*ad.__all__} - errors_of - {"domain", "__version__"} | own
    assert listed["tvm_autodiff.domain"] == {*domain.__all__}
    assert listed["tvm_autodiff.functions"] | listed["tvm_autodiff"] >= {*functions.__all__}
    for bridge in ("torch", "jax", "relax"):
        if bridge == "relax" or find_spec(bridge):
            module = importlib.import_module(f"tvm_autodiff.interop.{bridge}")
            assert listed[f"tvm_autodiff.interop.{bridge}"] == {*module.__all__}


def test_every_error_and_warning_is_explained():
    page = (DOCS / "reference/errors.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)`(.*?) \| (.+?) \|$", page, re.MULTILINE)
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
