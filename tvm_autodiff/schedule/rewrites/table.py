"""The table of rewrites: steps from te to te before scheduling, in the order in which they run.

Each takes tensors and returns equal ones, and can be used alone. Those that change how a value is
rounded are left out for exact math.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...expr.nodes import Tensor
from ...graph.unused_axes import without_unused_axes
from .argmax_fusion import with_fused_argmax
from .conditions.circular_places import with_circular_places
from .contractions.integer_products import with_float_products
from .contractions.ordered import with_ordered_contractions
from .loops.fixed_carries import without_fixed_carries
from .loops.hoisting import without_loop_invariants
from .loops.merged_loops import merged_loops
from .loops.reversed_axes import with_reversed_axes
from .loops.unit_axes import without_unit_axes
from .loops.unread_results import without_unread_results
from .normal_form import normal_form
from .operands.gathered_operands import with_gathered_operands
from .prefix_lookups import with_prefix_lookups
from .prefixes import with_prefixes_in_order
from .reciprocals import with_reciprocals
from .sums.added_sums import with_added_sums
from .sums.added_updates import with_added_updates
from .sums.axis_order import with_axes_in_order
from .sums.divided_factors import with_divided_factors
from .sums.factored_sums import with_factored_sums
from .sums.grouped_columns import with_grouped_columns
from .sums.narrowed_results import with_narrowed_results
from .sums.quotient_sums import with_split_quotients
from .sums.scanned_sums import with_scanned_sums
from .sums.shared.joined_sums import with_joined_sums
from .sums.unused_axes import without_repeated_elements
from .values.constant_values import with_constant_values
from .values.digit_dimensions import with_digit_dimensions
from .values.digit_results import with_digit_results
from .values.dimension_order import with_ordered_dimensions
from .values.distinct_values import with_distinct_values
from .values.element_values import with_element_values
from .values.flat_views import with_flat_views
from .values.placed_parts import with_ordered_placed_parts, with_placed_parts
from .values.repeated_parts import with_repeated_parts
from .values.stored_parts import with_stored_parts
from .windows.equal_windows import with_equal_windows
from .windows.separated_windows import with_separated_windows
from .windows.unrolled import with_inlined_borders, with_written_classes
from .windows.window_sums import with_window_sums


@dataclass(frozen=True)
class Rewrite:
    """A row of the table.

    Attributes
    ----------
    apply : callable
        Equal tensors for some tensors.
    exact : bool
        Whether sums and products are rounded in the order in which they are written.
    kinds : tuple of str
        The kinds of targets that it is for.
    """

    apply: Callable[[Sequence[Tensor]], list[Tensor]]
    exact: bool = True
    kinds: tuple[str, ...] = ("llvm", "cuda")


#: what is computed: less of it, in the form that TVM lowers
BEFORE_KERNELS = (
    Rewrite(merged_loops),
    Rewrite(without_unread_results),
    Rewrite(without_fixed_carries),
    Rewrite(without_loop_invariants),
    Rewrite(without_unused_axes),
    Rewrite(with_flat_views),  # the normal form divides by other numbers
    Rewrite(normal_form),
    Rewrite(without_repeated_elements, exact=False),
    Rewrite(with_equal_windows),
    Rewrite(with_placed_parts),
    Rewrite(with_ordered_placed_parts, exact=False),
    Rewrite(with_stored_parts),
    Rewrite(with_repeated_parts),
    Rewrite(with_digit_dimensions),
    Rewrite(with_digit_results),
    Rewrite(with_split_quotients),
    Rewrite(with_reversed_axes, exact=False),
    Rewrite(with_element_values),
    Rewrite(with_distinct_values),
    Rewrite(with_constant_values, kinds=("llvm",)),
    Rewrite(with_grouped_columns, exact=False, kinds=("llvm",)),
    Rewrite(with_gathered_operands, kinds=("llvm",)),
    Rewrite(with_separated_windows, exact=False),
    Rewrite(with_narrowed_results),
    Rewrite(with_divided_factors, exact=False),
    Rewrite(with_float_products, kinds=("llvm",)),
    Rewrite(with_ordered_contractions, exact=False),
    Rewrite(with_reciprocals, exact=False, kinds=("llvm",)),
    Rewrite(with_circular_places, kinds=("llvm",)),
)

#: what one pass over memory computes
INTO_KERNELS = (
    Rewrite(without_unit_axes),
    Rewrite(with_ordered_dimensions),
    Rewrite(with_fused_argmax),
    Rewrite(with_added_sums, exact=False),
    Rewrite(with_added_updates, exact=False),
    Rewrite(with_scanned_sums, exact=False),
    Rewrite(with_factored_sums, exact=False),  # of sums that are added, factors are in common
    Rewrite(with_divided_factors, exact=False),  # sums with factors have divisors again
    Rewrite(with_window_sums),
    Rewrite(with_joined_sums),
    Rewrite(with_inlined_borders),
    Rewrite(with_written_classes),
    Rewrite(with_prefixes_in_order),
    Rewrite(with_prefix_lookups),
    Rewrite(with_axes_in_order, exact=False),
)


def rewritten(
    tensors: Sequence[Tensor],
    table: Sequence[Rewrite],
    kind: str | None = None,
    exact_math: bool = False,
) -> list[Tensor]:
    """Equal tensors after the rewrites of a table; `kind` None stands for any target."""
    current = list(tensors)
    for one in table:
        if (one.exact or not exact_math) and (kind is None or kind in one.kinds):
            current = one.apply(current)
    return current
