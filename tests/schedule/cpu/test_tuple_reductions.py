"""Reductions of several values at once, in vectors wherever those of one value are."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import arrays_for, shaped
from tvm_autodiff import build
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules


def constants(*values):
    return lambda *dtypes: tuple(tirx.const(v, t) for v, t in zip(values, dtypes, strict=True))


ONE, ZERO = (tirx.const(value, "float32") for value in (1, 0))


def selecting(better, start):
    """The pair of place and value that `better` prefers."""

    def chosen(a, b):
        first = better(a[1], b[1])
        return tuple(tirx.Select(first, x, y) for x, y in zip(a, b, strict=True))

    return te.comm_reducer(chosen, constants(-1, start))


def _welford(a, b):
    """(number, mean, sum of squared distances from the mean)"""
    count = a[0] + b[0]
    apart = b[1] - a[1]
    share = b[0] / tirx.Max(count, ONE)
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share


def _log_sum(a, b):
    """(greatest, sum of exponentials of what is below it)"""
    top = tirx.Max(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)


LOW, HIGH = -1e30, 1e30
moments = te.comm_reducer(
    lambda a, b: (a[0] + b[0], a[1] + b[1], tirx.Max(a[2], b[2])), constants(0, 0, LOW)
)
welford = te.comm_reducer(_welford, constants(0, 0, 0))
log_sum = te.comm_reducer(_log_sum, constants(LOW, 0))


#: reducer, the values that it reduces, from an element and its number, and a tolerance
REDUCERS = {
    "moments": (moments, lambda v, k: (v, v * v, v), 0.0),
    "the last greatest": (selecting(lambda a, b: a > b, LOW), lambda v, k: (k, v), 0.0),
    "the first greatest": (selecting(lambda a, b: a >= b, LOW), lambda v, k: (k, v), 0.0),
    "the first least": (selecting(lambda a, b: a <= b, HIGH), lambda v, k: (k, v), 0.0),
    "a wide place": (
        selecting(lambda a, b: a >= b, LOW),
        lambda v, k: (k.astype("int64"), v),
        0.0,
    ),
    "welford": (welford, lambda v, k: (ONE, v, ZERO), 1e-4),
    "log-sum": (log_sum, lambda v, k: (v, ONE), 1e-4),
}


def reduced(shape, over, reducer="moments"):
    """``X[shape]`` reduced over some axes, by a reducer of the table."""
    X = cases.placeholder("X", *shape)
    axes = {n: te.reduce_axis((0, shape[n]), f"k{n}") for n in over}
    reduce, values, _ = REDUCERS[reducer]

    def body(*places):
        rest = iter(places)
        index = [axes[n].var if n in axes else next(rest) for n in range(len(shape))]
        number = index[over[0]]
        for n in over[1:]:
            number = number * shape[n] + index[n]
        found = values(X(*index), number)
        return reduce(found, axis=list(axes.values()))

    kept = [extent for n, extent in enumerate(shape) if n not in over]
    return [X], list(te.compute(kept, body, name="W"))


def check(case, sizes=None, tolerance=0.0, threads=(2,)):
    inputs, outputs = case
    arrays = arrays_for(inputs, sizes or {})
    pairs = list(zip(inputs, arrays, strict=True))
    dims = {dim: size for t, a in pairs for dim, size in shaped(t, a) if not hasattr(dim, "value")}
    want = evaluate_graph(outputs, pairs, dims)
    for count in threads:
        built = build(inputs, outputs, num_threads=count, cache=False)
        assert built.notice is None
        for got, each in zip(built(*arrays), want, strict=True):
            np.testing.assert_allclose(got, each, rtol=tolerance, atol=tolerance)


def scheduled(outputs, threads=1):
    kernels, _ = cut(normal_form(outputs))
    return [one for kernel in kernels for one in apply_rules(kernel, avx512(threads), CPU_RULES)]


def widths(found):
    """The numbers of lanes of the loops of some kernels."""
    text = "".join(launch.func.script() for one in found for launch in one.launches)
    return {int(part.split(")")[0]) for part in text.split("T.vectorized(")[1:]}


#: shape, the axes that are reduced, the rule for one thread, and lanes of float32
FORMS = {
    "a middle axis": ((3, 40, 96), (1,), "reduction", 16),
    "a middle axis, odd": ((3, 41, 37), (1,), "reduction", 16),
    "the first axis": ((50, 48), (0,), "rows", None),
    "the first axis of three": ((40, 6, 70), (0,), "rows", None),
    "more columns than a cache holds": ((20, 20_000), (0,), "reduction", 16),
    "few columns": ((40, 20, 6), (1,), "reduction", 4),
    "two axes": ((9, 3, 7, 33), (0, 2), "reduction", 16),
    "short rows": ((6_000, 3), (0,), "rows", None),
    "short rows of a prime number": ((6_007, 3), (0,), "reduction", None),
    "rows": ((40, 100), (1,), "rows", 16),
    "a row": ((20_011,), (0,), "rows", 16),
}


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("form", FORMS)
def test_values(form, reducer):
    shape, over, *_ = FORMS[form]
    threads = (1, 2) if reducer == "moments" else (2,)
    check(reduced(shape, over, reducer), tolerance=REDUCERS[reducer][2], threads=threads)


@pytest.mark.parametrize("form", FORMS)
def test_rules(form):
    shape, over, rule, lanes = FORMS[form]
    found = scheduled(reduced(shape, over)[1])
    assert [one.rule for one in found] == [rule]
    assert lanes is None or lanes in widths(found)
