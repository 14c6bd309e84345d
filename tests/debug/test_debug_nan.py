"""`build(..., debug_nan=True)`: the stage where a NaN or an infinity arises; no false alarms."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad

INF, NAN = float("inf"), float("nan")


def tensor(shape, name="x", dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def f32(*values):
    return np.array(values, "float32")


def checked(inputs, outputs, **options):
    return ad.build(inputs, outputs, cache=False, debug_nan=True, **options)


def chain(dtype="float32"):
    """x → log → scaled → total; the first two are fused into the last."""
    x = tensor((4,), dtype=dtype)
    logs = te.compute((4,), lambda i: te.log(x[3 - i]), "logs")
    scaled = te.compute((4,), lambda i: logs[i] * tirx.const(2.0, dtype), "scaled")
    k = te.reduce_axis((0, 4), "k")
    return x, te.compute((), lambda: te.sum(scaled[k], axis=k), "total")


def test_a_stage_that_is_fused_away_is_named() -> None:
    x, total = chain()
    with pytest.raises(ad.NonFiniteError) as failure:
        checked(x, total)(f32(1, -1, 2, 3))
    assert str(failure.value).splitlines() == [
        "NaN first arises in stage logs: logs[2] is nan",
        "  logs[i] = log(x[3 - i])",
        "  there it reads x[1] = -1.0",
        "  all inputs that it needs are finite",
    ]
    with pytest.raises(FloatingPointError, match=r"an infinity first arises in.*logs\[0\] is -inf"):
        checked(x, total)(f32(1, 1, 2, 0))


def test_finite_calls_give_what_a_plain_build_gives() -> None:
    x, total = chain()
    plain, debug = ad.build(x, total, cache=False), checked(x, total)
    at = f32(1, 2, 3, 4)
    assert debug(at) == plain(at) == debug(x=at)
    assert str(debug.memory()) == str(plain.memory())
    assert debug.signature == plain.signature
    assert [k.rule for k in debug.profile(at).kernels] == [
        k.rule for k in plain.profile(at).kernels
    ]
    with pytest.raises(ad.CallError, match="expected"):
        debug()


@pytest.mark.slow
def test_what_an_input_holds_is_told() -> None:
    x, total = chain()
    with pytest.raises(ad.NonFiniteError, match=r"(?s)NaN first reaches stage logs.*x has NaN"):
        checked(x, total)(f32(1, NAN, 2, 3))
    checked(x, total)(f32(1, INF, 2, 3))
    with pytest.raises(ad.NonFiniteError, match=r"(?s)NaN first arises in stage logs.*infinities"):
        checked(x, total)(f32(1, INF, -2, 3))


def masked_attention(mask_as_input: bool):
    q, k = tensor((5, 2), "q"), tensor((5, 2), "k")
    mask = tensor((5, 5), "mask")
    c, j = te.reduce_axis((0, 2), "c"), te.reduce_axis((0, 5), "j")
    n = te.reduce_axis((0, 5), "n")
    s = te.compute((5, 5), lambda i, j: te.sum(q[i, c] * k[j, c], axis=c), "s")
    if mask_as_input:
        m = te.compute((5, 5), lambda i, j: s[i, j] + mask[i, j], "m")
    else:
        low = tirx.const(-INF, "float32")
        m = te.compute((5, 5), lambda i, j: te.if_then_else(j <= i, s[i, j], low), "m")
    top = te.compute((5,), lambda i: te.max(m[i, j], axis=j), "top")
    e = te.compute((5, 5), lambda i, j: te.exp(m[i, j] - top[i]), "e")
    z = te.compute((5,), lambda i: te.sum(e[i, n], axis=n), "z")
    p = te.compute((5, 5), lambda i, j: e[i, j] / z[i], "p")
    return [q, k, *([mask] if mask_as_input else [])], p


MASK = np.where(np.tri(5) > 0, 0, -INF).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize("mask_as_input", [False, True])
def test_masks_are_no_alarm(mask_as_input: bool) -> None:
    inputs, p = masked_attention(mask_as_input)
    gradients = list(ad.differentiate(p, inputs[:2], te.compute((5, 5), lambda i, j: p[j, i])))
    arrays = [np.random.default_rng(n).standard_normal((5, 2)).astype("float32") for n in (0, 1)]
    arrays += [MASK] if mask_as_input else []
    function = checked(inputs, [p, *gradients])
    results = function(*arrays)
    for found, wanted in zip(results, function.function(*arrays), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_row_without_anything_is_an_alarm() -> None:
    inputs, p = masked_attention(True)
    arrays = [np.ones((5, 2), "float32")] * 2
    mask = MASK.copy()
    mask[3] = -INF
    with pytest.raises(ad.NonFiniteError) as failure:
        checked(inputs, p)(*arrays, mask)
    lines = str(failure.value).splitlines()
    assert lines[0] == "NaN first arises in stage p: p[3, 0] is nan (5 elements of 25 are)"
    assert lines[2:] == ["  there it reads e[3, 0] = 0.0, z[3] = 0.0",
                         "  of the inputs, mask has infinities"]  # fmt: skip


def test_an_overflow_beside_infinities_is_found() -> None:
    """Another element of the same tensors was infinite: this one was not."""
    x = tensor((3,))
    y = te.compute((3,), lambda i: te.exp(x[i]), "y")
    z = te.compute((3,), lambda i: y[i] * y[i], "z")
    checked(x, z)(f32(1, INF, -INF))
    with pytest.raises(ad.NonFiniteError, match=r"infinity first arises in stage y: y\[2\] is inf"):
        checked(x, z)(f32(1, INF, 100))
    with pytest.raises(ad.NonFiniteError, match=r"infinity first arises in stage z: z\[0\] is inf"):
        checked(x, z)(f32(60, INF, 1))


def test_branches_that_are_not_taken_do_not_count() -> None:
    """What arises beside an infinity that the element did not use."""
    x, w = tensor((4,)), tensor((4,), "w")
    y = te.compute((4,), lambda i: te.if_then_else(i < 2, te.exp(x[i]), w[i]), "y")
    checked([x, w], y)(f32(1, 2, INF, INF), f32(INF, INF, 1, INF))
    with pytest.raises(ad.NonFiniteError, match=r"y\[1\] is inf"):
        checked([x, w], y)(f32(1, 1000, INF, INF), f32(INF, INF, 1, INF))


@pytest.mark.parametrize("extent", [0, 3])
def test_identities_of_extremes_are_no_alarm(extent: int) -> None:
    low = te.comm_reducer(lambda a, b: te.max(a, b), lambda t: tirx.const(-INF, t), name="top")
    n = te.var("n")
    x = tensor((2, n))
    k = te.reduce_axis((0, n), "k")
    y = te.compute((2,), lambda i: low(x[i, k], axis=k), "y")
    found = checked(x, y)(np.ones((2, extent), "float32"))
    np.testing.assert_array_equal(found, np.full(2, 1 if extent else -INF))


def test_a_sum_that_overflows() -> None:
    x = tensor((3, 4))
    k = te.reduce_axis((0, 4), "k")
    y = te.compute((3,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), "y")
    at = np.ones((3, 4), "float32")
    at[1], at[0, 0] = 3e19, INF
    with pytest.raises(
        ad.NonFiniteError, match=r"(?s)y\[1\] is inf\n  y\[i\] = .*x has infinities"
    ):
        checked(x, y)(at)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype: str) -> None:
    import ml_dtypes

    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    x = tensor((3,), dtype=dtype)
    wide = te.compute((3,), lambda i: x[i] * x[i], "wide")
    y = te.compute((3,), lambda i: wide[i] + x[i], "y")
    function = checked(x, y)
    big = {"float16": 300.0, "bfloat16": 1e20, "float64": 1e200}[dtype]
    assert np.isfinite(function(np.array([1, 2, 3], kind)).astype("float32")).all()
    function(np.array([1, INF, 3], kind))
    with pytest.raises(ad.NonFiniteError, match=r"infinity first arises in stage wide: wide\[2\]"):
        function(np.array([1, INF, big], kind))


def test_symbolic_sizes_and_several_outputs() -> None:
    n, m = te.var("n"), te.var("m")
    x, w = tensor((n, m)), tensor((m,), "w")
    k = te.reduce_axis((0, m), "k")
    s = te.compute((n,), lambda i: te.sum(x[i, k] * w[k], axis=k), "s")
    inner = te.compute((n - 1,), lambda i: te.sqrt(s[i + 1]), "inner")
    last = te.compute((n,), lambda i: s[i] * 2.0, "last")
    function = checked([x, w], [inner, last])
    at, ones = np.ones((4, 3), "float32"), np.ones(3, "float32")
    for found, wanted in zip(function(at, ones), (np.sqrt(f32(3, 3, 3)), [6] * 4), strict=True):
        np.testing.assert_allclose(found, wanted)
    at[2] = -1
    with pytest.raises(ad.NonFiniteError, match=r"stage inner: inner\[1\] is -?nan"):
        function(at, ones)


def test_gradients() -> None:
    """The derivative of a root is infinite where the root is fine."""
    x = tensor((3,))
    root = te.compute((3,), lambda i: te.sqrt(x[i]), "root")
    [dx] = ad.differentiate(root, x, te.compute((3,), lambda i: root[i] + 1.0, "head"))
    with pytest.raises(ad.NonFiniteError, match=r"infinity first arises in stage dx: dx\[1\]"):
        checked(x, [root, dx])(f32(1, 0, 4))


def test_updates_are_not_written_before_the_checks() -> None:
    x, rate = tensor((3,)), tensor((), "rate")
    new = te.compute((3,), lambda i: x[i] - rate() / x[i], "new")
    k = te.reduce_axis((0, 3), "k")
    loss = te.compute((), lambda: te.sum(x[k], axis=k), "loss")
    function = checked([x, rate], loss, updates={x: new})
    state = f32(1, 2, 4)
    assert function(state, 1.0) == 7.0
    np.testing.assert_allclose(state, [0, 1.5, 3.75])
    with pytest.raises(ad.NonFiniteError, match=r"stage new: new\[0\] is -inf"):
        function(state, 1.0)
    np.testing.assert_allclose(state, [0, 1.5, 3.75])


def test_opaque_stages_and_data_as_indices() -> None:
    values, at = tensor((4,), "values"), tensor((4,), "at", "int32")
    added = ad.scatter_add(values, at, (3,))
    y = te.compute((4,), lambda i: te.log(added[at[i]]), "y")
    places = np.array([0, 1, 1, 2], "int32")
    function = checked([values, at], y)
    function(f32(1, 2, 3, 4), places)
    function(f32(1, 2, INF, 4), places)
    with pytest.raises(ad.NonFiniteError, match=r"an infinity first arises in stage y: y\[3\]"):
        function(f32(1, 2, 3, 0), places)
    with pytest.raises(ad.NonFiniteError, match=r"arises in stage .*scatter|infinity first arises"):
        function(f32(1, 3e38, 3e38, 4), places)
    with pytest.raises(ad.NonFiniteError, match=r"(?s)first reaches stage.*values has NaN"):
        function(f32(1, 2, NAN, 4), places)


def test_literals_that_are_not_finite_are_no_alarm() -> None:
    x = tensor((3,))
    low = tirx.const(-INF, "float32")
    y = te.compute((3,), lambda i: te.if_then_else(x[i] > 0.0, te.exp(x[i]), low), "y")
    checked(x, y)(f32(1, -1, 2))
    with pytest.raises(ad.NonFiniteError, match=r"y\[2\] is inf"):
        checked(x, y)(f32(1, -1, 200))


def test_out_and_arrays_of_other_frameworks() -> None:
    torch = pytest.importorskip("torch")
    x, total = chain()
    function = checked(x, [total])
    out = np.zeros((), "float32")
    function(f32(1, 1, 1, 1), out=[out])
    with pytest.raises(ad.NonFiniteError, match="stage logs"):
        function(torch.tensor([1.0, -1.0, 1.0, 1.0]))


def test_build_vjp_takes_it() -> None:
    x = tensor((3,))
    y = te.compute((3,), lambda i: te.sqrt(x[i]), "y")
    forward, backward = ad.build_vjp(x, y, x, debug_nan=True, cache=False)
    _, residuals = forward(f32(1, 0, 4))
    with pytest.raises(ad.NonFiniteError, match=r"an infinity first arises in stage dx"):
        backward(residuals, f32(1, 1, 1))


def test_custom_rules() -> None:
    """Stages below a rule are named as they are written; the rule's own stages are checked too."""

    @ad.custom_vjp
    def inverse(a):
        return te.compute(a.shape, lambda i: 1.0 / a[i], "quotient")

    @inverse.defvjp
    def by_value(outputs, inputs, cotangents):
        [y], [g] = outputs, cotangents
        return [te.compute(y.shape, lambda i: te.log(g[i]) * y[i], "by_a")]

    x, head = tensor((3,)), tensor((3,), "head")
    y = inverse(x)
    function = checked([x, head], [y, *ad.vjp(y, x, head)])
    for found in function(f32(1, 2, 4), f32(1, 1, 1)):
        assert np.isfinite(found).all()
    with pytest.raises(ad.NonFiniteError, match=r"stage quotient: quotient\[1\] is inf"):
        function(f32(1, 0, 4), f32(1, 1, 1))
    with pytest.raises(ad.NonFiniteError, match=r"stage by_a: by_a\[2\] is -?nan"):
        function(f32(1, 2, 4), f32(1, 1, -1))


def test_sparse_jacobians() -> None:
    """The element of the matrix is an element of the stage that holds its values."""
    x = tensor((5,), dtype="float64")
    y = te.compute((4,), lambda i: te.log(x[i]) * x[i + 1], "y")
    function = checked(x, ad.jacobian(y, x, format="csr"))
    at = np.linspace(1, 2, 5)
    wanted = (at[1:] / at[:-1])[:, None] * np.eye(4, 5) + np.log(at[:-1, None]) * np.eye(4, 5, 1)
    np.testing.assert_allclose(function(at).toarray(), wanted, rtol=1e-12)
    with pytest.raises(ad.NonFiniteError, match=r"is -?inf"):
        function(np.array([1.0, 0, 2, 3, 4]))
