"""What the solver emits, compiled: gathers over solved systems against sums over their points."""

from __future__ import annotations

import random
from time import process_time
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from tvm_autodiff.domain import Domain, DomainTransformation, simplify_domain
from tvm_autodiff.ir import build
from tvm_autodiff.ir.rewrite import substituter


def random_map(seed: int) -> Domain:
    """An affine index map of up to three variables, its values as parameters."""
    rng = random.Random(seed)
    variables = [te.var(name) for name in "xyz"[: rng.randint(1, 3)]]
    parameters = [te.var(name) for name in "bc"[: rng.randint(1, 2)]]
    ranges = {var: (0, rng.randint(2, 6)) for var in variables}
    ranges.update({var: (0, rng.randint(3, 12)) for var in parameters})
    conditions = []
    for parameter in parameters:
        index: Any = build.const(rng.randint(-1, 4), "int32")
        for var in variables:
            index = index + var * rng.randint(-3, 3)
        if rng.random() < 0.4:
            index = rng.choice([te.indexdiv, te.indexmod])(index, rng.randint(2, 5))
        conditions.append(build.compare("eq", index, parameter))
    return Domain(tuple(variables), ranges, tuple(conditions))


def gather(transformation: DomainTransformation, data: te.Tensor) -> te.Tensor:
    """``out[parameters] = sum of data over the points``, written by the new domain."""
    new, old = transformation.new_domain, transformation.old_domain

    def body(*places: Any) -> Any:
        axes = [te.reduce_axis((0, new.extent(v)), v.name) for v in new.variables]
        move = substituter(
            dict(zip(new.variables, (axis.var for axis in axes), strict=True))
            | dict(zip(old.parameters, places, strict=True))
        )
        read = data(*(move(transformation.old_to_new[v]) for v in old.variables))
        guard = move(build.all_of(new.conditions))
        guarded = build.if_then_else(guard, read, build.const(0, "float32"))
        return te.sum(guarded, axis=axes) if axes else guarded

    return te.compute([old.extent(v) for v in old.parameters], body, name="out")


def test_compiled_gathers() -> None:
    counted = 0
    for seed in range(60):
        domain = random_map(seed)
        transformation = simplify_domain(domain)
        if transformation.new_domain.is_empty:
            continue
        shape = [domain.extent(v) for v in domain.variables]
        data = te.placeholder(shape, name="data")
        out = gather(transformation, data)
        values = np.random.default_rng(seed).random(shape).astype("float32")
        expected = np.zeros([int(n) for n in out.shape], "float32")
        for place in np.ndindex(*expected.shape):
            for point in domain.points(dict(zip(domain.parameters, place, strict=True))):
                expected[place] += values[point]
        result = np.empty_like(expected)
        tvm.compile(te.create_prim_func([data, out]), target="llvm")(values, result)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        counted += 1
    assert counted >= 30


def dense_system(seed: int) -> Domain:
    """Twelve variables, six equations and six inequalities, a quarter of the coefficients not
    zero.
    """
    rng = random.Random(seed)
    variables = [te.var(f"x{n}") for n in range(12)]
    parameters = [te.var(f"b{n}") for n in range(6)]
    ranges = {var: (0, rng.randint(2, 9)) for var in variables}
    ranges.update(dict.fromkeys(parameters, (0, 20)))
    conditions = []
    for n in range(12):
        form: Any = build.const(rng.randint(-5, 5), "int32")
        for var in variables:
            if rng.random() < 0.25:
                form = form + var * rng.choice([-3, -2, -1, 1, 1, 1, 2, 3])
        right = parameters[n] if n < 6 else build.const(rng.randint(0, 30), "int32")
        conditions.append(build.compare("eq" if n < 6 else "le", form, right))
    return Domain(tuple(variables), ranges, tuple(conditions))


def convolution(stride: int, dilation: int) -> Domain:
    """The input gradient of a 3x3 convolution: seven variables, four equations, a padded border."""
    names = ("n", "co", "h", "w", "ci", "kh", "kw")
    n, _co, h, w, ci, kh, kw = variables = tuple(te.var(name) for name in names)
    b = [te.var(f"b{axis}") for axis in range(4)]
    extents = dict(zip(variables, (8, 32, 16, 16, 32, 3, 3), strict=True))
    ranges = {var: (0, extent) for var, extent in extents.items()}
    ranges.update(dict(zip(b, ((0, 8), (0, 32), (0, 32), (0, 32)), strict=True)))
    row, column = (stride * x + dilation * k - 1 for x, k in ((h, kh), (w, kw)))
    pairs = zip((n, ci, row, column), b, strict=True)
    equations = [build.compare("eq", left, right) for left, right in pairs]
    return Domain(variables, ranges, (*equations, row >= 0, row < 32, column >= 0, column < 32))


#: name → systems, milliseconds that the median may take: a few times what a quiet machine needs
SPEED = {
    "12 variables, 12 conditions": ([dense_system(seed) for seed in range(15)], 60),
    "convolutions": ([convolution(s, d) for s in (1, 2, 3) for d in (1, 2)], 10),
}


@pytest.mark.parametrize("name", SPEED)
def test_speed(name: str) -> None:
    systems, limit = SPEED[name]
    simplify_domain(systems[0])
    times = []
    for domain in systems:
        start = process_time()
        simplify_domain(domain)
        times.append(process_time() - start)
    assert sorted(times)[len(times) // 2] * 1e3 < limit
