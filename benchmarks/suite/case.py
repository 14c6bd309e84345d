"""A case of the benchmark: inputs, one computation written three times, what is asked of it.

A family's file writes cases, the files of the libraries (`ours`, `pytorch`, `with_jax`) turn one
into a call. The derivative is named here and taken there: a case says the computation alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray

#: what is asked of a computation → what a call returns
DERIVATIVES = {
    "gradient": "the value of a scalar and its gradients",
    "step": "the value of a scalar and the parameters after a step of gradient descent",
    "pullback": "the gradients for a cotangent that is one more input",
    "both": "the value of a tensor, and the gradients for a cotangent that is one more input",
    "jacobian": "for outputs [n, m] that read row n of each input: [m, n, ...] of each",
    "hessian": "the second derivative of a scalar by one input",
    "hvp": "the Hessian of a scalar times one direction for each differentiated input",
    "per-example": "the gradients of a scalar of one example, for a batch of examples",
    "csr": "the entries of a Jacobian in the order of CSR",
}
RATE = 0.01  #: learning rate of a step


@dataclass(frozen=True)
class Input:
    """An array: normal with a mean and a deviation, or integers from 0 up to `below`.

    `kind` is the dtype of the normal numbers.
    """

    shape: tuple[int, ...]
    scale: float = 1.0
    mean: float = 0.0
    below: int | None = None
    kind: str = "float32"

    @property
    def dtype(self) -> str:
        return self.kind if self.below is None else "int32"

    def draw(self, rng: np.random.Generator) -> Array:
        if self.below is not None:
            return rng.integers(0, self.below, self.shape, dtype="int32")
        values = self.mean + self.scale * rng.standard_normal(self.shape)
        return np.asarray(values, self.kind)


@dataclass(frozen=True)
class Case:
    """One computation in three libraries.

    `te` takes placeholders and gives a tensor; `torch` and `jax` take the module and arrays and
    give an array; where entries in CSR are asked for, which these libraries do not have, they give
    the entries. `eager`, where it is there, is what an expert would write in eager PyTorch for the
    whole derivative: it takes the module, the arrays and the head. `channels_last` tells that
    PyTorch is faster with images laid out so. `examples` names the inputs whose first axis counts
    examples, where the computation is that of one example.
    """

    inputs: Mapping[str, Input]
    wrt: tuple[str, ...]
    te: Callable[..., Any]
    torch: Callable[..., Any]
    jax: Callable[..., Any]
    derivative: str = "gradient"
    head: Input | None = None
    eager: Callable[..., Any] | None = None
    flop: int | None = None
    tolerance: float = 1e-4
    channels_last: bool = False
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.derivative in DERIVATIVES, self.derivative
        assert set(self.wrt) <= set(self.inputs)
        assert (self.head is not None) == (self.derivative in ("pullback", "both"))
        assert bool(self.examples) == (self.derivative == "per-example")

    @property
    def places(self) -> tuple[int, ...]:
        """Positions of the inputs to differentiate with respect to."""
        names = list(self.inputs)
        return tuple(names.index(name) for name in self.wrt)

    @property
    def heads(self) -> dict[str, Input]:
        """What the derivative takes beside the inputs: a cotangent, or directions."""
        if self.derivative == "hvp":
            return {f"direction_{name}": self.inputs[name] for name in self.wrt}
        return {} if self.head is None else {"head": self.head}

    @property
    def axes(self) -> tuple[int | None, ...]:
        """For each input the axis that counts examples, or None."""
        return tuple(0 if name in self.examples else None for name in self.inputs)

    def arrays(self, seed: str = "") -> list[Array]:
        """The inputs, then the heads; the same in every process."""
        rng = np.random.default_rng(zlib.crc32(seed.encode()))
        return [aligned(spec.draw(rng)) for spec in [*self.inputs.values(), *self.heads.values()]]


@dataclass(frozen=True)
class Entry:
    """A line of a family's table: a case at the size that is measured, and at one for tests.

    `bar` says what limits the case: "sgemm" (arithmetic), "copy" (memory) or nothing in particular.
    """

    name: str
    title: str
    make: Callable[..., Case]
    full: Mapping[str, Any]
    small: Mapping[str, Any]
    bar: str | None = None

    def case(self, small: bool = False) -> Case:
        return self.make(**(self.small if small else self.full))


def aligned(array: Array, boundary: int = 64) -> Array:
    """A copy that begins at a multiple of `boundary` bytes, as arrays of PyTorch and JAX do."""
    memory = np.empty(array.nbytes + boundary, "uint8")
    start = -memory.ctypes.data % boundary
    result = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result
