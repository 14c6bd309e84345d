"""How long `differentiate` takes: bars far above what it needs, so that only a slip trips them."""

from __future__ import annotations

import pytest

from benchmarks.differentiation_time import BARS, seconds_of


@pytest.mark.parametrize("name", ["one convolution", "residual, 50 layers"])
def test_below_the_bar(name):
    seconds_of("one convolution")
    assert min(seconds_of(name)[0] for _ in range(3)) < BARS[name]


def test_grows_with_the_number_of_layers_and_not_faster():
    few, many = (min(seconds_of(f"residual, {n} layers")[0] for _ in range(2)) for n in (10, 40))
    assert many < 2 * 4 * few
