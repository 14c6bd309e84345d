"""Random sums of products, guards and odd index forms included: schedules give what numpy gives."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tvm import te

from tests.schedule.test_rules import arrays_for, expected, rules_of
from tvm_autodiff.compile import build
from tvm_autodiff.schedule.cpu import contraction

COEFFICIENTS = (1, 1, 1, 1, 2, -1, 3)


def random_nest(seed):
    """Inputs and output of a sum of products over one to three operands."""
    rng = random.Random(seed)
    shape = [rng.choice((1, 2, 3, 5, 8, 13, 16, 17, 32)) for _ in range(rng.randint(1, 3))]
    reduced = [
        te.reduce_axis((0, rng.choice((1, 2, 3, 7, 16))), f"k{n}") for n in range(rng.randint(1, 2))
    ]
    forms = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        dims = []
        for _ in range(rng.randint(1, 3)):
            axes = rng.sample(range(len(shape) + len(reduced)), rng.choice((1, 1, 2)))
            dims.append(
                ([(a, rng.choice(COEFFICIENTS)) for a in axes], rng.choice((0, 0, 0, 1, -1)))
            )
        forms.append((dims, rng.random() < 0.4))
    extents = [*shape, *(int(k.dom.extent) for k in reduced)]
    inputs, reads = [], []
    for number, (dims, guarded) in enumerate(forms):
        tensor_shape, places = [], []
        for terms, offset in dims:
            low = sum(min(0, c * (extents[a] - 1)) for a, c in terms)
            high = sum(max(0, c * (extents[a] - 1)) for a, c in terms)
            span = high - low + 1
            # a guarded operand is smaller than what is asked of it
            size = max(1, span - rng.randint(0, 3)) if guarded else span
            tensor_shape.append(size)
            places.append((terms, (offset if guarded else 0) - low, size))
        inputs.append(te.placeholder(tensor_shape, name=f"X{number}"))
        reads.append((places, guarded))

    def body(*axes):
        loops = [*axes, *(k.var for k in reduced)]
        product, guards = None, []
        for tensor, (places, guarded) in zip(inputs, reads, strict=True):
            indices = []
            for terms, constant, size in places:
                index = sum((loops[a] * c for a, c in terms), start=0) + constant
                indices.append(index)
                if guarded:
                    guards += (
                        [index >= 0, index < size]
                        if rng.random() < 0.5
                        else [index >= 0, index <= size - 1]
                    )
            value = tensor(*indices)
            product = value if product is None else product * value
        if guards:
            product = te.if_then_else(te.all(*guards), product, 0.0)
        return te.sum(product, axis=reduced)

    return inputs, te.compute(shape, body, name="out")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_random_nests(block, monkeypatch):
    monkeypatch.setattr(contraction, "LAUNCH_CYCLES", 0)
    taken = []
    for seed in range(block * 12, block * 12 + 12):
        inputs, output = random_nest(seed)
        arrays = arrays_for(inputs, {}, seed)
        got = build(inputs, output)(*arrays)
        want = expected(inputs, output, arrays)
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")
        taken += rules_of(output)
    assert "contraction" in taken
