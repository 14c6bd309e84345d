"""What the solver emits, compiled: gathers over solved systems against sums over their points."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from tvm_autodiff.domain import Domain, DomainTransformation, simplify_domain
from tvm_autodiff.expr import build
from tvm_autodiff.expr.rewrite import substituter

#: each function is called once: LLVM need not optimise it
TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})


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


@pytest.mark.slow
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
        tvm.compile(te.create_prim_func([data, out]), target=TARGET)(values, result)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        counted += 1
    assert counted >= 30
