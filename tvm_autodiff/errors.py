"""The library's families of errors and of warnings.

Everything that the library raises on purpose derives from `AutodiffError`, so that one ``except``
catches it. Each message names the tensor, shows the expression in the notation of `show`, and says
the way out. This file decides names only; the texts are written where the facts are known.
"""


class AutodiffError(Exception):
    """Base class of every error that the library raises on purpose."""


class NotDifferentiableError(AutodiffError, TypeError):
    """A tensor or an expression has no derivative: integer dtype, opaque stage, intrinsic without
    rule.
    """


class InvalidArgumentError(AutodiffError, ValueError):
    """An argument has the wrong type, shape or dtype, occurs twice, or does not belong to the
    graph.
    """


class UnknownKeywordError(InvalidArgumentError, TypeError):
    """A function has no parameter of that name; the message suggests the one that was meant."""


class UnknownTensorError(AutodiffError, KeyError):
    """A mapping of a result was asked for a tensor that it has nothing for."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show the message in quotes


class UnsolvableError(AutodiffError, ValueError):
    """A system over the integers is outside of what the solver accepts."""


class LoweringError(AutodiffError, RuntimeError):
    """Tensors cannot be lowered or compiled: missing placeholders, opaque or free parts."""


class OutOfBoundsError(AutodiffError, IndexError):
    """A stage is certain to read outside of a tensor, whatever the data."""


class CallError(AutodiffError, TypeError):
    """A compiled function was called with arrays of wrong number, shape, dtype, rank or layout."""


class MissingFrameworkError(AutodiffError, ImportError):
    """A bridge to a framework is imported where the framework is not installed, or is too old."""


class NonFiniteError(AutodiffError, FloatingPointError):
    """A NaN or an infinity arises in a stage of a program that was built with ``debug_nan``; the
    message names stage, element, and what was read there.
    """


class GradientCheckError(AutodiffError, AssertionError):
    """A gradient differs from finite differences; the message names the worst entry."""


class AutodiffWarning(UserWarning):
    """Base class of every warning of the library: a result is right, and not what it could be, or
    perhaps not what was meant.
    """


class UnrelatedInputWarning(AutodiffWarning):
    """An input of `differentiate` is not in the graph of the output: its adjoint is zero."""


class LargeIdentityWarning(AutodiffWarning):
    """A Jacobian was asked for whose identity cotangent alone has more than 2²⁴ elements."""


class DenseSumWarning(AutodiffWarning):
    """A gradient sums over structural zeros, since an equation could not be solved."""


class PlainScheduleWarning(AutodiffWarning):
    """Stages of a program are slower than they could be, with right results.

    TVM refused the code of a schedule and the next rule took the stage, or no rule fits a stage
    that is a large part of the work. The text names stages and reasons.
    """
