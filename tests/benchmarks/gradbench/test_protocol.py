"""The protocol of GradBench: messages in process, and once as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gradbench.evals import EVALS
from benchmarks.gradbench.evaluation import run
from benchmarks.gradbench.protocol import Session, serve
from tests.benchmarks.gradbench.inputs import INPUTS
from tests.processes import without_torch

ROOT = Path(__file__).parents[3]
LSE = {"kind": "evaluate", "module": "lse", "function": "gradient", "input": {"x": [1.0, 2.0]}}
#: exp(1) and exp(2) over their sum
SHARES = [1 / (1 + np.e), np.e / (1 + np.e)]


@pytest.fixture
def session() -> Session:
    return Session(EVALS)


def ask(session: Session, message: Any) -> dict[str, Any]:
    return json.loads(session.answer(message if isinstance(message, str) else json.dumps(message)))


def test_a_start_tells_the_tool(session: Session) -> None:
    response = ask(session, {"id": 0, "kind": "start", "eval": "gmm"})
    assert response == {"id": 0, "tool": "tvm_autodiff", "config": {"threads": 1}}


@pytest.mark.parametrize("module", EVALS)
def test_a_module_is_defined(session: Session, module: str) -> None:
    response = ask(session, {"id": 1, "kind": "define", "module": module})
    assert response == {"id": 1, "success": True}


@pytest.mark.parametrize("kind", ["analysis", "end", "something"])
def test_other_messages_are_acknowledged(session: Session, kind: str) -> None:
    assert ask(session, {"id": 7, "kind": kind, "of": 3, "valid": True}) == {"id": 7}


def test_an_evaluation_has_an_output_and_timings(session: Session) -> None:
    response = ask(session, {"id": 3, **LSE})
    assert response["id"] == 3
    assert response["success"] is True
    assert response["output"] == pytest.approx(SHARES)
    assert [timing["name"] for timing in response["timings"]] == ["prepare", "evaluate"]
    assert all(timing["nanoseconds"] > 0 for timing in response["timings"])


def test_it_runs_as_often_as_asked(session: Session) -> None:
    response = ask(session, {"id": 3, **LSE, "input": {"x": [1.0, 2.0], "min_runs": 5}})
    assert [timing["name"] for timing in response["timings"]].count("evaluate") == 5


def test_it_runs_until_both_bounds_are_reached() -> None:
    results, timings = run(lambda: [np.zeros(1)], 2, 0.01)
    assert sum(timing.nanoseconds for timing in timings) >= 1e7
    assert sum(timing.nanoseconds for timing in timings[:-1]) < 1e7
    assert np.array_equal(results, [np.zeros(1)])


def without(data: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}


def drawn(module: str, **changes: Any) -> dict[str, Any]:
    return {**INPUTS[module](np.random.default_rng(0)), **changes}


WRONG = [
    ("no JSON", "Expecting value"),
    ("[1, 2]", "'kind'"),
    ("{}", "'kind'"),
    ({"id": 1, "kind": "define"}, "'module'"),
    ({"id": 1, "kind": "define", "module": "det"}, "no module 'det'; there are gmm"),
    ({"id": 1, "kind": "define", "module": ["gmm"]}, "no module"),
    ({"id": 1, **LSE, "module": "nothing"}, "no module 'nothing'"),
    ({"id": 1, **LSE, "function": "hessian"}, "no function 'hessian'; it has primal, gradient"),
    ({"id": 1, **without(LSE, "function")}, "'function'"),
    ({"id": 1, **without(LSE, "input")}, "'input'"),
    ({"id": 1, **LSE, "input": 3.5}, "'x'"),
    ({"id": 1, **LSE, "input": {"x": "many"}}, "'x' has the shape"),
    ({"id": 1, **LSE, "input": {"x": ["a", "b"]}}, "'x' holds something that is no float64"),
    ({"id": 1, **LSE, "input": {"x": []}}, "'x' is empty"),
    ({"id": 1, **LSE, "input": {"x": [1.0], "min_runs": 0}}, "'min_runs' is 0"),
    ({"id": 1, **LSE, "input": {"x": [1.0], "min_seconds": None}}, "'min_seconds' is None"),
    ('{"id": 1, "kind": "evaluate", "module": "lse", "function": "primal", '
     '"input": {"x": [1.0], "min_seconds": Infinity}}', "'min_seconds' is inf"),
    ('{"id": 1, "kind": "evaluate", "module": "lse", "function": "primal", '
     '"input": {"x": [NaN]}}', "not JSON compliant"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "error"), WRONG)
def test_what_is_wrong_is_told(session: Session, message: Any, error: str) -> None:
    response = ask(session, message)
    assert response["success"] is False
    assert error in response["error"]
    assert response["id"] == (1 if "1, " in json.dumps(message) and message != "[1, 2]" else None)
    assert ask(session, {"id": 2, **LSE})["success"] is True


@pytest.mark.parametrize(
    ("module", "function", "changes", "error"),
    [
        ("gmm", "objective", {"mu": [[1.0]]}, "'mu' has the shape [1, 1], needed is [3, 4]"),
        ("gmm", "objective", {"mu": [[1.0], [1.0, 2.0]]}, "the rows of 'mu' differ in length"),
        ("gmm", "objective", {"k": True}, "'k' is True"),
        ("kmeans", "dir", {"centroids": []}, "'points' and 'centroids' must not be empty"),
        ("llsq", "gradient", {"n": 1}, "'n' is 1"),
        ("ba", "jacobian", {"cam": [1.0]}, "'cam' has the shape [1]"),
        ("ba", "jacobian", {"w": "heavy"}, "'w' is 'heavy'"),
        ("ht", "jacobian", {"theta": [0.0]}, "'theta' has the shape [1], needed is [26]"),
        ("ht", "jacobian", {"us": [[0.1, 0.2]]}, "'us' has 1 rows, 'data.points' has 6"),
        ("ht", "jacobian", {"data": {}}, "no field 'data.model.parents'"),
        ("ode", "gradient", {"x": []}, "'x' is empty"),
        ("ode", "primal", {"s": 0}, "'s' is 0"),
        ("lstm", "objective", {"main_params": [[1.0]]}, "'main_params' has the shape [1, 1]"),
        ("lstm", "objective", {"main_params": [[1.0] * 12] * 3}, "two rows for each layer"),
        ("lstm", "jacobian", {"state": [[1.0]]}, "'state' has the shape [1, 1], needed is [4, 3]"),
        ("lstm", "jacobian", {"sequence": [[1.0] * 3]}, "'sequence' has 1 rows, at least 2"),
    ],
)
def test_inputs_that_do_not_fit_are_told(
    session: Session, module: str, function: str, changes: dict[str, Any], error: str
) -> None:
    call = {"kind": "evaluate", "module": module, "function": function}
    response = ask(session, {"id": 4, **call, "input": drawn(module, **changes)})
    assert response["id"] == 4
    assert response["success"] is False
    assert error in response["error"]


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        ("correspondences", [0, 1, 2, 3, 4, 5], "'data.correspondences' holds an index outside"),
        ("parents", list(range(22)), "a parent that does not come before its bone"),
    ],
)
def test_places_of_a_hand_are_checked(
    session: Session, name: str, values: list[int], error: str
) -> None:
    data = drawn("ht")
    holder = data["data"] if name in data["data"] else data["data"]["model"]
    holder[name] = values
    call = {"kind": "evaluate", "module": "ht", "function": "objective"}
    assert error in ask(session, {"id": 4, **call, "input": data})["error"]


def test_empty_lines_are_no_messages(session: Session) -> None:
    written: list[str] = []
    serve(session, ["\n", '{"id": 5, "kind": "analysis"}\n', "  "], written.append)
    assert written == ['{"id": 5}']


@pytest.mark.slow
def test_as_a_process() -> None:
    messages = [{"id": 0, "kind": "start"}, "broken", {"id": 1, **LSE}]
    lines = [line if isinstance(line, str) else json.dumps(line) for line in messages]
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.gradbench"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=without_torch(),
        check=True,
    )
    start, broken, answer = map(json.loads, process.stdout.splitlines())
    assert start["tool"] == "tvm_autodiff"
    assert broken["success"] is False
    assert answer["output"] == pytest.approx(SHARES)
