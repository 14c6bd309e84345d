"""The choice of residuals beside all choices, one by one, on random small problems."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from fractions import Fraction

import pytest

from tvm_autodiff.partition.budget import within_budget
from tvm_autodiff.partition.closure import cheapest_closure
from tvm_autodiff.partition.problem import Choice, Item, Problem, cheapest


def drawn(seed: int) -> Problem:
    """A random graph of two inputs and up to five stages, some of them with two outputs."""
    rng = random.Random(seed)
    items = [Item(None, 0, rng.randint(0, 6)) for _ in range(2)]
    reads, work = [], []
    for stage in range(rng.randint(2, 5)):
        known = range(len(items))
        reads.append(tuple(sorted(rng.sample(known, rng.randint(1, min(3, len(items)))))))
        work.append(rng.randint(0, 9))
        count = rng.choice((1, 1, 2))
        items += [Item(stage, rng.randint(0, 9), rng.randint(0, 9)) for _ in range(count)]
    computed = range(2, len(items))
    needed = rng.sample(range(len(items)), rng.randint(1, min(4, len(items))))
    banned = [number for number in computed if rng.random() < 0.2]
    return Problem(items, reads, work, needed, frozenset(banned))


def all_choices(problem: Problem) -> Iterator[Choice]:
    """Every set of kept items and stages under which all that is read is there, by definition."""
    numbers, stages = range(len(problem.items)), range(len(problem.work))
    for kept in itertools.product((False, True), repeat=len(numbers)):
        if any(kept[number] for number in problem.banned):
            continue
        for again in itertools.product((False, True), repeat=len(stages)):
            there = [
                kept[n] or (item.stage is not None and again[item.stage])
                for n, item in enumerate(problem.items)
            ]
            read = [n for stage in stages if again[stage] for n in problem.reads[stage]]
            if all(there[number] for number in (*problem.needed, *read)):
                yield Choice(
                    frozenset(n for n in numbers if kept[n]),
                    frozenset(n for n in stages if again[n]),
                )


def is_valid(problem: Problem, choice: Choice) -> bool:
    there = {n for n, i in enumerate(problem.items) if i.stage in choice.again} | choice.kept
    read = {n for stage in choice.again for n in problem.reads[stage]}
    return {*problem.needed, *read} <= there and not choice.kept & problem.banned


@pytest.mark.parametrize("seed", range(40))
def test_a_cut_is_the_cheapest_choice(seed: int) -> None:
    problem = drawn(seed)
    for rate in (Fraction(0), Fraction(1, 3), Fraction(2)):
        found = cheapest(problem, rate)
        assert is_valid(problem, found)
        best = min(c.price(problem) + rate * c.bytes(problem) for c in all_choices(problem))
        assert found.price(problem) + rate * found.bytes(problem) == best


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_within_a_budget_does_less(seed: int) -> None:
    problem = drawn(seed)
    choices = [(c.bytes(problem), c.work(problem)) for c in all_choices(problem)]
    before = None
    for budget in range(sum(item.bytes for item in problem.items) + 2):
        found = within_budget(problem, budget)
        assert is_valid(problem, found.choice)
        assert found.exact(problem)
        assert found.choice.bytes(problem) <= budget
        work = found.choice.work(problem)
        assert work == min(work for size, work in choices if size <= budget)
        assert before is None or work <= before
        before = work


@pytest.mark.slow
def test_a_bound_is_told_where_not_everything_is_tried() -> None:
    """A knapsack of 60 items: branch and bound stops, and says how far off it may be."""
    rng = random.Random(0)
    items = [Item(None, 0, 0), *(Item(n, rng.randint(50, 99), 0) for n in range(400))]
    work = [item.bytes * 100 + rng.randint(0, 3) for item in items[1:]]
    problem = Problem(items, [(0,)] * 400, work, list(range(1, 401)))
    found = within_budget(problem, 10_001)
    assert found.choice.bytes(problem) <= 10_001
    assert 0 < found.bound <= found.choice.work(problem) <= 1.01 * found.bound


@pytest.mark.parametrize("seed", range(30))
def test_a_closure_is_the_cheapest_closed_set(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 7)
    costs = [rng.randint(-5, 5) for _ in range(count)]
    ways = [(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randint(0, 10))]
    required = rng.sample(range(count), rng.randint(0, 1))
    found = cheapest_closure(costs, ways, required)
    best = min(
        sum(costs[n] for n in chosen)
        for size in range(count + 1)
        for chosen in map(set, itertools.combinations(range(count), size))
        if chosen.issuperset(required) and all(b in chosen for a, b in ways if a in chosen)
    )
    assert found.issuperset(required)
    assert all(b in found for a, b in ways if a in found)
    assert sum(costs[n] for n in found) == best
