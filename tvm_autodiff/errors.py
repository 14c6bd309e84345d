"""The library's errors and warnings.

Every error that the library raises intentionally derives from `AutodiffError`, so one ``except``
catches all of them. Each message names the tensor, shows the expression in the notation of `show`,
and says what to do.
"""


class AutodiffError(Exception):
    """Base class of every error that the library raises intentionally."""


class NotDifferentiableError(AutodiffError, TypeError):
    """A tensor or an expression has no derivative: integer dtype, opaque stage, or intrinsic
    without a rule.
    """


class InvalidArgumentError(AutodiffError, ValueError):
    """An argument has the wrong type, shape or dtype, is repeated, or does not belong to the graph.
    """


class UnknownKeywordError(InvalidArgumentError, TypeError):
    """A function has no parameter with this name; the message suggests a similar one."""


class UnknownTensorError(AutodiffError, KeyError):
    """A mapping of a result has no entry for the requested tensor."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show the message in quotes


class UnsolvableError(AutodiffError, ValueError):
    """The solver cannot handle a system over the integers."""


class LoweringError(AutodiffError, RuntimeError):
    """Tensors cannot be lowered or compiled: missing placeholders, opaque stages or free variables.
    """


class OutOfBoundsError(AutodiffError, IndexError):
    """A stage reads outside a tensor: for all data, or for those of a call with ``debug_indices``.
    """


class CallError(AutodiffError, TypeError):
    """A compiled function was called with arrays of the wrong number, shape, dtype, rank or layout.
    """


class MissingFrameworkError(AutodiffError, ImportError):
    """The framework of a bridge is not installed, or is too old."""


class NonFiniteError(AutodiffError, FloatingPointError):
    """A NaN or an infinity occurred in a program that was built with ``debug_nan``.

    The message names the stage, the element, and the values that it read.
    """


class GradientCheckError(AutodiffError, AssertionError):
    """A gradient differs from finite differences; the message names the worst entry."""


class AutodiffWarning(UserWarning):
    """Base class of the library's warnings.

    The result is correct, but it may be slow or not what was intended.
    """


class UnrelatedInputWarning(AutodiffWarning):
    """An input of `differentiate` or `vmap` is not in the graph of the output.

    Its gradient is zero, or the members of its batch are all the same.
    """


class LargeIdentityWarning(AutodiffWarning):
    """The identity cotangent of a requested Jacobian has more than 2²⁴ elements."""


class DenseSumWarning(AutodiffWarning):
    """A gradient sums over structural zeros because an equation, or a mask by data, could not be
    solved.
    """


class PlainScheduleWarning(AutodiffWarning):
    """Stages of a program are slower than necessary; the results are correct.

    Either TVM rejected the code of a schedule and the next rule was used, or no rule fits a stage
    that takes a large part of the time. The text names stages and reasons.
    """
