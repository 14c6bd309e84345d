"""Places of temporaries: none lies in another that lives at the same time."""

from __future__ import annotations

import random

import pytest

from tvm_autodiff.codegen.host.workspace import Temporary, plan_workspace


@pytest.mark.parametrize(
    ("lives", "storages", "size"),
    [
        ([], [], 0),
        ([("a", 0, 0, 1)], [(0, ["a"])], 320),
        ([("a", 8, 0, 1), ("b", 8, 1, 2)], [(8, ["a"]), (8, ["b"])], 768),
        ([("a", 8, 0, 1), ("b", 80, 2, 2)], [(80, ["a", "b"])], 448),
        ([("a", 8, 0, 3), ("b", 80, 1, 2), ("c", 64, 3, 4)], [(80, ["b", "c"]), (8, ["a"])], 832),
        # a small one goes into the smallest storage that is free
        ([("a", 90, 0, 0), ("b", 70, 0, 0), ("c", 9, 1, 1)], [(90, ["a"]), (70, ["b", "c"])], 896),
    ],
)
def test_plans(lives, storages, size):
    plan = plan_workspace([Temporary(*life) for life in lives], 64)
    assert [(storage.size, storage.tensors) for storage in plan.storages] == storages
    assert plan.size == size


@pytest.mark.parametrize("seed", range(20))
def test_what_lives_at_once_lies_apart(seed):
    rng = random.Random(seed)
    temporaries = []
    for number in range(40):
        last = number + rng.randrange(8)
        temporaries.append(Temporary(f"t{number}", rng.randrange(300), number // 2, last))
    plan = plan_workspace(temporaries, 64)
    places = list(zip(temporaries, plan.offsets, strict=True))
    for one, start in places:
        assert start % 64 == 0
        assert start + one.size <= plan.size
        for other, begin in places:
            if one is not other and one.first <= other.last and other.first <= one.last:
                assert start + one.size <= begin or begin + other.size <= start


def test_storages_of_a_page_begin_at_different_places():
    plan = plan_workspace([Temporary(f"t{n}", 4096, 0, 1) for n in range(64)], 64)
    assert len({offset % 4096 for offset in plan.offsets}) == 64
