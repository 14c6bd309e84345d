"""Elementwise kernels over short rows: ``python benchmarks/short_rows.py``.

Nanoseconds an element on one thread, for rows of each width, where one row takes another number
each time (`scaled`), is an outer product, or is fetched by an index. LLVM alone takes neighbouring
rows for a vector where it unrolls the loop over a row, and gathers and scatters.
"""

from __future__ import annotations

import numpy as np
from tvm import te

from tvm_autodiff import build

ELEMENTS = 240_000
WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)


def scaled(rows: int, width: int):
    p, w = te.placeholder((rows, width), name="p"), te.placeholder((rows,), name="w")
    return [p, w], te.compute((rows, width), lambda i, j: p[i, j] * w[i], name="y")


def outer(rows: int, width: int):
    a, b = te.placeholder((rows,), name="a"), te.placeholder((width,), name="b")
    return [a, b], te.compute((rows, width), lambda i, j: a[i] * b[j] + a[i], name="y")


def fetched(rows: int, width: int):
    p, at = te.placeholder((1000, width), name="p"), te.placeholder((rows,), "int32", name="at")
    return [p, at], te.compute((rows, width), lambda i, j: p[at[i], j] * 2.0, name="y")


def nanoseconds(make, width: int) -> float:
    inputs, output = make(ELEMENTS // width, width)
    function = build(inputs, output, num_threads=1, cache=False)
    rng = np.random.default_rng(0)
    arrays = []
    for tensor in inputs:
        shape = [int(extent) for extent in tensor.shape]
        dtype = str(tensor.dtype)
        values = rng.integers(0, 1000, shape) if dtype == "int32" else rng.random(shape)
        arrays.append(values.astype(dtype))
    seconds = min(function.profile(*arrays).kernels[0].seconds for _ in range(5))
    return seconds * 1e9 / (ELEMENTS // width * width)


def main() -> None:
    """Print a line for each kernel."""
    print(f"{'width':8}" + "".join(f"{width:7}" for width in WIDTHS))
    for make in (scaled, outer, fetched):
        figures = "".join(f"{nanoseconds(make, width):7.3f}" for width in WIDTHS)
        print(f"{make.__name__:8}{figures}")


if __name__ == "__main__":
    main()
