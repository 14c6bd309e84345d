"""Measures scheduled functions in this process.

Meta-schedule's own builder and runner start processes that import TVM again, which takes longer
than most trials.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from ...codegen.modules import compiled_module, module_of
from ...codegen.stages.primfunc import StageFunction
from ...expr.nodes import dtype_of
from ...graph.stage import shape_of


def seconds_of(function: StageFunction, target: Any) -> float:
    """The median time of a function of arrays of constant shapes."""
    func = function.func.with_attr("global_symbol", "main")
    library = compiled_module(module_of({"main": func}), target)
    tensors = (*function.inputs, *function.outputs)
    shapes = [(tuple(map(int, shape_of(tensor))), dtype_of(tensor)) for tensor in tensors]
    return statistics.median(_times(library, shapes))


def _times(library: Any, shapes: Sequence[tuple[tuple[int, ...], str]]) -> list[float]:
    run = library.mod.time_evaluator("main", tvm.cpu(), number=1, repeat=3, min_repeat_ms=10)
    return [float(t) for t in run(*(_array(shape, dtype) for shape, dtype in shapes)).results]


def _array(shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers in [0.5, 1.5) for floats, zeros for integers: these may be indices."""
    if dtype == "bfloat16":  # numpy has none
        return tvm.runtime.empty(shape, dtype)
    if dtype.startswith("float"):
        return tvm.runtime.tensor((np.random.default_rng(0).random(shape) + 0.5).astype(dtype))
    return tvm.runtime.tensor(np.zeros(shape, dtype))


class TooSlowError(Exception):
    """A candidate is not compiled in time."""


def in_time(seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)``, or an error after so many seconds: LLVM takes minutes for some
    candidates, and cannot be stopped. The thread goes on, and ends with the process at the latest.
    """
    results: list[Any] = []
    failures: list[Exception] = []

    def body() -> None:
        try:
            results.append(function(*args))
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=body, name="candidate", daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not results:
        raise TooSlowError(f"it took more than {seconds:g} s to compile")
    return results[0]


@derived_object
class Builder(ms.builder.PyBuilder):
    """Compiles candidates in this process, each in 30 s as meta-schedule's own; numbers replace
    paths.
    """

    def __init__(self) -> None:
        super().__init__()
        self.libraries: dict[str, Any] = {}

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        """The numbers of compiled candidates, or why one does not compile."""
        results = []
        for candidate in build_inputs:
            try:
                library = in_time(30, compiled_module, candidate.mod, candidate.target)
            except Exception as error:
                results.append(ms.builder.BuilderResult(None, str(error)))
                continue
            number = str(len(self.libraries))
            self.libraries[number] = library
            results.append(ms.builder.BuilderResult(number, None))
        return results


@derived_object
class _Finished(ms.runner.PyRunnerFuture):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.outcome = result

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self.outcome


@derived_object
class Runner(ms.runner.PyRunner):
    """Times the candidates of a `Builder`."""

    def __init__(self, libraries: Mapping[str, Any]) -> None:
        super().__init__()
        self.libraries = libraries

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        """The times of candidates, or why one does not run."""
        results = []
        for candidate in runner_inputs:
            library = self.libraries[str(candidate.artifact_path)]
            shapes = [
                (tuple(map(int, info.shape)), str(info.dtype)) for info in candidate.args_info
            ]
            try:
                outcome = ms.runner.RunnerResult(_times(library, shapes), None)
            except Exception as error:
                outcome = ms.runner.RunnerResult(None, str(error))
            results.append(_Finished(outcome))
        return results
