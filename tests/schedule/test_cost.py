"""The numbers that schedules depend on: prices and limits, each with its source in `cost.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tvm_autodiff.schedule as package
from tvm_autodiff.schedule.cost import MAX_TASKS, is_even

FOLDER = Path(package.__file__).parent
#: 0 and 1 are no choices, and a half is told by what it halves
PLAIN = (-1, 0, 1, 2)
#: file → the numbers that are set outside of function bodies: in assignments, also inside of tables
#: and expressions, fields of classes, and defaults of arguments
ALLOWED = {
    "cost.py": 18,
    "tuning/options.py": 1,  # trials, which a user chooses
}


def numbers_outside_functions(source: str) -> Iterator[float]:
    """The numbers of a module that no function body contains."""
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef):
            pending.append(node.args)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            if node.value not in PLAIN:
                yield node.value
        else:
            pending += ast.iter_child_nodes(node)


def test_numbers_stand_in_one_place() -> None:
    found = {}
    for path in FOLDER.rglob("*.py"):
        name = path.relative_to(FOLDER).as_posix()
        count = len(list(numbers_outside_functions(path.read_text("utf-8"))))
        if count and not name.startswith("elementary/"):  # coefficients
            found[name] = count
    assert found == ALLOWED
    assert sum(ALLOWED.values()) < 20


def test_numbers_are_found() -> None:
    source = "A = 3 * 4\nB = {'x': (5, 1)}\nclass C:\n    d: int = 6\ndef f(x=7):\n    return 8\n"
    assert sorted(numbers_outside_functions(source)) == [3, 4, 5, 6, 7]


def test_even_tasks() -> None:
    for threads in (1, 2, 3, 16):
        for count in range(1, 400):
            longest = max(len(range(first, count, threads)) for first in range(threads))
            idle = longest * threads - count
            assert is_even(count, threads) == (idle / count <= 1 / MAX_TASKS)
