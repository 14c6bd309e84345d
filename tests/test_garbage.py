"""Full collections wait until a program is differentiated and built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.garbage import collected_later


@pytest.fixture
def full() -> Iterator[list[int]]:
    """The full collections, which few objects start here."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            seen.append(info["generation"])

    before = gc.get_threshold()
    gc.freeze()  # a full collection waits for a quarter of the objects that are not frozen
    gc.set_threshold(700, 10, 1)
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*before)
    gc.unfreeze()


def work() -> None:
    x = te.placeholder((64, 64), name="x")

    def product(value: Any) -> Any:
        k = te.reduce_axis((0, 64), "k")
        return te.compute((64, 64), lambda i, j: te.sum(value[i, k] * x[k, j], axis=k))

    value = product(product(product(product(x))))
    ad.build([x], [value, *ad.vjp([value], [x], [x])], cache=False)


def objects() -> list[list[int]]:
    return [[n] for n in range(50_000)]


def test_none_in_a_build(full: list[int]) -> None:
    work()
    assert not full
    assert objects()
    assert full


def test_settings_return_after_errors_and_in_nested_contexts() -> None:
    before = gc.get_threshold()
    inside: list[tuple[int, int, int]] = []

    @collected_later()
    @collected_later()
    def fail() -> None:
        inside.append(gc.get_threshold())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert gc.get_threshold() == before
    [(first, second, third)] = inside
    assert (first, second) == before[:2]
    assert third > before[2]
