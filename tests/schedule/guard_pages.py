"""Runs the guarded programs on arrays that touch a page which no one may read or write.

Run as ``python -m tests.schedule.guard_pages NAME/end NAME/begin ...``: a program, and which end of
its arrays touches the page. Prints a line before and after each run; a read outside of an array
ends the process.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate, evaluate_graph
from tests.processes import collected_seldom
from tests.schedule.guarded_programs import PROGRAMS, WRONG, Program, Sizes
from tests.schedule.symbolic_programs import SYMBOLIC

_PAGE = mmap.PAGESIZE
_FORBIDDEN = 64 * _PAGE  #: on both sides: what is read far away is met, too
_READ_WRITE, _PRIVATE = 3, 0x22
_FAR = 900_000_000
_FAILED = ctypes.c_void_p(-1).value


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def at_a_guard(array: np.ndarray, place: str) -> np.ndarray:
    """A copy of an array that begins or ends where no one may read; just a copy if not on Linux."""
    if array.size == 0 or sys.platform != "linux":
        return array.copy()
    libc = _libc()
    room = -(-array.nbytes // _PAGE) * _PAGE
    total = room + 2 * _FORBIDDEN
    base = libc.mmap(None, total, _READ_WRITE, _PRIVATE, -1, 0)
    if base == _FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    first = base + _FORBIDDEN
    for begin in (base, first + room):
        if libc.mprotect(begin, _FORBIDDEN, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    address = first if place == "begin" else first + room - array.nbytes
    memory = (ctypes.c_char * array.nbytes).from_address(address)
    weakref.finalize(memory, libc.munmap, base, total).atexit = False
    copy = np.frombuffer(memory, array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def values_of(program: Program, sizes: Sizes) -> dict[Any, int]:
    """The sizes by variable."""
    found: list[Any] = []
    for tensor in (*program.inputs, *program.outputs):
        for dim in tensor.shape:
            tvm_ffi.structural_walk(dim, (tirx.Var, found.append))
    return {var: sizes[var.name] for var in found}


def shape_of(tensor: Any, values: dict[Any, int]) -> tuple[int, ...]:
    """The shape of a tensor for some sizes."""
    return tuple(int(evaluate(dim, values)) for dim in tensor.shape)


def arrays_for(program: Program, sizes: Sizes, seed: int = 0) -> list[np.ndarray]:
    """Small whole numbers for the inputs, so that every order of summation gives the same."""
    rng = np.random.default_rng(seed)
    found, values = [], values_of(program, sizes)
    for tensor in program.inputs:
        low, high = program.indices.get(tensor.op.name, (-3, 4))
        shape = shape_of(tensor, values)
        drawn = rng.integers(low, high, shape)
        if tensor.op.name in program.indices and high - low > 2:
            # the ends lie outside of what is looked up: as far away as no read survives
            drawn[drawn == low], drawn[drawn == high - 1] = -_FAR, _FAR
        found.append(drawn.astype(str(tensor.dtype)))
    return found


def wanted(program: Program, arrays: Sequence[np.ndarray], sizes: Sizes) -> list[np.ndarray]:
    """The outputs, evaluated in numpy."""
    pairs = list(zip(program.inputs, arrays, strict=True))
    return evaluate_graph(program.outputs, pairs, values_of(program, sizes))


#: every program that can be run
GUARDED = {**PROGRAMS, **WRONG, **{name: make for name, (make, _) in SYMBOLIC.items()}}


@functools.lru_cache(maxsize=1)
def built(name: str) -> tuple[Any, list[tuple[Sizes, list[np.ndarray], list[np.ndarray]]]]:
    """What is built of a program, and its calls: sizes, arrays and what they should give."""
    program = GUARDED[name]()
    function = ad.build(list(program.inputs), list(program.outputs), cache=False)
    given = [(sizes, arrays_for(program, sizes)) for sizes in program.calls]
    return function, [(sizes, arrays, wanted(program, arrays, sizes)) for sizes, arrays in given]


def run(name: str, place: str) -> None:
    """Call a program with each of its sizes."""
    function, calls = built(name)
    for sizes, arrays, want in calls:
        out = [at_a_guard(np.full(w.shape, 77, w.dtype), place) for w in want]
        got = function(*(at_a_guard(array, place) for array in arrays), out=out)
        for have, should in zip(got, want, strict=True):
            np.testing.assert_allclose(have, should, rtol=1e-4, atol=1e-4, err_msg=str(sizes))


def main(runs: Sequence[str]) -> None:
    warnings.simplefilter("ignore")
    collected_seldom()
    for one in runs:
        print("begin", one, flush=True)
        try:
            run(*one.split("/"))
        except Exception as error:
            print("wrong", one, repr(error).replace("\n", " ")[:2000], flush=True)
        else:
            print("right", one, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
