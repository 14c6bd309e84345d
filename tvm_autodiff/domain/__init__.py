"""Exact solvers for systems of linear equations and inequalities over the integers.

The package can be used without the rest of the library: describe a set of integer points as a
`Domain`, then simplify or solve it.
"""

from .divmod import eliminate_div_mod
from .domain import Domain, DomainTransformation
from .equations import solve_linear_equations
from .inequalities import solve_linear_inequalities
from .simplify import simplify_domain

__all__ = [
    "Domain",
    "DomainTransformation",
    "eliminate_div_mod",
    "simplify_domain",
    "solve_linear_equations",
    "solve_linear_inequalities",
]
