"""Docstrings: everything public has one, and what users call has a complete one.

Complete means numpydoc sections for parameters and results, and examples. The examples themselves
run as doctests (`pyproject.toml`).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tests.sources import parsed

PACKAGE = Path(__file__).parent.parent / "tvm_autodiff"
FILES = sorted(PACKAGE.rglob("*.py"))
#: folders beside the package with files whose docstrings are checked, too
OTHERS = ("tests", "benchmarks", "tutorials")
#: packages whose exported names users call
PUBLIC = (
    "tvm_autodiff",
    "tvm_autodiff.domain",
    "tvm_autodiff.functions",
    "tvm_autodiff.interop.relax",
    "tvm_autodiff.interop.torch",
    "tvm_autodiff.interop.jax",
)
FRAMEWORKS = {"tvm_autodiff.interop.torch": "torch", "tvm_autodiff.interop.jax": "jax"}


def public_definitions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Functions, classes and methods without a leading underscore, outside of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if node.name.startswith("_"):
                continue
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from public_definitions(node, prefix)


def undocumented(source: str) -> list[str]:
    """The public definitions without a docstring."""
    found = public_definitions(parsed(source))
    return [name for name, node in found if not ast.get_docstring(node)]


def opening(source: str) -> str:
    """The docstring of a file."""
    return ast.get_docstring(parsed(source)) or ""


def sections(text: str) -> set[str]:
    """The numpydoc sections of a docstring."""
    return set(re.findall(r"^([A-Z][a-z]+)\n-{3,}$", text, re.MULTILINE))


def incomplete(thing: object) -> list[str]:
    """The sections that the docstring of a function or class lacks."""
    text = inspect.getdoc(thing) or ""
    there = sections(text)
    lacking = [] if "Examples" in there and ">>> " in text else ["Examples"]
    if inspect.isclass(thing):
        fields = getattr(thing, "__dataclass_fields__", {})
        public = any(not name.startswith("_") for name in fields)
        if public and not there & {"Parameters", "Attributes"}:
            lacking.append("Parameters")
        return lacking
    assert callable(thing)
    signature = inspect.signature(thing)
    if signature.parameters and "Parameters" not in there:
        lacking.append("Parameters")
    if signature.return_annotation not in (None, "None") and "Returns" not in there:
        lacking.append("Returns")
    return lacking


def exported() -> Iterator[tuple[str, object]]:
    """What the public packages export, except modules, numbers and kinds of errors."""
    seen: set[int] = set()
    for package in PUBLIC:
        framework = FRAMEWORKS.get(package)
        if framework and not find_spec(framework):
            continue
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            is_error = inspect.isclass(thing) and issubclass(thing, BaseException)
            wanted = (inspect.isclass(thing) or inspect.isroutine(thing)) and not is_error
            if wanted and id(thing) not in seen:
                seen.add(id(thing))
                yield f"{package}.{name}", thing


def test_public_definitions_have_docstrings():
    texts = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in FILES}
    found = {name: missing for name, text in texts.items() if (missing := undocumented(text))}
    assert found == {}


def is_ritual(text: str) -> bool:
    """Whether a docstring lists what goes in and out instead of saying it."""
    found = re.search(r"^In: |\. Out: |\bIn: .*\bOut: ", text, re.MULTILINE | re.DOTALL)
    return found is not None


def opens_badly(text: str) -> bool:
    """Whether a file does not open with sentences."""
    return not text.strip() or is_ritual(text) or not (text[-1] in ".:`)" or "\n" in text)


def test_files_open_with_sentences():
    texts = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in FILES}
    assert [name for name, text in texts.items() if opens_badly(opening(text))] == []


def test_files_beside_the_package_open_without_a_ritual():
    root = PACKAGE.parent
    paths = [path for folder in OTHERS for path in sorted((root / folder).rglob("*.py"))]
    assert len(paths) > 100
    texts = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths}
    # to parse them all would take seconds
    suspects = {name: text for name, text in texts.items() if "In: " in text or ". Out: " in text}
    assert [name for name, text in suspects.items() if is_ritual(opening(text))] == []


def test_exported_names_have_complete_docstrings():
    found = {name: lacking for name, thing in exported() if (lacking := incomplete(thing))}
    assert found == {}


def test_errors_have_docstrings():
    module = importlib.import_module("tvm_autodiff.errors")
    kinds = [thing for _, thing in inspect.getmembers(module, inspect.isclass)]
    assert len(kinds) > 10
    assert [kind.__name__ for kind in kinds if not kind.__doc__] == []


def test_the_checks_find_what_is_missing():
    bare = "class A:\n    def f(self): ...\n    def _g(self): ...\ndef h():\n    def inner(): ...\n"
    assert undocumented(bare) == ["A", "A.f", "h"]

    def function(x: int) -> int:
        """Add one."""
        return x + 1

    assert incomplete(function) == ["Examples", "Parameters", "Returns"]
    assert sections("Sum.\n\nParameters\n----------\nx : int\n") == {"Parameters"}
