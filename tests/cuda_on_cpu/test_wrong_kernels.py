"""Running CUDA kernels on the CPU finds what is wrong with one, and nothing in a right one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_on_cpu.compiler import missing
from tests.cuda_on_cpu.programs import Findings, compile_together, launch, source_of_kernel

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

THREADS = 64
HEAD = 'extern "C" __global__ void kernel(float* __restrict__ x_ptr, float* __restrict__ y_ptr)'
#: a tile that threads turn round; in place of BARRIER they have to wait for each other
TURNED = """
  __shared__ alignas(64) float tile_ptr[64];
  tile_ptr[((int)threadIdx.x)] = x_ptr[((int)threadIdx.x)];
  BARRIER
  y_ptr[((int)threadIdx.x)] = tile_ptr[63 - ((int)threadIdx.x)];
"""
#: a sum of each warp
SUMMED = """
  float sum = x_ptr[((int)threadIdx.x)];
  unsigned mask = MASK;
  for (int step = 16; step > 0; step /= 2) {
    sum = sum + __shfl_down_sync(mask, sum, step, 32);
  }
  if (((int)threadIdx.x) % 32 == 0) {
    y_ptr[((int)threadIdx.x) / 32] = sum;
  }
"""


def kernel(body):
    return source_of_kernel(f"{HEAD};\n{HEAD} {{\n{body}\n}}\n")


def run(body, blocks=1, threads=THREADS):
    """The second array behind a launch of the kernel with this body."""
    bodies = [wrong for wrong, _ in WRONG.values()]
    compile_together(map(kernel, bodies if body in bodies else [body]))
    x, y = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    return launch(kernel(body), blocks, threads, x, y)[1]


@pytest.mark.slow
def test_right_kernels():
    x = np.arange(64, dtype="float32")
    np.testing.assert_array_equal(run(TURNED.replace("BARRIER", "__syncthreads();")), x[::-1])
    for mask in ("__activemask()", "0xffffffffu"):
        sums = run(SUMMED.replace("MASK", mask))
        np.testing.assert_array_equal(sums[:2], x.reshape(2, 32).sum(1))
    added = run("atomicAdd((&(y_ptr[((int)threadIdx.x) % 4])), x_ptr[((int)threadIdx.x)]);", 3)
    np.testing.assert_array_equal(added[:4], 3 * x.reshape(16, 4).sum(0))
    place = "(4 * ((int)threadIdx.x))"
    fours = f"*(float4*)(y_ptr + {place}) = *(float4*)(x_ptr + {place});"
    np.testing.assert_array_equal(run(fours, threads=16), x)


#: a body, and what is found; a launch has one block of 64 threads and arrays of 64 elements
WRONG = {
    "no barrier": (TURNED.replace("BARRIER", ""), r"a race: a read and a write of tile_ptr\[32\]"),
    "a barrier that some skip": (
        TURNED.replace("BARRIER", "if (threadIdx.x < 9) { return; }\n __syncthreads();"),
        "a barrier is skipped: thread 9 waits .* thread 8 has returned",
    ),
    "a barrier in a branch": (
        TURNED.replace(
            "BARRIER", "if (threadIdx.x < 9) {\n __syncthreads();\n } else {\n __syncthreads();\n }"
        ),
        "a barrier in a branch: thread 0 waits .* thread 63 at that of line",
    ),
    "a barrier fewer in some threads": (
        TURNED.replace("BARRIER", "__syncthreads();").replace(
            "y_ptr[",
            "for (int n = 0; n < ((int)threadIdx.x) / 32; ++n) { __syncthreads(); }\n y_ptr[",
        ),
        "a barrier is skipped",
    ),
    "one element written by all": (
        "__shared__ alignas(64) float one_ptr[1];\n one_ptr[0] = x_ptr[((int)threadIdx.x)];",
        r"a race: two writes of one_ptr\[0\] by thread 1 and by thread 0, no barrier",
    ),
    "written while others read": (
        TURNED.replace("BARRIER", "__syncthreads();") + "tile_ptr[((int)threadIdx.x)] = 0.0f;",
        r"a race: a write and a read of tile_ptr\[31\]",
    ),
    "two threads at one element of memory": (
        "y_ptr[((int)threadIdx.x) / 2] = x_ptr[((int)threadIdx.x)];",
        r"a race: two writes of y\[0\] by thread 1 and by thread 0",
    ),
    "read while others add": (
        "atomicAdd((&(y_ptr[0])), x_ptr[((int)threadIdx.x)] + y_ptr[1 - ((int)threadIdx.x) % 2]);",
        r"a race: .* y\[0\]",
    ),
    "a write behind the end": (
        "y_ptr[((int)threadIdx.x) + 1] = 0.0f;",
        r"a write of 4 bytes outside of y\[64\], at element 64, by thread 63",
    ),
    "a read before the beginning": (
        "y_ptr[((int)threadIdx.x)] = x_ptr[((int)threadIdx.x) - 1];",
        r"a read of 4 bytes outside of x\[64\], at element -1, by thread 0",
    ),
    "a vector over the end": (
        "*(float4*)(y_ptr + (4 * ((int)threadIdx.x))) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);",
        r"a write of 16 bytes outside of y\[64\], at element 64, by thread 16",
    ),
    "a vector between": (
        "float2 pair = *(float2*)(x_ptr + 1); y_ptr[((int)threadIdx.x)] = pair.x;",
        "a vector at an address that is not aligned",
    ),
    "outside of shared memory": (
        TURNED.replace("BARRIER", "__syncthreads();").replace("63 -", "64 -"),
        "an index outside of an array, in line .* by thread 0",
    ),
    "outside of registers": (
        "alignas(64) float kept_ptr[4];\n kept_ptr[((int)threadIdx.x)] = 1.0f;\n"
        " y_ptr[((int)threadIdx.x)] = kept_ptr[((int)threadIdx.x)];",
        "an index outside of an array, in line .* by thread 4",
    ),
    "an overflow": (
        "int far = ((int)threadIdx.x) + 2147483640; y_ptr[((int)threadIdx.x)] = ((float)far);",
        "an overflow of an addition",
    ),
    "a division by zero": (
        "y_ptr[((int)threadIdx.x)] = ((float)(64 / ((int)threadIdx.x)));",
        "a division by zero",
    ),
    "a lane that has returned": (
        "if (threadIdx.x % 32 == 7) { return; }" + SUMMED.replace("MASK", "0xffffffffu"),
        "a shuffle .* waits for a lane of its mask that does not come",
    ),
    "a lane that the mask leaves out": (
        SUMMED.replace("MASK", "0xffffu"),
        "a shuffle .* its mask leaves out thread 16",
    ),
    "more shared memory than a block has": (
        "__shared__ alignas(64) float large_ptr[12289];\n large_ptr[((int)threadIdx.x)] = 0.0f;",
        "its shared memory of 49156 bytes is more than a block has",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_found(name):
    body, found = WRONG[name]
    with pytest.raises(Findings, match=found):
        run(body)


@pytest.mark.parametrize(
    ("body", "blocks", "threads", "found"),
    [
        ("y_ptr[((int)threadIdx.x)] = 0.0f;", 2, 64, r"two writes of y\[0\] .* of another block"),
        ("y_ptr[0] = x_ptr[0];", 0, 64, "a launch of no blocks or threads"),
        ("y_ptr[0] = x_ptr[0];", 1, 1025, "a launch of 1025 threads a block"),
    ],
)
def test_wrong_launches_are_found(body, blocks, threads, found):
    with pytest.raises(Findings, match=found):
        run(body, blocks, threads)


def test_what_was_not_written_is_no_number():
    shared = "__shared__ alignas(64) float a_ptr[64];\n y_ptr[((int)threadIdx.x)] = a_ptr[0];"
    assert np.isnan(run(shared)).all()
    local = "alignas(64) float a_ptr[64];\n y_ptr[((int)threadIdx.x)] = a_ptr[((int)threadIdx.x)];"
    assert (np.abs(run(local)) > 1e30).all()


def test_a_finding_shows_the_line_of_the_kernel():
    with pytest.raises(Findings, match=r"in y_ptr\[\(\(int\)threadIdx.x\) \+ 1\] = 0.0f;"):
        run("y_ptr[((int)threadIdx.x) + 1] = 0.0f;")
