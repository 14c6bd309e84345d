"""`register_gradients`: what it registers, and errors that name the operator and the way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

import tvm_autodiff as ad
from tests.interop.relax.checks import called, check_gradient, machine, variables, weighted_sum
from tests.processes import without_torch
from tvm_autodiff.interop.relax import register_gradients
from tvm_autodiff.interop.relax.gradients import gradient_of, is_derived

ROOT = Path(__file__).parents[3]
R = relax.op


def test_a_second_call_changes_nothing():
    assert register_gradients(["erf"]) == ("relax.erf",)
    first = gradient_of("relax.erf")
    assert register_gradients(["relax.erf"]) == ("relax.erf",)
    assert gradient_of("relax.erf") == first
    assert register_gradients() == register_gradients()


def test_gradients_of_tvm_are_left_alone():
    assert register_gradients(["nn.softmax"]) == ()
    assert not is_derived("relax.nn.softmax")


OVERRIDE = """
import numpy as np
from tvm import relax, tirx
from tests.interop.relax.checks import check_gradient, variables, weighted_sum
from tvm_autodiff.interop.relax import register_gradients
from tvm_autodiff.interop.relax.gradients import is_derived
for _ in range(2):
    assert register_gradients(["nn.softmax", "concat"], override=True) == (
        "relax.nn.softmax", "relax.concat")
assert is_derived("relax.nn.softmax") and not is_derived("relax.nn.log_softmax")
arrays = [np.linspace(-1, 1, 12).reshape(3, 4), np.linspace(0, 1, 8).reshape(2, 4)]
def call(x, y):
    return relax.op.nn.softmax(relax.op.concat([x, y], 0), 0)
check_gradient(weighted_sum(call, variables(arrays)), arrays, 1e-7, 1e-3)
# TVM's own gradient of mean takes constant sizes only
register_gradients(["mean"], override=True)
params = variables(arrays[:1], tirx.Var("n", "int64"))
check_gradient(weighted_sum(relax.op.mean, params), arrays[:1], 1e-7, 1e-3)
"""


@pytest.mark.slow
def test_an_override_replaces_them():
    # in a process of its own: a gradient that TVM was given cannot be taken back
    subprocess.run([sys.executable, "-c", OVERRIDE], env=without_torch(), check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["nn.layer_nrom"], r"no operator relax.nn.layer_nrom; did you mean relax.nn.layer_norm\?"),
        (["sort"], r"relax.sort has no legaliser .*register_gradient\('relax.sort', \.\.\.\)"),
        ("erf", "only must be a list of names"),
        (3, "only must be a list of names of operators, got 3"),
    ],
)
def test_wrong_names(only, message):
    with pytest.raises(ad.InvalidArgumentError, match=message):
        register_gradients(only)


def test_errors_leave_passes_of_tvm_as_they_are():
    register_gradients()
    x = relax.Var("x", relax.TensorType((3, 5), "float32"))
    module = weighted_sum(lambda x: R.median(x, [1]), [x])
    message = r"relax.median has no gradient: .*register_gradient\('relax.median', ...\)"
    with pytest.raises(ad.NotDifferentiableError, match=message):
        relax.transform.Gradient("main")(module)


def test_a_layout_without_te_is_refused_by_name():
    register_gradients()
    x = relax.Var("x", relax.TensorType((1, 4, 8), "float32"))
    w = relax.Var("w", relax.TensorType((4, 4, 3), "float32"))
    module = weighted_sum(lambda x, w: R.nn.conv1d(x, w, out_layout="NWC"), [x, w])
    with pytest.raises(ad.NotDifferentiableError, match=r"relax.nn.conv1d has no gradient: a call"):
        relax.transform.Gradient("main")(module)


def test_results_of_the_forward_pass_are_used_again():
    register_gradients(["rsqrt"])
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    adjoint = relax.transform.Gradient("main")(weighted_sum(R.rsqrt, [x]))
    text = str(adjoint["rsqrt_gradient"])
    assert "T.rsqrt" not in text
    assert "T.sqrt" not in text


def test_gradients_that_share_nothing_are_functions_of_their_own():
    register_gradients(["nn.conv1d"])
    arrays = [np.ones((2, 2, 7)), np.ones((3, 2, 3))]
    module = weighted_sum(lambda x, w: R.nn.conv1d(x, w), variables(arrays))
    [_, weight] = module["main"].params
    adjoint = relax.transform.Gradient("main", [weight])(module)
    called_names = [
        binding.value.args[0].name_hint
        for binding in adjoint["main_adjoint"].body.blocks[0].bindings
        if str(getattr(getattr(binding.value, "op", None), "name", "")) == "relax.call_tir"
    ]
    assert len(called_names) == 1  # that of the data is dead, and gone


def test_integers_get_no_gradient_and_unread_floats_get_zeros():
    register_gradients(["eye_like", "argmax"])
    arrays = [np.arange(9.0).reshape(3, 3), np.ones((3, 3))]

    def make(x, y):
        return R.multiply(R.eye_like(y), R.multiply(x, R.astype(R.argmax(x, 1), "float64")))

    check_gradient(weighted_sum(make, variables(arrays)), arrays, 1e-7, 1e-3)


def test_constants_and_tuples_of_variables():
    register_gradients(["stack", "atan2"])
    arrays = [np.linspace(0.5, 1, 6).reshape(2, 3), np.linspace(1, 2, 6).reshape(2, 3)]
    angles = relax.const(np.array([0.5, 1.0, 2.0]), "float64")

    def make(x, y):
        pair = relax.Tuple([x, R.atan2(y, angles)])
        return R.stack(pair, 0)

    check_gradient(weighted_sum(make, variables(arrays)), arrays, 1e-7, 1e-3)


def test_the_pipeline_that_fuses_takes_derived_gradients():
    register_gradients(["nn.layer_norm"])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in ((4, 6), (6,), (6,))]
    module = weighted_sum(lambda x, g, b: R.nn.layer_norm(x, g, b, [-1]), variables(arrays))
    adjoint = relax.transform.Gradient("main")(module)
    plain = [one.numpy() for one in called(machine(adjoint), "main_adjoint", arrays)[1]]
    fused = [one.numpy() for one in called(machine(adjoint, fuse=True), "main_adjoint", arrays)[1]]
    for left, right in zip(plain, fused, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5)
