"""Random programs: values and gradients against an interpreter in numpy.

Most are evaluated in numpy; one with each feature is compiled with its schedules. With those of
`test_random_modes`, `sparse/test_random_programs` and `partition/test_random_programs` they are
more than 3,000, no two alike. They run in processes of their own: a program that crashes or does
not end is a failure, too. The failing ones are shown as te code, the first of them in the smallest
form that still fails.
More: ``python -m tests.random_programs --help``.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.evaluate import evaluate_graph
from tests.random_programs import cases
from tests.random_programs.cases import Case, agree, call_for, random_case, steps
from tests.random_programs.checking import Made
from tests.random_programs.draw import Options, literal, read, variable
from tests.random_programs.interpreter import Run, numpy_dtype
from tests.random_programs.large import LargeCase
from tests.random_programs.long_build import LongBuild
from tests.random_programs.narrow_results import NarrowResults
from tests.random_programs.odd_rows import OddRows
from tests.random_programs.programs import HEADER, Input, Node, Program, Stage
from tests.random_programs.tasks import EVALUATED as KINDS, NAMES, Seeds, case_for, report
from tests.random_programs.workers import Worker, run_all

#: programs that are evaluated, and how many of them at a time: few, so that no worker waits long
#: for another at the end
EVALUATED, TASK, TASKS = 2760, 20, 2

#: the first seed of programs that are compiled each alone, one with each feature
ALONE = 1000

#: programs of nested indices that are built; in 148 the solver bounds no box of one case of a clamp
NESTED = (*range(3), 148)
SECONDS = 60  #: of CPU time, for each program that is built alone

#: features of programs that are not compiled beside others
OFF_COMPILED = {"nested": "the builds take long: each alone, under a limit, below"}
SCHEDULED = tuple(name for name in NAMES if name not in OFF_COMPILED)


def fail_of(outcomes: Iterator) -> None:
    for outcome in outcomes:
        if outcome.complaints:
            pytest.fail(report(outcome.task, outcome.complaints), pytrace=False)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A process for all programs that are evaluated: the first ones of each take longer."""
    with Worker() as one:
        yield one


@pytest.mark.parametrize("first", range(0, EVALUATED, TASK * TASKS))
def test_evaluated(first: int, worker: Worker) -> None:
    last = min(first + TASK * TASKS, EVALUATED)
    starts = range(first, last, TASK)
    tasks = [Seeds(KINDS, tuple(range(n, min(n + TASK, last))), False) for n in starts]
    fail_of(map(worker.run, tasks))


@pytest.fixture(scope="module")
def compiling() -> Iterator[Worker]:
    """A process for programs that are compiled each alone, each under the limit."""
    with Worker(SECONDS) as one:
        yield one


@pytest.mark.slow
@pytest.mark.parametrize("feature", SCHEDULED)
def test_each_feature_is_compiled(feature: str, compiling: Worker) -> None:
    """In a program of its own, mostly beside others."""
    seed = ALONE + SCHEDULED.index(feature)
    assert feature in features_of(case_for(seed, SCHEDULED, feature))
    fail_of(iter([compiling.run(Seeds(SCHEDULED, (seed,), True, feature))]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", NESTED)
def test_nested_indices_are_built_in_time(seed: int) -> None:
    """Half are differentiated twice. More: ``--features nested --compile --limit 60 --times``."""
    fail_of(run_all([Seeds(("nested",), (seed,), True)], 1, limit=SECONDS))


@pytest.mark.slow
def test_windows_of_windows_are_built_in_time() -> None:
    [outcome] = run_all([LongBuild()], 1, limit=SECONDS)
    assert outcome.complaints == []


@pytest.mark.parametrize("columns", [22, 23])
def test_products_of_odd_rows_are_built_in_time(columns: int) -> None:
    [outcome] = run_all([OddRows(columns)], 1, limit=SECONDS)
    assert outcome.complaints == []


@pytest.mark.parametrize(
    ("program", "rows", "dtype"),
    [
        ("maxima", 11, "bfloat16"),
        ("maxima", 11, "int16"),
        ("distances", 89, "bfloat16"),
        ("distances", 137, "bfloat16"),
        ("windows", 4, "bfloat16"),
    ],
)
def test_results_in_16_bits_end_where_their_array_does(program: str, rows: int, dtype: str) -> None:
    [outcome] = run_all([NarrowResults(program, rows, dtype)], 1, limit=SECONDS)
    assert outcome.complaints == []


@dataclass(frozen=True)
class Crash:
    def perform(self) -> list[str]:
        os.abort()


@dataclass(frozen=True)
class Endless:
    def perform(self) -> list[str]:
        while True:
            time.sleep(0)


@dataclass(frozen=True)
class Fine:
    def perform(self) -> list[str]:
        return []


@pytest.mark.slow
def test_crashes_and_endless_programs_are_failures() -> None:
    outcomes = run_all([Fine(), Crash(), Fine(), Endless(), Fine()], 1, limit=0.5)
    found = {type(outcome.task).__name__: outcome.complaints for outcome in outcomes}
    assert found["Fine"] == []
    assert "ended with code -6" in found["Crash"][0]
    assert "not done after" in found["Endless"][0]


def test_a_worker_is_replaced_after_a_crash() -> None:
    with Worker(limit=30) as worker:
        assert worker.run(Crash()).complaints
        assert worker.run(Fine()).complaints == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tvm_autodiff.DenseSumWarning")  # numbers, not speed
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_checker_sees_a_wrong_entry(dtype: str) -> None:
    """Of every gradient the smallest entry that is not zero, wrong by a part of itself."""
    features = ("basic",) if dtype == "float64" else (dtype,)
    seen = tried = 0
    for seed in range(30):
        made = Made(random_case(seed, features))
        [call] = made.case.calls
        inputs = zip([*made.inputs, *made.heads], made.arrays(call), strict=True)
        found = evaluate_graph(made.outputs, list(inputs))
        assert list(made.judge(call, found)) == []
        for label, wanted in call.wanted.items():
            # an entry may be what is left of large ones: then rounding hides it
            entries = np.flatnonzero(wanted.tolerance < 0.1 * np.abs(wanted.value))
            if not entries.size:
                continue
            place = entries[np.argmin(np.abs(wanted.value.flat[entries]))]
            off = np.array(wanted.value)
            off.flat[place] *= 1.2
            changed = {**call.wanted, label: replace(wanted, value=off)}
            tried += 1
            seen += any(label in c for c in made.judge(replace(call, wanted=changed), found))
    assert seen == tried > 50


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("through", [1, 2])
def test_what_is_left_of_terms_is_held_to_the_rounding_of_the_terms(
    ties: bool, dtype: str, through: int
) -> None:
    """``out[i] = S*S*0.5 + S`` at S = -1: its cotangents cancel, in each order differently."""
    count, rng = 30, np.random.default_rng(0)
    read = Node("load", (Node("int", value=0),), "A", "float")
    stages = []
    for place in range(through):  # copies, through which what is left goes on
        stages.append(Stage(f"S{place}", (("i", 1),), (read,), dtype))
        read = Node("load", (Node("int", value=0),), f"S{place}", "float")
    half = Node("const", value=0.5, dtype="float")
    square = Node("mul", (Node("mul", (read, read), dtype="float"), half), dtype="float")
    body = Node("add", (square, read), dtype="float")
    stages.append(Stage("out", (("i", count),), (body,), dtype))
    program = Program((Input("A", (1,), dtype),), tuple(stages))
    run = cases.run_of(program, {"A": np.array([-1.0])}, {}, None if ties else rng)
    run.noise = rng
    head = rng.uniform(-1, 1, count).astype(dtype)
    wanted = cases.gradients_of(program, run, head, "plain", {"A": np.array([-1.0])})["d/dA"]
    orders = [rng.permutation(np.concatenate([head, -head])) for _ in range(50)]
    left = max(abs(sum(order, np.zeros((), dtype))) for order in orders)
    largest = 100 * np.finfo(dtype).eps * 2 * np.abs(head).sum()
    assert 0 < left <= wanted.tolerance[0] < largest


def test_a_gradient_is_held_to_the_least_number_of_its_own_dtype() -> None:
    """``A*B``, B in float16 and A in bfloat16: eps is coarser in A's, the least number in B's."""
    factors = tuple(read(name, variable("i")) for name in ("A", "B"))
    body = Node("mul", factors, dtype="float")
    stage = Stage("S0", (("i", 1),), (body,), "float32")
    program = Program((Input("A", (1,), "bfloat16"), Input("B", (1,), "float16")), (stage,))
    inputs = {"A": np.array([1e-9]), "B": np.array([1e-9])}
    run = cases.run_of(program, inputs, {}, np.random.default_rng(0))
    found = cases.gradients_of(program, run, np.ones(1), "plain", inputs)
    assert found["d/dB"].tolerance > 1e-9 == np.float64(found["d/dB"].value)
    assert np.float16(1e-9) == 0 < found["d/dA"].tolerance < 1e-9


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_state_that_grows_again_keeps_its_rounding(dtype: str) -> None:
    """``s + t - s*t`` over 0.9, ..., 0.9, -9, ..., -9: 1 - s shrinks to nothing and grows again."""
    terms = np.repeat([0.9, -9.0], 8).astype(numpy_dtype(dtype))
    state = np.zeros((), terms.dtype)
    for term in terms:
        state = state + term - state * term
    read = Node("load", (Node("var", value="k"),), "A", "float")
    stage = Stage("S", (("i", 1),), (read,), dtype, "either", (("k", 0, len(terms)),))
    program = Program((Input("A", (len(terms),), dtype),), (stage,))
    run = cases.run_of(program, {"A": terms}, {}, np.random.default_rng(0))
    values = run.tensors["S"]
    tolerance = cases.spread(values, np.abs(values), dtype)
    assert abs(float(state) - values[0, 0]) <= tolerance[0]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_rounding_does_to_a_user_reducer_is_allowed(dtype: str) -> None:
    """``a + b - a*b`` over 24 elements: large factors make what small products lost visible."""
    rows, width = 12, 24
    source = read("A", variable("i"), variable("k"))
    reduced = (("k", 0, width),)
    stage = Stage("S0", (("i", rows),), (source,), dtype, "either", reduced)
    program = Program((Input("A", (rows, width), dtype),), (stage,))
    options = Options(dtype=dtype, mode="forward")
    worst = tried = 0
    for seed in range(60):
        call, _ = call_for(program, options, {}, np.random.default_rng(seed))
        if call is None:  # too large for the dtype
            continue
        state = np.zeros(rows, dtype)
        for term in call.inputs["A"].T:
            state = state + term - state * term
        wanted = call.wanted["S0"]
        worst = max(worst, np.max(np.abs(state - wanted.value) / wanted.tolerance))
        tried += 1
    assert tried > 20
    assert 0.02 < worst <= 1


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_tie_that_a_step_breaks_is_a_kink(op: str, place: int) -> None:
    """``max(0, x*x)`` at zero, in any order: every step takes the second derivative elsewhere."""
    x = read("A", variable("i"))
    square = Node("mul", (x, x), dtype="float")
    if op == "min":
        square = Node("mul", (square, literal(-1)), dtype="float")
    operands = [Node("mul", (x, literal(0)), dtype="float"), square]
    body = Node(op, tuple(operands if place else reversed(operands)), dtype="float")
    stage = Stage("S0", (("i", 1),), (body,), "float64")
    program = Program((Input("A", (1,), "float64"),), (stage,))
    run = Run(program, steps({"A": np.zeros(1)}), {})
    run.evaluate()
    assert not agree(run.decisions)


def differences(case: Case) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Central differences of the interpreter's values, of fourth order, by every input."""
    [call] = case.calls
    arrays = {x.name: np.asarray(call.inputs[x.name], float) for x in case.program.inputs}
    run = Run(case.program, steps(arrays), {})
    run.evaluate()
    if any(np.any(choice != choice[:1]) for choice in run.decisions):
        return
    count = len(run.tensors["A"])
    weighted = np.zeros((count, *call.head.shape)) + run.tensors[case.program.differentiable]
    weighted = (weighted * call.head).reshape(count, -1)
    rows = weighted.sum(axis=1)[1:].reshape(-1, 4)
    slopes = (rows @ [1, -8, 8, -1]) / (12 * 2e-4)
    offset = 0
    for name, array in arrays.items():
        part = slopes[offset : offset + array.size].reshape(array.shape)
        yield name, part, call.wanted[f"d/d{name}"].value
        offset += array.size


@pytest.mark.parametrize("features", ["basic", "branches", "reducers", "ragged", "windows"])
def test_the_reference_equals_central_differences(features: str) -> None:
    compared = 0
    for seed in range(25):
        case = random_case(seed, (features,))
        if case.mode != "plain" or len(case.calls) > 1 or case.options.dtype != "float64":
            continue
        for name, slopes, wanted in differences(case):
            scale = 1e-6 * (1 + np.abs(wanted).max(initial=0))
            np.testing.assert_allclose(
                slopes, wanted, atol=scale, rtol=1e-6, err_msg=f"{seed} {name}"
            )
            compared += 1
    assert compared >= 15


DRAWN = 50  #: programs of each feature that are drawn
#: feature → text, and the least number of programs in a hundred that have it
COVERAGE = {
    "basic": {
        "te.sum(": 13, "te.max(": 2, "te.min(": 2, "prod(": 3, "where=": 3, "init=": 1,
        "//": 13, "%": 13, "* -": 20, "te.truncdiv": 2, "te.truncmod": 2, "if_then_else": 10,
        "Select": 3, "MAX(": 10, "te.abs": 3, "Cast": 2, "S2": 5, "te.placeholder((),": 1,
    },
    "symbolic": {'te.var("n"': 50, 'te.var("h"': 10, "(n - 1)": 10, "(n // 2)": 3, "(n + h)": 1},
    "int64": {'const(3, "int64")': 16},
    "narrow": {'"uint8"': 10, '"int8"': 6, '"uint32"': 6, "(259,": 1},
    "wraps": {'Cast("uint8"': 10, 'Cast("uint32"': 6, 'Cast("float16"': 3, 'Cast("int8"': 5},
    "ragged": {"(lambda k": 20},
    "jagged": {"L(": 20},
    "reducers": {"argmax(": 5, "argmin(": 3, "moments(": 3, "either(": 3, "positive(": 3},
    "mixed": {'"float16"': 10, 'Cast("float32", A(': 5},
    "dtypes": {
        "tirx.hypot": 14, "tirx.atan2": 14, "tirx.fmod": 10, "tirx.copysign": 14,
        'Cast("float64"': 14, 'Cast("int64", MAX(': 4, 'Cast("uint8", MAX(': 4, '"bfloat16"': 8,
    },
}  # fmt: skip


@pytest.mark.slow
def test_mixed_programs_have_every_feature() -> None:
    """Each in one of thirty programs at least, most of them beside others."""
    drawn = [case_for(seed, KINDS) for seed in range(200)]
    found = Counter(name for case in drawn for name in features_of(case))
    assert [name for name in KINDS if found[name] < 6] == []
    beside = Counter(n for case in drawn if len(features_of(case)) > 1 for n in features_of(case))
    assert [name for name in KINDS if beside[name] < 5] == ["extremes", "large"]


def features_of(case: Case | LargeCase) -> tuple[str, ...]:
    return ("large",) if isinstance(case, LargeCase) else case.options.features


@pytest.mark.parametrize("feature", COVERAGE)
def test_programs_cover_what_they_should(feature: str) -> None:
    drawn = [random_case(seed, (feature,)) for seed in range(DRAWN)]
    sources = [case.program.source()[len(HEADER) :] for case in drawn]
    for text, least in COVERAGE[feature].items():
        assert sum(text in source for source in sources) >= least * DRAWN / 100, text
    zero = [call for case in drawn for call in case.calls if 0 in call.sizes.values()]
    assert len(zero) >= (15 * DRAWN / 100 if feature == "symbolic" else 0)
