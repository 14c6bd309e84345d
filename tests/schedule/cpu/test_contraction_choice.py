"""When a contraction is tiled, copied or cut: by what is read again, not by what is computed."""

from __future__ import annotations

import platform

import pytest
from tvm import te, topi

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check, rules_of
from tvm_autodiff import build, differentiate
from tvm_autodiff.schedule.cpu import contraction as rule
from tvm_autodiff.schedule.cpu.contraction import contraction
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.cpu.tiles.copies import sets_of
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.fusion.repetition import repeated
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules


def dots(b, n, k):
    A, B = cases.placeholder("A", b, n, k), cases.placeholder("B", b, k)
    r = cases.axis(k)
    return [A, B], te.compute((b, n), lambda g, i: te.sum(A[g, i, r] * B[g, r], axis=r), name="D")


def launches(case, cache_bytes=512 * 1024):
    [kernel] = separate(normal_form([case[1]]))[0]
    return names_of(kernel, avx512(2, cache_bytes))


def names_of(kernel, machine):
    """What each launch of the contraction rule writes; nothing where it declines."""
    rules = (contraction, *CPU_RULES)
    [found] = apply_rules(kernel, machine, rules)
    return [one.outputs[0].op.name for one in found.launches if found.rule == "contraction"]


@pytest.mark.parametrize("size", [(1024, 2, 15), (1000, 3, 7), (517, 1, 31)])
def test_small_products_are_not_copied(size):
    assert rules_of(dots(*size)[1]) in (["reduction"], ["rows"], ["windows"])
    check(dots(*size))


def added_rows(b, n, k):
    A, B = cases.placeholder("A", b, n, k), cases.placeholder("B", b, n)
    r = cases.axis(n)
    return [A, B], te.compute((b, k), lambda g, j: te.sum(A[g, r, j] * B[g, r], axis=r), name="D")


def along_rows(n, k):
    A, B = cases.placeholder("A", n, k), cases.placeholder("B", 1, k)
    r = cases.axis(k)
    return [A, B], te.compute((n, 1), lambda i, j: te.sum(A[i, r] * B[j, r], axis=r), name="D")


@pytest.mark.parametrize(
    ("case", "rule"), [(added_rows(64, 40, 50), "reduction"), (along_rows(300, 400), "rows")]
)
def test_operands_that_are_read_once_are_not_copied(case, rule):
    """Vectors along memory take less time than to write the larger operand in another order."""
    assert rules_of(case[1]) == [rule]
    check(case)


def masked(transposed):
    """``Σ_k if m[i, k] then x[i, k]*w[k] else 0``, or over the other axis of the matrix."""
    x, m = cases.placeholder("x", 500, 500), te.placeholder((500, 500), "bool", name="m")
    w, k = cases.placeholder("w", 500), cases.axis(500)

    def term(i):
        at = (k, i) if transposed else (i, k)
        return te.if_then_else(m(*at), x(*at) * w[k], 0.0)

    return [x, m, w], te.compute((500,), lambda i: te.sum(term(i), axis=k), name="D")


@pytest.mark.parametrize("transposed", [False, True])
def test_masked_operands_that_are_read_once_are_not_copied(transposed):
    """A copy of them would branch for each element, at the mask."""
    case = masked(transposed)
    assert rules_of(case[1]) == ["rows"]
    check(case)


def weighted(weight, n):
    """``Σ_k w(j, k)*x[i, k]`` with weights that are computed from their places."""
    x, k = cases.placeholder("x", n, n), cases.axis(n)
    body = lambda i, j: te.sum(weight(j, k) * x[i, k], axis=k)  # noqa: E731
    return [x], te.compute((n, n), body, name="D")


@pytest.mark.parametrize(
    "weight",
    [
        lambda j, k: te.exp(-((k - j) * (k - j)).astype("float32") * 0.1),
        lambda j, k: 1.0 / (te.abs(k - j) + 1).astype("float32"),
    ],
)
def test_weights_of_places_are_operands(weight):
    """They are computed once for each pair of places, not for each row."""
    case = weighted(weight, 64)
    assert rules_of(case[1]) == ["contraction"]
    check(case, tolerance=1e-4)


def four(*lengths):
    """``out[c, d, e, f] = Σ_a,b x[a, b, c, d]·y[a, b, e, f]``: every step is a row further on."""
    a, b, c, d, e, f = lengths
    x, y = cases.placeholder("x", a, b, c, d), cases.placeholder("y", a, b, e, f)
    i, j = cases.axis(a), cases.axis(b)
    out = te.compute(
        (c, d, e, f),
        lambda c, d, e, f: te.sum(x[i, j, c, d] * y[i, j, e, f], axis=[i, j]),
        name="D",
    )
    return [x, y], out


NAMES = [
    # the large operand is read once: no parts; results are turned around, not strewn over pages
    (cases.matmul(32, 1024, 256, "nt"), ["C_pack0", "C_kept", "C"]),
    # the operands are read again for every tile of the small output, one of them panel by panel
    (cases.conv_weight_gradient(8, 32, 32, 32), ["dW_part_pack1", "dW_part", "dW"]),
    # four rows a page apart are read in place
    (cases.mttkrp(64, 64, 64, 32), ["M"]),
    # each step reads another page: lines come from the second cache, of which a tile uses parts,
    # and panels are copied within the function
    (cases.matmul(1023, 200, 1023, "tn"), ["C"]),
    # the same rows, few of them: their lines stay in the first cache
    (cases.matmul(1023, 200, 100, "tn"), ["C_pack1", "C"]),
]


NAMED = ["streamed", "cut", "in place", "pages", "few pages"]


@pytest.mark.parametrize(("case", "names"), NAMES, ids=NAMED)
def test_copies_and_parts(case, names):
    assert launches(case) == names


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (64, ["D_pack0", "D"]),  # rows of 4 KB: all lines share one set of the cache
        (65, ["D"]),  # rows of 4.1 KB: they share nothing
    ],
)
def test_lines_that_evict_each_other_are_copied(width, names):
    assert launches(four(16, 16, width, 16, width, 16), 2 << 20) == names


def test_what_no_other_tile_reads_need_not_stay_in_the_cache():
    """A tile holds all channels that read an element of the head, 2.2 MB of which are no matter."""
    case = cases.conv_input_gradient(4, 3, 64, 32)
    assert launches(case, 2**20) == ["dX_pack0", "dX"]


def touched(strides):
    """The sets, of 64, that lines at all multiples of some strides in bytes fall into."""
    places = [0]
    for stride, count in strides:
        places = [place + i * stride for place in places for i in range(count)]
    return {place // 64 % 64 for place in places}


@pytest.mark.parametrize(
    "strides",
    [
        [(1024, 256)],
        [(1024, 3)],
        [(64, 5), (1024, 100)],
        [(320, 7), (4096, 9)],
        [(512, 2), (768, 50), (64, 2)],
        [(16448, 40)],
    ],
)
def test_the_sets_of_a_cache_that_lines_fall_into(strides):
    found = {0}
    for stride, count in strides:
        found = sets_of(found, stride, count, avx512())
    assert found == touched(strides)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="code for x86-64")
def test_a_tile_fits_its_registers():
    """4 vectors times 3 numbers are 12 of 16 registers: the numbers stay, not the vectors."""
    given, weights = cases.conv_weight_gradient(8, 32, 32, 32)
    function = build(given, weights, target={"kind": "llvm", "mcpu": "core-avx2"}, cache=False)
    lines = function.source("asm").splitlines()
    products = [n for n, line in enumerate(lines) if "vfmadd" in line and "ymm" in line]
    inside = lines[products[0] : products[-1]]
    assert len(products) >= 12
    assert [line for line in inside if "rsp" in line] == []


STEPS = [
    # 32 rows read a panel four times: too few for a copy in each step, enough for one in 100
    (cases.matmul(32, 256, 512), 100, ["C_pack1", "C"]),
    (cases.matmul(32, 256, 512), 1, ["C"]),
    # neither the state nor the results are put into another order in each step
    (cases.matmul(32, 1024, 256, "nt"), 100, ["C_pack1", "C"]),
]


@pytest.mark.parametrize(("case", "times", "names"), STEPS)
def test_in_a_loop_a_fixed_operand_is_copied_for_all_steps(case, times, names):
    [state, _], product = case
    kernels = repeated(separate(normal_form([product]))[0], times, [state])
    [made] = [names_of(kernel, avx512(2)) for kernel in kernels]
    assert made == names


def grouped(groups, stride=1):
    """A grouped convolution, and its gradients: channels are read through quotients."""
    X, W = (
        cases.placeholder("X", 2, 8 * groups, 10, 10),
        cases.placeholder("W", 8 * groups, 8, 3, 3),
    )
    Y = topi.nn.group_conv2d_nchw(X, W, stride, 1, 1, groups)
    head = cases.placeholder("head", *Y.shape)
    dX, dW = differentiate(Y, [X, W], head)
    return {"Y": ([X, W], Y), "dX": ([W, head], dX), "dW": ([X, head], dW)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Y", "dX", "dW"])
@pytest.mark.parametrize("groups", [2, 5])
def test_groups_are_batches(groups, name):
    """`x[c//8*8 + k] → x[g, k]`: no product reads a copy for each of its channels."""
    case = grouped(groups)[name]
    assert rules_of(case[1])[-1] == "contraction"
    check(case)
    functions = contraction_functions(case)
    assert functions
    assert not any("//" in f or "%" in f for f in functions)


def contraction_functions(case):
    """The tiled functions of a case, as text."""
    return [str(launch.func) for launch in tiled(case)]


def tiled(case):
    """The tiled functions of a case."""
    kernels = separate(normal_form([case[1]]))[0]
    found = [contraction(kernel, avx512(1)) or [] for kernel in kernels]
    return [one for launches in found for one in launches if "acc0" in str(one)]


def test_what_a_tile_shares_is_multiplied_once():
    """`(X·B)·C → (B·C)·X`: B and C do not vary along the rows of the tile."""
    [launch] = tiled(cases.mttkrp(64, 64, 64, 32))
    lines = [line.partition(" = ") for line in str(launch.func).splitlines()]
    [update] = [value for _, _, value in lines if value.startswith("acc0[") and " + p" in value]
    factors = [part.partition("[")[0] for part in update.split(" + p")[-1].split(" * p")]
    assert [launch.inputs[int(number)].op.name for number in factors] == ["B", "C", "X"]
    check(cases.mttkrp(64, 64, 64, 32))


@pytest.mark.parametrize(("columns", "whole"), [(96, True), (112, True), (100, False)])
def test_accumulators_are_read_at_places_that_are_known(columns, whole):
    """Rows of results are written out; columns in vectors, and one by one only where a vector is
    partly beyond the end.
    """
    case = cases.matmul(1000, columns, 32, "nn")
    [kernel] = separate(normal_form([case[1]]))[0]
    script = contraction(kernel, avx512(1))[-1].func.script()
    rows = [line.split("in ")[1] for line in script.splitlines() if "for w" in line]
    assert rows
    assert all(row.startswith("T.unroll(") for row in rows)
    assert ("lanes" in script) is not whole
    check(cases.matmul(37, columns, 32, "nn"))


def upsampled(n, size, channels, filters, k=4):
    """A transposed convolution of stride 2: weights are read at the parity of the place."""
    x = cases.placeholder("x", n, size, size, channels)
    w = cases.placeholder("w", k, k, channels, filters)
    a, b, c = cases.axis(k, "a"), cases.axis(k, "b"), cases.axis(channels, "c")

    def within(place):
        return te.all(place % 2 == 0, place >= 0, place // 2 < size)

    def body(i, h, v, f):
        down, right = h + 1 - a, v + 1 - b
        product = x[i, down // 2, right // 2, c] * w[a, b, c, f]
        return te.sum(te.if_then_else(te.all(within(down), within(right)), product, 0.0), [a, b, c])

    return [x, w], te.compute((n, 2 * size, 2 * size, filters), body, name="up")


@pytest.mark.slow
@pytest.mark.parametrize("filters", [24, 32])
def test_half_vectors_where_whole_ones_copy_for_longer_than_they_compute(filters):
    """Vectors that read beyond 24 filters took a copy of all weights for every place."""
    inputs, output = upsampled(2, 9, 16, filters)
    check((inputs, output))
    memory = build(inputs, output, num_threads=1).memory()
    assert memory.total - memory.inputs - memory.outputs < 2**20


def narrow(rows, columns, functions):
    """Products with few columns, of which sums of sines of multiples are taken."""
    A, B = cases.placeholder("A", rows, 47), cases.placeholder("B", 47, columns)
    X, r = cases.placeholder("X", rows, columns), cases.axis(47)
    y = te.compute((rows, columns), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="y")

    def finished(i, j):
        return sum((te.sin(X[i, j] * float(n)) for n in range(functions)), y[i, j])

    return [A, B, X], te.compute((rows, columns), finished, name="z")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "names"),
    [
        (narrow(2003, 3, 12), ["y_pack0", "y", "z"]),  # lanes lie apart in the result
        (narrow(2003, 3, 0), ["y_pack0", "z"]),
        (narrow(2003, 64, 12), ["y_pack0", "z"]),
    ],
    ids=["apart", "no functions", "along memory"],
)
def test_functions_of_results_that_lie_apart_are_a_pass_of_their_own(case, names, monkeypatch):
    """Written out for each of 144 results of a tile, they took LLVM 8 s and one lane of vectors."""
    monkeypatch.setattr(rule, "best_block", lambda member, machine: None)  # tiles only
    assert launches(case) == names
    check(case, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("components", "turned"), [(3, True), (48, False)])
def test_vectors_of_short_rows_lie_along_a_symbolic_axis(components, turned):
    """Gradients by points: a tile along three components would leave a lane of four empty."""
    n, m = te.var("n"), te.var("m")
    A = cases.placeholder("A", n, m)
    B, C = cases.placeholder("B", n, components), cases.placeholder("C", m, components)
    i = te.reduce_axis((0, n), "i")
    out = te.compute(
        (m, components), lambda j, c: te.sum(A[i, j] * (B[i, c] - C[j, c]), axis=i), name="D"
    )
    [kernel] = separate(normal_form([out]))[0]
    assert ("D_turned" in names_of(kernel, avx512(1, 512 * 1024))) == turned
    check(([A, B, C], out), sizes={"n": 70, "m": 45})
