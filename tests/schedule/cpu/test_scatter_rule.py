"""The CPU's scatter-add equals numpy's, in order, for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tvm_autodiff import build, differentiate
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.cpu import parallel
from tvm_autodiff.schedule.kernels import cut
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules

#: rows, width, reads
SIZES = [(5, 4, 9), (1, 16, 3), (50, 24, 200), (7, 131, 11), (64, 300, 1), (3, 8, 64)]


def taken_rows(rows, width, reads):
    table = te.placeholder((rows, width), name="table")
    index = te.placeholder((reads,), "int32", name="index")
    head = te.placeholder((reads, width), name="head")
    out = te.compute((reads, width), lambda i, j: table[index[i], j] * 3.0, name="out")
    return [index, head], list(differentiate(out, [table], head))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_rows(size, threads, monkeypatch):
    monkeypatch.setattr(parallel, "MIN_WORK", 0)
    rows, width, reads = size
    inputs, outputs = taken_rows(*size)
    rng = np.random.default_rng(0)
    index = rng.integers(0, rows, reads, dtype="int32")
    head = rng.standard_normal((reads, width)).astype("float32")
    [got] = build(inputs, outputs, num_threads=threads)(index, head)
    want = np.zeros((rows, width), "float32")
    np.add.at(want, index, head * np.float32(3))
    np.testing.assert_array_equal(got, want)


def test_inner_dimension(monkeypatch):
    monkeypatch.setattr(parallel, "MIN_WORK", 0)
    table = te.placeholder((6, 9, 8), name="table")
    index = te.placeholder((20,), "int32", name="index")
    head = te.placeholder((6, 20, 8), name="head")
    out = te.compute((6, 20, 8), lambda a, i, j: table[a, index[i], j], name="out")
    rng = np.random.default_rng(1)
    places = rng.integers(0, 9, 20, dtype="int32")
    values = rng.integers(-3, 4, (6, 20, 8)).astype("float32")
    [got] = build([index, head], list(differentiate(out, [table], head)))(places, values)
    want = np.zeros((6, 9, 8), "float32")
    np.add.at(want, (slice(None), places), values)
    np.testing.assert_array_equal(got, want)


def test_rule_applies():
    machine = machine_of(as_target(None), 2)
    kernels, _ = cut(normal_form(taken_rows(50, 24, 200)[1]))
    [*_, last] = [apply_rules(kernel, machine, rules_for(machine)) for kernel in kernels]
    assert [one.rule for one in last] == ["scatter"]
