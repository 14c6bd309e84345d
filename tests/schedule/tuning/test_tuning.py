"""Tuning: what is asked, what is kept, and that tuned kernels are right."""

from __future__ import annotations

import inspect
import json
import sys
import threading

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.tuning import choice, search
from tvm_autodiff.schedule.tuning.measure import TooSlowError, in_time, seconds_of

pytestmark = pytest.mark.slow

MACHINE = machine_of(as_target(None), 1)


def product(rows=6, inner=5, columns=7):
    a = te.placeholder((rows, inner), name="a")
    b = te.placeholder((inner, columns), name="b")
    k = te.reduce_axis((0, inner), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return [a, b], c


def operands(inputs):
    rng = np.random.default_rng(0)
    return [rng.random([int(n) for n in t.shape], dtype="float32") for t in inputs]


def trials_in(folder):
    return len((folder / "database_tuning_record.json").read_text().splitlines())


BAD = {
    "negative trials": ({"trials": -1}, "trials"),
    "trials as text": ({"trials": "8"}, "trials"),
    "negative time": ({"seconds": -1.0}, "seconds"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_refused(name):
    options, match = BAD[name]
    with pytest.raises(ad.InvalidArgumentError, match=match):
        ad.Tuning(**options)


def test_a_file_is_no_database(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ad.InvalidArgumentError, match="is a file"):
        ad.Tuning(database=tmp_path / "file")


def test_tune_takes_a_tuning():
    inputs, c = product()
    with pytest.raises(ad.InvalidArgumentError, match="must be a Tuning, got int"):
        ad.build(inputs, c, tune=64)


def test_only_cpus_are_tuned(tmp_path):
    inputs, c = product()
    target = {"kind": "cuda", "arch": "sm_90"}
    with pytest.raises(ad.InvalidArgumentError, match="only kernels for a CPU"):
        ad.build(inputs, c, target, tune=ad.Tuning(database=tmp_path))


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A database with a trial of one product."""
    folder = tmp_path_factory.mktemp("schedules")
    inputs, c = product()
    tuning = ad.Tuning(trials=1, database=folder, progress=False)
    return folder, ad.build(inputs, c, num_threads=1, tune=tuning)


def test_a_search_leaves_its_trials_and_both_times(searched):
    folder, _ = searched
    assert trials_in(folder) >= 1
    [times] = json.loads((folder / "times.json").read_text()).values()
    assert set(times) == {"rules", "tuned"}


def test_a_tuned_function_is_right(searched):
    inputs, _ = product()
    a, b = operands(inputs)
    np.testing.assert_allclose(searched[1](a, b), a @ b, rtol=1e-5)


def test_what_is_known_is_not_searched_again(searched, monkeypatch):
    folder, _ = searched
    before = trials_in(folder)
    monkeypatch.setattr(search.ms, "tune_tir", None)
    inputs, c = product()
    ad.build(inputs, c, num_threads=1, tune=ad.Tuning(trials=8, database=folder))
    assert trials_in(folder) == before


@pytest.mark.parametrize(("rules", "tuned", "name"), [(2.0, 1.0, "tuned"), (1.0, 2.0, None)])
def test_the_faster_schedule_is_taken(searched, tmp_path, rules, tuned, name):
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in searched[0].glob("*.json"):
        (folder / file.name).write_text(file.read_text())
    [key] = json.loads((folder / "times.json").read_text())
    (folder / "times.json").write_text(json.dumps({key: {"rules": rules, "tuned": tuned}}))
    inputs, c = product()
    arrays = operands(inputs)
    function = ad.build(
        inputs, c, num_threads=1, tune=ad.Tuning(trials=0, database=folder, progress=False)
    )
    assert ("tuned" in str(function.profile(*arrays))) == (name == "tuned")
    np.testing.assert_allclose(function(*arrays), arrays[0] @ arrays[1], rtol=1e-5)


def test_no_trials_and_no_database_is_the_rules_program(tmp_path):
    inputs, c = product()
    folder = tmp_path / "none"
    arrays = operands(inputs)
    function = ad.build(inputs, c, tune=ad.Tuning(trials=0, database=folder))
    np.testing.assert_allclose(function(*arrays), arrays[0] @ arrays[1], rtol=1e-5)
    assert not folder.exists()


def test_time_that_is_up_ends_a_search_and_keeps_its_batch(tmp_path):
    (inputs, c), (others, d) = product(4, 3, 5), product(3, 4, 2)
    tuning = ad.Tuning(trials=2, database=tmp_path, seconds=0.0, progress=False)
    ad.build([*inputs, *others], [c, d], num_threads=1, tune=tuning)
    assert trials_in(tmp_path) == 1


def test_symbolic_kernels_and_chains_are_left_to_the_rules(tmp_path):
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] * 2.0, name="y")
    function = ad.build(x, y, tune=ad.Tuning(trials=8, database=tmp_path, progress=False))
    np.testing.assert_allclose(function(np.ones(3, "float32")), 2 * np.ones(3))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["importlib._bootstrap", "importlib._bootstrap_external"])
def test_frames_of_an_import_are_found_without_a_look_through_all_modules(searched, name):
    file = f"<frozen {name}>"
    assert inspect.getmodule(compile("0", file, "eval"), file) is sys.modules[name]


def test_measuring_takes_integers_and_half_floats():
    index = te.placeholder((4,), "int32", name="index")
    x = te.placeholder((9,), "bfloat16", name="x")
    y = te.compute((4,), lambda i: x[index[i]], name="y")
    function = choice.stage_function([y.op], [y])
    assert seconds_of(function, MACHINE.target) > 0


def test_a_candidate_that_takes_too_long_is_left():
    """LLVM was seen to take minutes for a schedule, and cannot be stopped."""
    done = threading.Event()
    with pytest.raises(TooSlowError, match=r"more than 0\.01 s"):
        in_time(0.01, done.wait)
    done.set()
    assert in_time(60, divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        in_time(60, divmod, 7, 0)
