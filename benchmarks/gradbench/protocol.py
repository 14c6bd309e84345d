"""The protocol of GradBench: one JSON object per line, and one response per message.

The kinds of messages that do something are start, define and evaluate; others, such as analysis,
get an empty response. Each response has the id of its message. Errors, in a message or while it is
processed, are reported in the response.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .evaluation import Compiler, Eval, Timing, run
from .fields import InputError, field, integer, number

TOOL = "tvm_autodiff"
Response = dict[str, Any]


class Session:
    """Answers messages and keeps the programs compiled so far."""

    def __init__(self, evals: Mapping[str, Eval], threads: int = 1) -> None:
        self._evals = evals
        self._compiler = Compiler(threads)
        self._kinds: dict[str, Callable[[Any], Response]] = {
            "start": self._start,
            "define": self._define,
            "evaluate": self._evaluate,
        }

    def answer(self, line: str) -> str:
        """The response to a line, as a line."""
        message: Any = None
        try:
            message = json.loads(line)
            response = self._kinds.get(field(message, "kind"), lambda _: {})(message)
            # JSON has no infinities: an output that holds one is an error, not a broken line
            return json.dumps({"id": _id(message), **response}, allow_nan=False)
        except Exception as error:  # the edge of the process: a message never ends it
            return json.dumps({"id": _id(message), "success": False, "error": _text(error)})

    def _start(self, message: Any) -> Response:
        return {"tool": TOOL, "config": {"threads": self._compiler.threads}}

    def _define(self, message: Any) -> Response:
        self._module(message)
        return {"success": True}

    def _module(self, message: Any) -> Eval:
        name = field(message, "module")
        if not isinstance(name, str) or name not in self._evals:
            raise InputError(f"there is no module {name!r}; there are {', '.join(self._evals)}")
        return self._evals[name]

    def _evaluate(self, message: Any) -> Response:
        module = self._module(message)
        name = field(message, "function")
        if not isinstance(name, str) or name not in module.functions:
            known = ", ".join(module.functions)
            raise InputError(f"{message['module']} has no function {name!r}; it has {known}")
        function = module.functions[name]
        given = field(message, "input")
        min_runs, min_seconds = _runs(given)
        problem = module.read(given)
        begin = time.perf_counter_ns()
        call = self._compiler.prepare(function, problem)
        prepared = Timing("prepare", time.perf_counter_ns() - begin)
        results, timings = run(call, min_runs, min_seconds)
        return {
            "success": True,
            "output": function.write(problem.sizes, results),
            "timings": [dataclasses.asdict(timing) for timing in (prepared, *timings)],
        }


def _runs(given: Any) -> tuple[int, float]:
    """The least runs and seconds that an input asks for; one run if it names none."""
    bounds = {"min_runs": 1, "min_seconds": 0.0, **(given if isinstance(given, Mapping) else {})}
    return integer(bounds, "min_runs", 1), number(bounds, "min_seconds")


def _id(message: Any) -> Any:
    return message.get("id") if isinstance(message, Mapping) else None


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


def serve(session: Session, lines: Iterable[str], write: Callable[[str], None]) -> None:
    """Answer each line until the input ends; empty lines are skipped."""
    for line in lines:
        if line.strip():
            write(session.answer(line))
