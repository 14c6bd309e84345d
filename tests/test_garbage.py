"""Full collections wait until a program is differentiated and built."""

from __future__ import annotations

import gc
from collections.abc import Iterator

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
    gc.set_threshold(50, 2, 2)
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*before)
    gc.unfreeze()


def work() -> None:
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: te.tanh(x[i] * x[i]), name="y")
    ad.build([x], [y, *ad.differentiate(y, [x])], cache=False)


def objects() -> list[list[int]]:
    return [[n] for n in range(10_000)]


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
