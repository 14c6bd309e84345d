"""Programs that are built for a GPU, and run and checked on the CPU.

`Program` calls a function that `tvm_autodiff.build` returned for CUDA. The kernels are the
generated CUDA C, compiled by the host's compiler. Launches, the memory between them and copies of
arguments are the library's and TVM's own. A call that does something wrong raises `Findings`.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tvm

import tvm_autodiff as ad
import tvm_autodiff.compile.pipeline as pipeline
from tests.cuda_on_cpu.compiler import load_kernels, runtime
from tests.cuda_on_cpu.kernels import Source, source_of, translated
from tests.schedule.cuda.scheduled import SM_90
from tests.without_assertions import without_assertions
from tvm_autodiff.schedule.cuda.rules import CUDA_RULES
from tvm_autodiff.schedule.plan import Plan


class Findings(AssertionError):
    """What the kernels of a call did wrong."""


@contextlib.contextmanager
def device() -> Iterator[None]:
    """A context in which TVM has a GPU; it raises what was found in the calls."""
    runtime()
    exists = tvm.get_global_func("cuda_on_cpu.set_exists")
    findings = tvm.get_global_func("cuda_on_cpu.findings")
    exists(True)
    try:
        yield
    finally:
        exists(False)
        found = str(findings())
    if found:
        raise Findings("\n".join(map(_with_line, found.splitlines())))


def _with_line(text: str) -> str:
    """A finding with the source line that it refers to."""
    what, _, place = text.partition(" @")
    if not place:
        return what
    offset, _, library = place.partition(" ")
    command = ["addr2line", "-e", library, f"0x{offset}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        path, _, line = done.stdout.split()[0].rpartition(":")
        with open(path, encoding="utf-8") as file:
            return f"{what}, in {file.read().splitlines()[int(line) - 1].strip()}"
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return what


class Program:
    """A program that is built, but whose kernels are not compiled yet.

    Attributes
    ----------
    function : DeviceFunction
        What `build` returned.
    source : Source
        Its kernels.
    given_up : bool
        Whether TVM refused a schedule, and another one took its place.
    """

    def __init__(
        self, inputs: Any, outputs: Any, rules: Sequence[Any] = CUDA_RULES, **options: Any
    ) -> None:
        runtime()
        self.source = Source("", "", {})
        build = sys.modules["tvm.tirx.build"]
        self._generate = build.codegen_build
        given = mock.patch.object(pipeline, "rules_for", return_value=tuple(rules))
        refusals = mock.patch.object(Plan, "refuse", autospec=True, side_effect=Plan.refuse)
        generated = mock.patch.object(build, "codegen_build", self._generated)
        with given, generated, refusals as refuse:
            self.function = ad.build(inputs, outputs, target=SM_90, cache=False, **options)
        self.given_up = refuse.called

    def _generated(self, module: Any, target: Any) -> Any:
        """Generate code in place of TVM's function, but keep only the text of kernels."""
        code = self._generate(without_assertions(module), target)
        if target.kind.name == "cuda":
            # a schedule that TVM refuses is followed by another: the last one is what is called
            self.source = source_of(code.inspect_source(), module)
            return None
        if self.source.text:
            code.import_module(tvm.get_global_func("cuda_on_cpu.kernels")(self.source.prefix))
        return tvm.get_global_func("cuda_on_cpu.host")(code)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Call the function on the CPU's memory; its kernels must be compiled."""
        with device():
            return self.function(*arrays, **named)


def compile_together(sources: Iterable[Source]) -> None:
    """Compile the kernels of some programs, all at once."""
    load_kernels(translated(list(sources)))


def source_of_kernel(text: str) -> Source:
    """CUDA C with one kernel, ``kernel``, that is launched with blocks and threads along x."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Source(f"k{digest}_", text, {"kernel": ["blockIdx.x", "threadIdx.x"]})


def launch(source: Source, blocks: int, threads: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """Run a compiled kernel on copies of the arrays, and return the copies."""
    kernel = tvm.get_global_func("cuda_on_cpu.kernels")(source.prefix)["kernel"]
    with device():
        given = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]
        kernel(*given, blocks, threads)
        return [tensor.numpy() for tensor in given]
