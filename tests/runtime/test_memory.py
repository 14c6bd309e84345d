"""The memory plan: bytes of inputs, outputs and temporaries, with sizes that are symbols too."""

from __future__ import annotations

import pytest
from tvm import te

from tvm_autodiff.compile import build
from tvm_autodiff.errors import InvalidArgumentError
from tvm_autodiff.runtime.memory import Buffer


def chain(n, stages, dtype="float32"):
    """Row sums of products of a matrix with itself: each stage reads the one before."""
    A = te.placeholder((n, 8), dtype, name="A")
    last = A
    for number in range(stages):
        last = following(last, f"S{number}")
    return A, last


def following(before, name):
    k = te.reduce_axis((0, 8), "k")
    body = lambda i, j: te.max(before[i, k] * before[i, 7 - j], axis=k)  # noqa: E731
    return te.compute(before.shape, body, name=name)


def temporaries(memory):
    return [buffer for buffer in memory.buffers if buffer.kind == "temporary"]


def test_one_kernel_has_no_temporaries():
    A = te.placeholder((3, 5), "float16", name="A")
    memory = build(A, te.compute((5, 3), lambda i, j: A[j, i], name="T")).memory()
    assert memory.buffers == (Buffer("input", 30, ("A",)), Buffer("output", 30, ("T",)))
    assert (memory.inputs, memory.outputs, memory.temporaries, memory.total) == (30, 30, 0, 60)


@pytest.mark.parametrize(("stages", "storages"), [(2, 1), (3, 2), (6, 2)])
def test_temporaries_share_storage_when_they_do_not_live_at_once(stages, storages):
    memory = build(*chain(16, stages)).memory()
    found = temporaries(memory)
    assert [buffer.size for buffer in found] == [16 * 8 * 4] * storages
    assert sorted(name for buffer in found for name in buffer.tensors) == [
        f"S{number}" for number in range(stages - 1)
    ]


@pytest.mark.parametrize("size", [1, 7, 32])
def test_symbolic_sizes(size):
    memory = build(*chain(te.var("n"), 3)).memory(n=size)
    assert memory.inputs == memory.outputs == size * 8 * 4
    assert memory.temporaries == 2 * size * 8 * 4


def test_a_symbol_without_value():
    with pytest.raises(InvalidArgumentError, match=r"size of A .* memory\(n=32\)"):
        build(*chain(te.var("n"), 2)).memory()


def test_table():
    text = str(build(*chain(16, 2)).memory())
    assert text.splitlines() == [
        "  512  input          A",
        "  512  output         S1",
        "  512  temporary      S0",
        "1,536  bytes: 512 in, 512 out, 512 between",
    ]
