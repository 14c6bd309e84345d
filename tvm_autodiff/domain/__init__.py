"""Exact solvers for systems of linear equations and inequalities over the integers.

The package can be used without the rest of the library: describe a set of integer points as a
`Domain`, then simplify or solve it.
"""

from .divmod import eliminate_div_mod
from .domain import Domain, DomainTransformation
from .simplify import simplify_domain
from .solvers.equations import solve_linear_equations
from .solvers.inequalities import solve_linear_inequalities

__all__ = [
    "Domain",
    "DomainTransformation",
    "eliminate_div_mod",
    "simplify_domain",
    "solve_linear_equations",
    "solve_linear_inequalities",
]
