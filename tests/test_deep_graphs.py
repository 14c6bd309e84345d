"""Depth and sharing: long chains of stages, deep expressions, doublings; none may crash."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff
from tests.random_programs.workers import Worker
from tvm_autodiff import build, differentiate, show

pytestmark = pytest.mark.slow

x = te.placeholder((2, 3), "float64", name="x")
head = te.placeholder((2, 3), "float64", name="head")
ONES = np.ones((2, 3))


@dataclass(frozen=True)
class Script:
    """Code whose last line is an expression."""

    body: str

    def perform(self) -> list[str]:
        *lines, last = textwrap.dedent(self.body).strip().splitlines()
        names = {"np": np, "te": te, "ad": tvm_autodiff}
        exec("\n".join(lines), names)
        return [f"value {eval(last, names)}"]


def in_own_process(body: str) -> float:
    """The value of a script in a process of its own: a crash is then a code of exit."""
    with Worker(limit=60) as worker:
        [found] = worker.run(Script(body)).complaints
    assert found.startswith("value "), found
    return float(found.removeprefix("value "))


def test_two_thousand_stages():
    value = in_own_process(
        """
        x = te.placeholder((2, 3), "float64", name="x")
        y = x
        for _ in range(2000):
            y = te.compute((2, 3), lambda i, j: y[i, j] * 1.001, name="y")
        head = te.placeholder((2, 3), "float64", name="head")
        [dx] = ad.differentiate(y, x, head)
        ad.build(head, dx)(np.ones((2, 3)))[1, 2]
        """
    )
    assert math.isclose(value, 1.001**2000, rel_tol=1e-9)


DEEP = {
    "sines": ("te.sin(e)", None),
    "sums": ("e + x[i, j]", 1501.0),
    "products": ("e * te.exp(x[i, j] * 0.0)", 1.0),
    "branches": ("te.if_then_else(i >= 0, e * 1.0001, x[i, j])", 1.0001**1500),
}


@pytest.mark.parametrize("name", DEEP)
def test_expressions_1500_nodes_deep(name):
    step, expected = DEEP[name]
    value = in_own_process(
        f"""
        x = te.placeholder((2, 3), "float64", name="x")
        def body(i, j):
            e = x[i, j]
            for _ in range(1500):
                e = {step}
            return e
        y = te.compute((2, 3), body, name="y")
        head = te.placeholder((2, 3), "float64", name="head")
        [dx] = ad.differentiate(y, x, head)
        ad.show(dx)
        needed = [t for t in (x, head) if t.op.name in ad.show(dx).splitlines()[0]]
        values = [np.full((2, 3), 0.5) if t.op.name == "x" else np.ones((2, 3)) for t in needed]
        ad.build(needed, dx)(*values)[1, 2]
        """
    )
    if expected is None:
        at, expected = 0.5, 1.0
        for _ in range(1500):
            expected *= math.cos(at)
            at = math.sin(at)
    assert math.isclose(value, expected, rel_tol=1e-9)


def doublings(count: int):
    """x -> x + x, `count` times, each shared by a let: a tree of 2^count nodes."""

    def body(i, j):
        names = [tirx.Var(f"t{n}", "float64") for n in range(count)]
        values = [x(i, j), *(name + name for name in names[:-1])]
        result = names[-1] + names[-1]
        for name, value in zip(reversed(names), reversed(values), strict=True):
            result = tirx.Let(name, value, result)
        return result

    return te.compute((2, 3), body, name="y")


def test_doublings_stay_single():
    [dx] = differentiate(doublings(60), x, head)
    assert len(show(dx)) < 20_000
    # TVM's own pipeline expands lets, in the forward computation too: compile few of them
    [dx] = differentiate(doublings(8), x, head)
    assert build(head, dx)(ONES)[0, 0] == 2.0**8


def test_doublings_of_stages_stay_single():
    y = x
    for _ in range(60):
        y = te.compute((2, 3), lambda i, j: y[i, j] + y[i, j], name="y")  # noqa: B023
    [dx] = differentiate(y, x, head)
    assert build(head, dx)(ONES)[0, 0] == 2.0**60
