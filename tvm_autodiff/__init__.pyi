"""Where each name of the package is defined; `__init__` loads it when it is used."""

from . import domain as domain
from .check import (
    check_grads as check_grads,
)
from .compile import (
    Tuning as Tuning,
    build as build,
    clear_cache as clear_cache,
    load as load,
    lower as lower,
)
from .cost import (
    Cost as Cost,
    estimate_cost as estimate_cost,
)
from .drawing import Drawing as Drawing, draw_domain as draw_domain, draw_graph as draw_graph
from .errors import (
    AutodiffError as AutodiffError,
    AutodiffWarning as AutodiffWarning,
    CallError as CallError,
    DenseSumWarning as DenseSumWarning,
    GradientCheckError as GradientCheckError,
    InvalidArgumentError as InvalidArgumentError,
    LargeIdentityWarning as LargeIdentityWarning,
    LoweringError as LoweringError,
    MissingFrameworkError as MissingFrameworkError,
    NonFiniteError as NonFiniteError,
    NotDifferentiableError as NotDifferentiableError,
    OutOfBoundsError as OutOfBoundsError,
    PlainScheduleWarning as PlainScheduleWarning,
    UnknownKeywordError as UnknownKeywordError,
    UnknownTensorError as UnknownTensorError,
    UnrelatedInputWarning as UnrelatedInputWarning,
    UnsolvableError as UnsolvableError,
)
from .functions import (
    ArrayFunction as ArrayFunction,
    grad as grad,
    jacfwd as jacfwd,
    jacrev as jacrev,
    jit as jit,
    value_and_grad as value_and_grad,
)
from .functions.overloads import (
    hessian as hessian,
    hvp as hvp,
    jvp as jvp,
    linearize as linearize,
    vjp as vjp,
    vmap as vmap,
)
from .operators import (
    scatter_add as scatter_add,
    segment_sum as segment_sum,
)
from .partition import (
    build_vjp as build_vjp,
)
from .register import (
    register_rule as register_rule,
)
from .sparse import (
    Pattern as Pattern,
    SparseMatrix as SparseMatrix,
)
from .stage_text import (
    show as show,
)
from .transforms import (
    Budget as Budget,
    CustomFunction as CustomFunction,
    DifferentiationResult as DifferentiationResult,
    LinearOperator as LinearOperator,
    Recursive as Recursive,
    Rule as Rule,
    checkpoint as checkpoint,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
    differentiate as differentiate,
    gradient as gradient,
    jacobian as jacobian,
    linear_transpose as linear_transpose,
    pullback as pullback,
    scan as scan,
    sparsity as sparsity,
    stop_gradient as stop_gradient,
    with_rule as with_rule,
)
from .zero_elimination import (
    inline_tensors as inline_tensors,
    lift_nonzeroness_condition as lift_nonzeroness_condition,
    merge_equal_stages as merge_equal_stages,
    remove_unused_dims as remove_unused_dims,
    simplify_reductions as simplify_reductions,
)

__version__: str
