"""Functions called by address: what a call is refused for, which launches run, local memory."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te
from tvm.ir import GlobalVar

from tvm_autodiff.codegen.host.call_check import FITS, MISMATCH, OVERLAP, call_table
from tvm_autodiff.codegen.host.direct_calls import (
    ALL_LAUNCHES,
    NO_LAUNCH,
    PIPELINE,
    DirectCall,
    Offset,
    Parameter,
    by_address,
    calling,
)
from tvm_autodiff.codegen.stages.primfunc import relax_alignment


def compiled(calls, count, kernels=None):
    module = tvm.IRModule({**(kernels or {}), GlobalVar("main"): calling(count, calls)})
    return tvm.compile(module, target={"kind": "llvm"}, tir_pipeline=PIPELINE)["main"]


MAIN = compiled([], 2)
SPECS = [("float32", (2, 3)), ("int8", (4,))]
TABLE = tvm.runtime.tensor(call_table(SPECS, [0]))
SPACE = tvm.runtime.empty((1024,), "uint8")
WHOLE = np.zeros(64, "int8")


def floats(*shape):
    return np.zeros(shape, "float32")


def small(*shape):
    return np.zeros(shape, "int8")


CALLS = [
    ((floats(2, 3), small(4)), FITS),
    ((tvm_ffi.from_dlpack(floats(2, 3)), small(4)), FITS),
    ((floats(3, 2).T, small(4)), MISMATCH),
    ((floats(2, 6)[:, ::2], small(4)), MISMATCH),
    ((floats(2, 3), small(8)[::2]), MISMATCH),
    ((floats(2, 4)[:, :3], small(4)), MISMATCH),
    ((floats(4, 3)[1:3], small(4)), FITS),
    ((floats(3, 2), small(4)), MISMATCH),
    ((floats(6), small(4)), MISMATCH),
    ((floats(2, 3, 1), small(4)), MISMATCH),
    ((floats(2, 3).astype("float64"), small(4)), MISMATCH),
    ((floats(2, 3).view("int32"), small(4)), MISMATCH),
    ((floats(2, 3), small(4).view("uint8")), MISMATCH),
    ((floats(2, 3), 3), MISMATCH),
    ((floats(2, 3), 3.5), MISMATCH),
    ((floats(2, 3), None), MISMATCH),
    ((floats(2, 3), "text"), MISMATCH),
    ((floats(2, 3),), MISMATCH),
    ((floats(2, 3), small(4), small(4)), MISMATCH),
    ((), MISMATCH),
    ((WHOLE[:24].view("float32").reshape(2, 3), WHOLE[20:24]), OVERLAP),
    ((WHOLE[:24].view("float32").reshape(2, 3), WHOLE[23:27]), OVERLAP),
    ((WHOLE[:24].view("float32").reshape(2, 3), WHOLE[24:28]), FITS),
    ((WHOLE[4:28].view("float32").reshape(2, 3), WHOLE[:4]), FITS),
    ((WHOLE[4:28].view("float32").reshape(2, 3), WHOLE[1:5]), OVERLAP),
]


@pytest.mark.parametrize(("arrays", "status"), CALLS)
def test_check(arrays, status):
    assert (MAIN(ALL_LAUNCHES, TABLE, SPACE, *arrays) or FITS) == status


@pytest.mark.parametrize(
    ("specs", "written", "arrays", "status"),
    [
        # only an array that is written must have its memory for itself
        ([("int8", (4,))] * 3, [2], [WHOLE[:4], WHOLE[:4], WHOLE[4:8]], FITS),
        ([("int8", (4,))] * 3, [2], [WHOLE[:4], WHOLE[4:8], WHOLE[:4]], OVERLAP),
        ([("int8", (4,))] * 3, [1, 2], [WHOLE[:4], WHOLE[4:8], WHOLE[5:9]], OVERLAP),
        # arrays without memory share none, whatever their strides
        ([("int8", (0, 4))] * 2, [0, 1], [small(0, 4), small(0, 4)], FITS),
        ([("int8", (0,)), ("int8", (8,))], [0, 1], [WHOLE[4:4], WHOLE[:8]], FITS),
        ([("int8", (1, 4))], [0], [np.lib.stride_tricks.as_strided(WHOLE, (1, 4), (9, 1))], FITS),
        ([("float64", ())], [0], [np.zeros(())], FITS),
        ([("bool", (2,))], [0], [np.zeros(2, "bool")], FITS),
    ],
)
def test_check_of_others(specs, written, arrays, status):
    main, table = compiled([], len(specs)), tvm.runtime.tensor(call_table(specs, written))
    assert (main(NO_LAUNCH, table, SPACE, *arrays) or FITS) == status


def increment(rows=1):
    """``B = A + 1`` by way of a local buffer of `rows` KiB, which is too large for the stack."""
    A = te.placeholder((256 * rows,), name="A")
    L = te.compute(A.shape, lambda i: A[i] + 0.5, name="L")
    B = te.compute(A.shape, lambda i: L[255 * rows + rows - 1 - i] + 0.5, name="B")
    return by_address(
        relax_alignment(te.create_prim_func([A, B]).without_attr("global_symbol")), "increment"
    )


def test_launches_and_places():
    var = GlobalVar("increment")
    first = DirectCall(var, (Parameter(0), Offset(0)))
    second = DirectCall(var, (Offset(0), Parameter(1)))
    main = compiled([first, None, second], 2, {var: increment()})
    table = tvm.runtime.tensor(call_table([("float32", (256,))] * 2, [1]))
    space = tvm.runtime.empty((1024,), "uint8")
    x, y = np.arange(256, dtype="float32"), np.zeros(256, "float32")
    main(ALL_LAUNCHES, table, space, x, y)
    np.testing.assert_array_equal(y, x + 2)
    y[:] = 0
    for number, want in ((NO_LAUNCH, 0 * x), (0, 0 * x), (1, 0 * x), (2, x + 2)):
        assert main(number, table, space, x, y) is None
        np.testing.assert_array_equal(y, want)


def test_local_memory_is_given_back():
    """A megabyte for each of many calls, which would not fit if any kept it."""
    resource = pytest.importorskip("resource")
    var = GlobalVar("increment")
    rows = 1024
    main = compiled([DirectCall(var, (Parameter(0), Parameter(1)))], 2, {var: increment(rows)})
    table = tvm.runtime.tensor(call_table([("float32", (256 * rows,))] * 2, [1]))
    x, y = np.zeros(256 * rows, "float32"), np.zeros(256 * rows, "float32")
    main(ALL_LAUNCHES, table, SPACE, x, y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        main(ALL_LAUNCHES, table, SPACE, x, y)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000  # kilobytes
