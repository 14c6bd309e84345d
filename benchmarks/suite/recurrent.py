"""Cases of recurrent networks: one LSTM cell, and sixteen steps of a plain one."""

from __future__ import annotations

from tvm import te

from .case import Case, Entry, Input


def _te_product(x, w, name):
    """x wᵀ over the last axis of both; `x` may have any rank."""
    k = te.reduce_axis((0, x.shape[-1]), "k")
    shape = [*x.shape[:-1], w.shape[0]]
    return te.compute(
        shape, lambda *place: te.sum(x[(*place[:-1], k)] * w[place[-1], k], axis=k), name=name
    )


def lstm_cell(batch: int, features: int, hidden: int) -> Case:
    """A cell of a long short-term memory: from the cotangent of the new state, all gradients."""

    def ours(x, h, c, w, u, b):
        by_input, by_state = _te_product(x, w, "by_input"), _te_product(h, u, "by_state")
        gates = te.compute(
            (batch, 4 * hidden), lambda n, j: by_input[n, j] + by_state[n, j] + b[j], name="gates"
        )
        cell = te.compute(
            (batch, hidden),
            lambda n, j: (
                te.sigmoid(gates[n, hidden + j]) * c[n, j]
                + te.sigmoid(gates[n, j]) * te.tanh(gates[n, 2 * hidden + j])
            ),
            name="cell",
        )
        return te.compute(
            (batch, hidden),
            lambda n, j: te.sigmoid(gates[n, 3 * hidden + j]) * te.tanh(cell[n, j]),
            name="state",
        )

    def in_torch(torch, x, h, c, w, u, b):
        linear = torch.nn.functional.linear
        i, f, g, o = (linear(x, w, b) + linear(h, u)).chunk(4, 1)
        cell = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell)

    def in_jax(jax, x, h, c, w, u, b):
        i, f, g, o = jax.numpy.split(x @ w.T + h @ u.T + b, 4, axis=1)
        cell = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
        return jax.nn.sigmoid(o) * jax.numpy.tanh(cell)

    return Case(
        inputs={
            "x": Input((batch, features)),
            "h": Input((batch, hidden)),
            "c": Input((batch, hidden)),
            "w": Input((4 * hidden, features), features**-0.5),
            "u": Input((4 * hidden, hidden), hidden**-0.5),
            "b": Input((4 * hidden,), 0.1),
        },
        wrt=("x", "h", "c", "w", "u", "b"),
        head=Input((batch, hidden)),
        derivative="pullback",
        te=ours,
        torch=in_torch,
        jax=in_jax,
        flop=3 * 2 * batch * 4 * hidden * (features + hidden),
    )


def rnn(steps: int, batch: int, features: int, hidden: int) -> Case:
    """h ← tanh(x[t] wᵀ + h uᵀ + b), unrolled; the loss is the mean square of the last state."""

    def ours(x, w, u, b):
        by_input = _te_product(x, w, "by_input")

        def step(t, h):
            if h is None:
                return te.compute((batch, hidden), lambda n, j: te.tanh(by_input[0, n, j] + b[j]))
            by_state = _te_product(h, u, f"by_state{t}")
            return te.compute(
                (batch, hidden),
                lambda n, j: te.tanh(by_input[t, n, j] + by_state[n, j] + b[j]),
                name=f"state{t}",
            )

        h = None
        for t in range(steps):
            h = step(t, h)
        n, j = te.reduce_axis((0, batch), "n"), te.reduce_axis((0, hidden), "j")
        return te.compute(
            (), lambda: te.sum(h[n, j] * h[n, j] / (batch * hidden), axis=[n, j]), name="loss"
        )

    def in_torch(torch, x, w, u, b):
        by_input = torch.nn.functional.linear(x, w, b)
        h = torch.tanh(by_input[0])
        for t in range(1, steps):
            h = torch.tanh(torch.addmm(by_input[t], h, u.T))
        return (h * h).mean()

    def in_jax(jax, x, w, u, b):
        by_input = x @ w.T + b
        h = jax.numpy.tanh(by_input[0])
        for t in range(1, steps):
            h = jax.numpy.tanh(by_input[t] + h @ u.T)
        return (h * h).mean()

    return Case(
        inputs={
            "x": Input((steps, batch, features)),
            "w": Input((hidden, features), features**-0.5),
            "u": Input((hidden, hidden), hidden**-0.5),
            "b": Input((hidden,), 0.1),
        },
        wrt=("w", "u", "b"),
        te=ours,
        torch=in_torch,
        jax=in_jax,
        flop=2 * batch * steps * hidden * (2 * features + 3 * hidden),
    )


ENTRIES = [
    Entry(
        "lstm-cell",
        "LSTM cell 32x256",
        lstm_cell,
        {"batch": 32, "features": 256, "hidden": 256},
        {"batch": 3, "features": 5, "hidden": 7},
        "sgemm",
    ),
    Entry(
        "rnn",
        "RNN of 16 steps, 32x64 to 128",
        rnn,
        {"steps": 16, "batch": 32, "features": 64, "hidden": 128},
        {"steps": 4, "batch": 3, "features": 5, "hidden": 7},
    ),
]
