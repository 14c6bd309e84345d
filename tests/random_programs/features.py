"""Classes of random programs by name: each can be run alone, and most combine.

A feature changes the `Options` of a program, or draws a whole program of a shape that the general
draw reaches too seldom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.random_programs.borders import CALLS, bordered_windows
from tests.random_programs.draw import (
    TOTAL,
    Draw,
    Options,
    both,
    cast,
    compare,
    integer,
    literal,
    read,
    variable,
)
from tests.random_programs.flat import flat_arrays
from tests.random_programs.nested import nested_indices
from tests.random_programs.programs import Input, Node, Program, Stage
from tests.random_programs.separate import separate_parts

Change = Callable[[Options, np.random.Generator], None]


@dataclass(frozen=True)
class Feature:
    """How a feature changes options; features of one `kind` exclude each other."""

    change: Change
    kind: str
    compiled: bool = False  #: whether the schedule is what is tried: an evaluation adds little


def _set(**values: Any) -> Change:
    def change(options: Options, rng: np.random.Generator) -> None:
        for name, value in values.items():
            setattr(options, name, value)

    return change


def _symbolic(options: Options, rng: np.random.Generator) -> None:
    options.size_dtype = "int64" if options.index == "int64" else "int32"
    if rng.random() < 0.6:
        options.assignments = [{"n": n} for n in (5, 3, 1, 0)]
    else:
        options.assignments = [
            {"n": 4, "h": 3},
            {"n": 2, "h": 5},
            {"n": 0, "h": 2},
            {"n": 3, "h": 0},
        ]
        if rng.random() < 0.5:  # h follows n: what a layer without a size of its own has
            options.assignments[3] = {"n": 1, "h": 1}


def _int64(options: Options, rng: np.random.Generator) -> None:
    options.index = options.size_dtype = "int64"


def _pairs_of_dtypes(options: Options, rng: np.random.Generator) -> None:
    options.dtype = str(rng.choice(["float32", "float64"]))
    options.mixed = options.pairs = True


def _scaled(options: Options, rng: np.random.Generator) -> None:
    """Rows divided by their largest element, of any magnitude at which an element that counts as
    zero, because it is subnormal, is less than a rounding of the quotient.
    """
    options.dtype = str(rng.choice(["float16", "float32", "bfloat16", "float64"]))
    lowest = {"float16": -17, "float32": -100, "bfloat16": -100, "float64": -960}[options.dtype]
    options.scales = tuple(2.0**n for n in (0, lowest // 2, lowest - 2, lowest, lowest + 5))
    options.mode = "forward"
    options.special = _rows


def _rows(draw: Draw) -> Program:
    rows, width = draw.between(1, 5), draw.pick((3, 8, 16, 33))
    A = Input("A", (rows, width), draw.dtype)
    axes = (("i", rows), ("j", width))
    top = Stage(
        "S0", axes[:1], (Node("abs", (read("A", variable("i"), variable("k")),), dtype="float"),),
        draw.dtype, "max", (("k", 0, width),),
    )  # fmt: skip
    a, s = read("A", variable("i"), variable("j")), read("S0", variable("i"))
    body = Draw.node("div", a, s)
    if draw.chance(0.3):
        body = Draw.node("mul", body, literal(draw.rng.uniform(-1, 1)))
    return draw.finished([A], [top, Stage("S1", axes, (body,), draw.dtype)])


def _extremes(options: Options, rng: np.random.Generator) -> None:
    """Products of three factors that are very large or small: their derivatives are not."""
    options.dtype, options.extremes = str(rng.choice(["float32", "float64"])), True
    options.mode, options.special = "backward", _three_factors


def _three_factors(draw: Draw) -> Program:
    rows = draw.between(1, 4)
    A = Input("A", (rows, 3), draw.dtype)
    places = (variable("i"), variable("k"))
    if draw.chance(0.4):
        places = (variable("i"), Node("sub", (integer(2), variable("k"))))
    stage = Stage("S0", (("i", rows),), (read("A", *places),), draw.dtype, "prod", (("k", 0, 3),))
    return draw.finished([A], [stage])


def _extern(options: Options, rng: np.random.Generator) -> None:
    options.dtype, options.mode, options.special = "float32", "forward", _calls_by_name


def _calls_by_name(draw: Draw) -> Program:
    """Stages that differ in the name of a function only, and others that differ in nothing."""
    n = draw.between(1, 6)
    A = Input("A", (n,), "float32")
    stages = []
    for place in range(draw.between(2, 4)):
        body = Draw.node(draw.pick(("sinf", "cosf")), read("A", variable("i")))
        stages.append(Stage(f"S{place}", (("i", n),), (body,), "float32"))
    total = read("S0", variable("i"))
    for place, stage in enumerate(stages[1:], 2):
        weighted = Draw.node("mul", literal(place), read(stage.name, variable("i")))
        total = Draw.node("add", total, weighted)
    return draw.finished([A], [*stages, Stage("T", (("i", n),), (total,), "float32")])


def _masks(options: Options, rng: np.random.Generator) -> None:
    options.special, options.cheap = _segments, True


def _segments(draw: Draw) -> Program:
    """``out[n(, j)] = Σ_e if index[e] == n then v[e(, j)]``, in several ways to write it."""
    count, segments = draw.between(20, 60), draw.between(20, 40)
    trailing = draw.pick(((), (3,)))
    places = Input("I", (count,), draw.pick(("int32", "int64")), 0, segments - 1)
    if draw.chance(0.3):
        places = Input("I", (count,), "int32", -2, segments + 3)
    V = Input("V", (count, *trailing), draw.dtype)
    place = Node("load", (variable("e"),), "I", places.dtype)
    n = variable("n")
    shift = draw.pick((0, 0, 1))
    holds = compare("eq", place, Node("add", (n, integer(shift))) if shift else n)
    if draw.chance(0.3):
        holds = compare("eq", n, place)
    inner = tuple(variable("j") for _ in trailing)
    v = read("V", variable("e"), *inner)
    if draw.chance(0.4):
        v = Draw.node(draw.pick(("sin", "tanh")), v)
    body = Draw.node(draw.pick(("if_then_else", "select")), holds, v, literal(0))
    axes = (("n", segments), *(("j", extent) for extent in trailing))
    stage = Stage("S0", axes, (body,), draw.dtype, "sum", (("e", 0, count),))
    return draw.finished([places, V], [stage])


def _windows(options: Options, rng: np.random.Generator) -> None:
    options.special = _chain_of_windows


def _chain_of_windows(draw: Draw) -> Program:
    """Reductions over windows of reductions over windows, guarded, clamped and periodic."""
    A = Input("A", (4, 5), draw.dtype)
    draw.tensors["A"] = A.shape
    stages: list[Stage] = []
    for place in range(3):
        extents = draw.pick(((5,), (4,), (3, 2), (2, 3)))
        axes = tuple(zip("ij", extents, strict=False))
        draw.spatial, draw.reduced = list(axes), []
        if place < 2:
            draw.reduced = [("k", 0, draw.between(2, 3)), ("m", 0, draw.between(2, 3))]
        source = "A" if not stages else stages[-1].name
        body = draw.load(source)
        body = draw.smooth(Draw.node(draw.pick(("add", "mul")), body, draw.load("A")), 1)
        if place == 0 or draw.chance(0.4):
            other = draw.smooth(draw.load(draw.tensor()), 1)
            body = Draw.node("mul", Draw.node("add", draw.load(source), body), other)
        reducer = draw.pick(("sum", "min", "max", "sum")) if place < 2 else None
        stage = Stage(f"S{place}", axes, (body,), draw.dtype, reducer, tuple(draw.reduced))
        stages.append(stage)
        draw.declare(stage)
    return draw.finished([A], stages)


def _nested(options: Options, rng: np.random.Generator) -> None:
    """Half of them twice differentiated, which is where indices grow."""
    options.special = nested_indices
    options.mode = str(rng.choice(["plain", "second"]))


def _joined(options: Options, rng: np.random.Generator) -> None:
    options.special = _stencil


def _stencil(draw: Draw) -> Program:
    """A weighted window whose weights are chosen by nested conditions, through a copy or not."""
    h, w, k = draw.between(3, 6), draw.between(3, 6), draw.pick((2, 3))
    parameters = draw.between(2, 3)
    A, C = Input("A", (h, w), draw.dtype), Input("C", (parameters,), draw.dtype)
    draw.tensors.update({"A": A.shape, "C": C.shape})
    i, j, p, q = (variable(name) for name in "ijkm")
    weight = read("C", integer(draw.between(0, parameters - 1)))
    for place in range(k * k - 1):
        here = both([compare("eq", p, integer(place // k)), compare("eq", q, integer(place % k))])
        chosen = read("C", integer(draw.between(0, parameters - 1)))
        weight = Draw.node("if_then_else", here, chosen, weight)
    stages = []
    if draw.chance(0.6):  # the weights as a stage of their own
        stages.append(Stage("W", (("k", k), ("m", k)), (weight,), draw.dtype))
        weight = read("W", p, q)
    window = read("A", Node("add", (i, p)), Node("add", (j, q)))
    axes = (("i", h - k + 1), ("j", w - k + 1))
    body = Draw.node("mul", weight, window)
    reduced = (("k", 0, k), ("m", 0, k))
    stages.append(Stage("S", axes, (body,), draw.dtype, "sum", reduced))
    return draw.finished([A, C], stages)


def _wide(options: Options, rng: np.random.Generator) -> None:
    options.dtype, options.special = "float32", _guarded_rows
    options.assignments = [{"n": n, "h": m} for n, m in ((37, 41), (5, 9), (1, 300), (0, 3))]


def _guarded_rows(draw: Draw) -> Program:
    """Rows of a constant width behind guards of symbolic sizes, reduced and used."""
    width = draw.pick((100, 128, 256, 1000, 37))
    n, m = variable("n"), variable("h")
    A, B = Input("A", (n, width), "float32"), Input("B", (m,), "float32")
    i, k = variable("i"), variable("k")
    offset = draw.pick((0, 0, 1, 2))
    row = Node("sub", (i, integer(offset))) if offset else i
    guards = [compare("lt", row, n)]
    if offset:
        guards.insert(0, compare("ge", row, integer(0)))
    column, extent = k, width
    if draw.chance(0.4):  # padded columns
        column, extent = Node("sub", (k, integer(1))), width + 2
        guards += [compare("ge", column, integer(0)), compare("lt", column, integer(width))]
    guarded = Draw.node("if_then_else", both(guards), read("A", row, column), literal(0))
    reducer = draw.pick(("sum", "max", "sum"))
    stages = []
    if draw.chance(0.4):
        stages.append(Stage("P", (("i", m), ("k", extent)), (guarded,), "float32"))
        guarded = read("P", i, k)
    stages.append(Stage("S", (("i", m),), (guarded,), "float32", reducer, (("k", 0, extent),)))
    total = Draw.node("add", read("S", i), read("B", i))
    stages.append(Stage("T", (("i", m),), (total,), "float32"))
    return draw.finished([A, B], stages)


def _borders(options: Options, rng: np.random.Generator) -> None:
    options.special = bordered_windows
    options.assignments = [{"n": n, "h": h} for n, h in CALLS]


def _frames(options: Options, rng: np.random.Generator) -> None:
    # literal extents may be narrower than sizes
    options.size_dtype = str(rng.choice([options.index, "int64"]))
    options.special = _long_frames
    options.assignments = [{"n": n} for n in (400, 131, 129)]


def _long_frames(draw: Draw) -> Program:
    """Frames longer than a comparison takes a size to be, filtered: none where n is too short."""
    width, stride = draw.pick((64, 90, 100, 130)), draw.pick((1, 1, 7, 45, 211))
    n, i, k = variable("n"), variable("i"), variable("k")
    last = Node("floordiv", (Node("sub", (n, integer(width))), integer(stride)))
    frames = Node("add", (last, integer(1)))
    A, B = Input("A", (n,), draw.dtype), Input("B", (width,), draw.dtype)
    sample = read("A", Node("add", (Node("mul", (i, integer(stride))), k)))
    if draw.chance(0.5):
        sample = Draw.node("tanh", sample)
    other = draw.pick((read("B", k), sample))
    body = Draw.node("mul", sample, other)
    stage = Stage("S", (("i", frames),), (body,), draw.dtype, "sum", (("k", 0, width),))
    return draw.finished([A, B], [stage])


def _pairs(options: Options, rng: np.random.Generator) -> None:
    options.special = _energy_of_pairs
    if rng.random() < 0.4:
        options.assignments = [{"n": n} for n in (70, 5, 0)]


def _energy_of_pairs(draw: Draw) -> Program:
    """A function of all pairs of points: its derivatives are sums that share it."""
    symbolic = draw.options.assignments is not None
    size = variable("n") if symbolic else draw.between(64, 90)
    count = draw.between(2, 3)
    i, j = variable("i"), variable("j")
    A, B = Input("A", (size, count), draw.dtype), Input("B", (size,), draw.dtype)
    square = literal(0.5)
    for c in range(count):
        d = Draw.node("sub", *(read("A", at, integer(c)) for at in (i, j)))
        square = Draw.node("add", square, Draw.node("mul", d, d))
    near = Draw.node(draw.pick(("rsqrt", "sqrt", "log", *TOTAL)), square)
    body = Draw.node("mul", Draw.node("mul", read("B", i), read("B", j)), near)
    if draw.chance(0.6):
        body = Draw.node("if_then_else", compare("lt", i, j), body, literal(0))
    ends = (("i", 0, size), ("j", 0, size))
    if draw.chance(0.5):
        stage = Stage("S", (), (body,), draw.dtype, "sum", ends)
    else:
        stage = Stage("S", (("i", size),), (body,), draw.dtype, "sum", ends[1:])
    return draw.finished([A, B], [stage])


def _empty(options: Options, rng: np.random.Generator) -> None:
    options.special = _maybe_empty_sums
    options.assignments = [{"n": n, "h": h} for n, h in ((5, 3), (4, 0), (1, 1), (0, 2))]


def _maybe_empty_sums(draw: Draw) -> Program:
    """Sums that may have no terms, with factors and divisors that mean nothing without a term."""
    n, h = variable("n"), variable("h")
    i, j, k = (variable(name) for name in "ijk")
    A, B = Input("A", (n,), draw.dtype), Input("B", (h,), draw.dtype)
    if draw.chance(0.5):  # k < i: the place divides
        place = draw.pick((i, Node("add", (i, integer(1)))))
        term = Draw.node("div", read("A", k), cast(place, "float"))
        reduced = ("k", 0, i)
        if draw.chance(0.3):
            term = Draw.node("if_then_else", compare("lt", k, i), term, literal(0))
            reduced = ("k", 0, n)
        axes = [("i", n)]
    else:
        wrapped = Node("mod_if_any", (i, h))
        factors = [read("A", i), read("B", wrapped), read("B", k)]
        if draw.chance(0.5):
            factors[2] = Draw.node(draw.pick(TOTAL), factors[2])
        if draw.chance(0.5):
            factors[0] = Draw.node("div", factors[0], cast(h, "float"))
            if draw.chance(0.4):
                factors[:2] = [Draw.node("div", literal(1), cast(h, "float"))]
        axes = [("i", n)]
        if draw.chance(0.4):
            factors.append(read("A", j))
            axes.append(("j", n))
        order = draw.rng.permutation(len(factors))
        term = factors[order[0]]
        for number in order[1:]:
            term = Draw.node("mul", term, factors[number])
        reduced = ("k", 0, h)
    if draw.chance(0.3):
        term = Draw.node("mul", term, literal(draw.rng.uniform(-1, 1)))
    return draw.finished([A, B], [Stage("S", tuple(axes), (term,), draw.dtype, "sum", (reduced,))])


def _shifts(options: Options, rng: np.random.Generator) -> None:
    options.special = _shifted_places


def _shifted_places(draw: Draw) -> Program:
    """Reads at shifts to the left, which may pass 32 bits before a remainder is taken."""
    count, extent = draw.between(3, 9), draw.pick((3, 5, 7, 6))
    A = Input("A", (extent,), draw.dtype)
    # exact, as indices are computed: int32 in te
    bits = integer(draw.pick((1, 2, 28, 29, 30)))
    place = Node("shift_left", (variable("i"), bits), dtype="int64")
    if draw.chance(0.4):
        place = Node("add", (place, variable("k")), dtype="int64")
    body = read("A", Node("floormod", (place, integer(extent)), dtype="int64"))
    if draw.chance(0.5):
        body = Draw.node("sin", body)
    stage = Stage("S", (("i", count),), (body,), draw.dtype, "sum", (("k", 0, draw.between(1, 3)),))
    return draw.finished([A], [stage])


def _patches(options: Options, rng: np.random.Generator) -> None:
    options.special = _compared_patches


def _compared_patches(draw: Draw) -> Program:
    """Patches of a tensor beside shifted ones, and the neighbours that they weigh: what is summed
    in a gradient is bounded by several axes at once.
    """
    plane = draw.chance(0.4)
    shifts, size = draw.between(2, 5), draw.between(2, 4)
    rows = draw.between(6, 14)
    columns = draw.between(5, 9) if plane else draw.between(3, 30)
    centre, border = draw.between(0, shifts - 1), shifts + size - 2
    width = columns + border if plane else columns
    A, B = (Input(name, (rows + border, width), draw.dtype) for name in "AB")
    other = draw.pick(("A", "B"))
    i, j, a, b, k, m = (variable(name) for name in ("i", "j", "a", "b", "k", "m"))

    def place(axis: Node, *terms: Node) -> Node:
        for term in terms:
            axis = Node("add", (axis, term))
        return axis

    def patch(tensor: str, down: Node, right: Node) -> Node:
        column = place(j, right, m) if plane else j
        return read(tensor, place(i, down, k), column)

    left = patch("A", integer(centre), integer(centre))
    right = patch(other, a, b)
    compared = Draw.node("sub", left, right)
    term = draw.pick((Draw.node("mul", compared, compared), Draw.node("mul", left, right)))
    near = (("a", shifts), ("b", shifts)) if plane else (("a", shifts),)
    within = (("k", 0, size), ("m", 0, size)) if plane else (("k", 0, size),)
    around = tuple((name, 0, extent) for name, extent in near)
    results = (("i", rows), ("j", columns))
    if draw.chance(0.3):
        stage = Stage("S", results, (term,), draw.dtype, "sum", (*around, *within))
        return draw.finished([A, B], [stage])
    scores = Stage("S", (*near, *results), (term,), draw.dtype, "sum", within)
    names = [variable(name) for name, _ in (*near, *results)]
    weight = Draw.node("tanh", read("S", *names))
    neighbour = read("B", place(i, a), place(j, b) if plane else j)
    total = Draw.node("mul", weight, neighbour)
    stages = [scores, Stage("T", results, (total,), draw.dtype, "sum", around)]
    return draw.finished([A, B], stages)


def _flat(options: Options, rng: np.random.Generator) -> None:
    options.special = flat_arrays


def _parts(options: Options, rng: np.random.Generator) -> None:
    options.special = separate_parts
    if rng.random() < 0.3:
        options.assignments = [{"n": n} for n in (12, 5, 1, 0)]


def _narrow_rows(options: Options, rng: np.random.Generator) -> None:
    options.special = _narrow_table


def _narrow_table(draw: Draw) -> Program:
    """Rows of a table that has more of them than its index tensor can name."""
    dtype = draw.pick(("uint8", "int8", "uint16", "int16", "uint32"))
    rows = draw.pick((5, 130, 255, 256, 259, 300))
    limits = np.iinfo(dtype)
    high = min(rows + draw.pick((-1, -1, 3)), limits.max)
    low = draw.pick((0, 0, -2)) if dtype.startswith("i") else 0
    count = draw.between(1, 6)
    columns = draw.between(1, 4)
    T = Input("A", (rows, columns), draw.dtype)
    places = Input("I", (count,), dtype, max(low, limits.min), high)
    index = Node("load", (variable("i"),), "I", dtype)
    wide = cast(index, "int32")
    form = index if draw.chance(0.5) else wide
    guards = []
    if low < 0 or draw.chance(0.3):
        guards.append(compare("ge", form, integer(0)))
    if high >= rows or draw.chance(0.4):
        compared = form if rows - 1 <= limits.max else wide
        guards.append(compare("le", compared, integer(rows - 1)))
    body = read("A", form, variable("j"))
    if guards:
        body = Draw.node("if_then_else", both(guards), body, literal(0))
    stage = Stage("S", (("i", count), ("j", columns)), (body,), draw.dtype)
    return draw.finished([places, T], [stage])


FEATURES: dict[str, Feature] = {
    "basic": Feature(_set(), "plain"),
    "float32": Feature(_set(dtype="float32"), "dtype"),
    "float16": Feature(_set(dtype="float16"), "dtype"),
    "bfloat16": Feature(_set(dtype="bfloat16"), "dtype"),
    "mixed": Feature(_set(dtype="float32", mixed=True), "dtype"),
    "dtypes": Feature(_pairs_of_dtypes, "dtype"),
    "int64": Feature(_int64, "index"),
    "symbolic": Feature(_symbolic, "sizes"),
    "data": Feature(_set(data=True), "data"),
    "narrow": Feature(_set(data=True, narrow=True), "data"),
    "wraps": Feature(_set(wraps=True), "wraps"),
    "ragged": Feature(_set(ragged=True), "ranges"),
    "jagged": Feature(_set(jagged=True), "ranges"),
    "branches": Feature(_set(branches=True), "branches"),
    "reducers": Feature(_set(reducers=True), "reducers"),
    "ties": Feature(_set(reducers=True, ties=True), "reducers"),
    "prefix": Feature(_set(mode="prefix"), "mode"),
    "jacobian": Feature(_set(mode="jacobian"), "mode"),
    "second": Feature(_set(mode="second"), "mode"),
    "scaled": Feature(_scaled, "special", True),
    "extremes": Feature(_extremes, "special"),
    "extern": Feature(_extern, "special", True),
    "masks": Feature(_masks, "special"),
    "windows": Feature(_windows, "special", True),
    "nested": Feature(_nested, "special", True),
    "joined": Feature(_joined, "special"),
    "wide": Feature(_wide, "special", True),
    "tables": Feature(_narrow_rows, "special"),
    "borders": Feature(_borders, "special", True),
    "frames": Feature(_frames, "special"),
    "pairs": Feature(_pairs, "special", True),
    "empty": Feature(_empty, "special", True),
    "shifts": Feature(_shifts, "special", True),
    "patches": Feature(_patches, "special", True),
    "flat": Feature(_flat, "special", True),
    "parts": Feature(_parts, "special"),
}
#: kinds that a whole program may be drawn in; the others change what the general draw makes
_WITH_SPECIAL = {
    "masks": ("dtype", "index"),
    "windows": ("index",),
    "joined": ("dtype", "index", "mode"),
    "tables": ("index", "dtype"),
    "wide": ("index",),
    "borders": ("index", "dtype"),
    "frames": ("index", "dtype"),
    "pairs": ("dtype",),
    "empty": ("dtype", "index", "mode"),
    "shifts": ("dtype",),
    "patches": ("dtype", "index"),
    "flat": ("dtype", "index", "mode"),
    "parts": ("dtype", "index", "mode"),
}


def chosen_features(
    rng: np.random.Generator, features: Sequence[str], always: str = ""
) -> tuple[str, ...]:
    """One of the features, or `always` this one, mostly with some others that go with it."""
    names = list(features)
    chosen = [always or names[rng.integers(len(names))]]
    for chance in (0.75, 0.5, 0.35):
        if rng.random() > chance:
            break
        kinds = {FEATURES[name].kind for name in chosen}
        others = [
            name
            for name in names
            if FEATURES[name].kind not in kinds | {"plain"} and _together([*chosen, name])
        ]
        if not others:
            break
        chosen.append(others[rng.integers(len(others))])
    order = list(FEATURES)
    return tuple(sorted(chosen, key=order.index))


def options_of(rng: np.random.Generator, chosen: Sequence[str]) -> Options:
    """The options of a program of some features."""
    options = Options(features=tuple(chosen))
    for name in chosen:
        FEATURES[name].change(options, rng)
    return options


def _together(names: Sequence[str]) -> bool:
    """Whether features go with each other: second derivatives are differences, which need float64;
    with ties there is no noise.
    """
    kinds = {FEATURES[name].kind for name in names}
    if "second" in names and ("dtype" in kinds or "ties" in names):
        return False
    if "ties" in names and kinds & {"dtype", "ranges"}:
        return False
    special = next((n for n in names if FEATURES[n].kind == "special"), None)
    allowed = _WITH_SPECIAL.get(special, ()) if special else ()
    return special is None or all(n == special or FEATURES[n].kind in allowed for n in names)
