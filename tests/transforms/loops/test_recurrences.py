"""Recurrences in value, in both modes, and in second order, against `jax.lax.scan`."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.transforms.loops.recurrences import CASES, D

jax.config.update("jax_enable_x64", True)

#: what is compiled runs once
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Instance:
    """A case with inputs, directions and cotangents, and what JAX makes of them."""

    def __init__(self, name: str) -> None:
        case, rng = CASES[name], np.random.default_rng(list(name.encode()))
        self.inputs = [te.placeholder(s, D, name=f"x{n}") for n, s in enumerate(case.shapes)]
        self.outputs = case.ours(*self.inputs)

        def drawn(tensors, suffix):
            fresh = [te.placeholder(t.shape, D, name=f"{t.op.name}_{suffix}") for t in tensors]
            shapes = [[int(n) for n in t.shape] for t in tensors]
            return fresh, [rng.uniform(-case.scale, case.scale, s) for s in shapes]

        _, self.values = drawn(self.inputs, "value")
        self.dots, directions = drawn(self.inputs, "dot")
        self.bars, cotangents = drawn(self.outputs, "bar")
        self.known = list(
            zip(
                [*self.inputs, *self.dots, *self.bars],
                [*self.values, *directions, *cotangents],
                strict=True,
            )
        )

        def theirs(values, directions, cotangents):
            def gradient(*values):
                return jax.vjp(case.theirs, *values)[1](cotangents)

            outputs, pushed = jax.jvp(case.theirs, values, directions)
            pulled, second = jax.jvp(gradient, values, directions)
            return outputs, pushed, pulled, second

        given = (tuple(self.values), tuple(directions), cotangents)
        self.theirs = jax.jit(theirs).lower(*given).compile(FAST)(*given)

    def compare(self, tensors, wanted):
        found = evaluate_graph(list(tensors), self.known)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, np.asarray(other), rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module", params=CASES)
def this(request: pytest.FixtureRequest) -> Instance:
    """The tests of a case follow each other: JAX computes it once."""
    return Instance(request.param)


def test_value(this: Instance) -> None:
    this.compare(this.outputs, this.theirs[0])


def test_forward_mode(this: Instance) -> None:
    this.compare(ad.jvp(this.outputs, this.inputs, this.dots), this.theirs[1])


def test_reverse_mode(this: Instance) -> None:
    this.compare(ad.vjp(this.outputs, this.inputs, this.bars), this.theirs[2])


def test_forward_over_reverse(this: Instance) -> None:
    gradient = list(ad.vjp(this.outputs, this.inputs, this.bars))
    this.compare(ad.jvp(gradient, this.inputs, this.dots), this.theirs[3])


def test_reverse_over_reverse(this: Instance) -> None:
    """The second derivative is symmetric: both orders give the same."""
    gradient = list(ad.vjp(this.outputs, this.inputs, this.bars))
    this.compare(ad.vjp(gradient, this.inputs, this.dots), this.theirs[3])
