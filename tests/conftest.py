"""What every test shares: the profiles of hypothesis and the `golden` fixture.

`golden(name, text)` compares `text` with the file tests/golden/<name>; ``pytest --update-golden``
writes the files instead, to be read as a diff before they are committed. Builds are kept in
a folder of this run, so that no test sees what an earlier version built.
"""

from __future__ import annotations

import atexit
import difflib
import functools
import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

# modules that only processes import which tests start
collect_ignore = ["without_torch"]

# what tests build is kept for the tests of this run only
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tvm_autodiff-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# TVM's threads spin for up to 0.2 s after each call, on the cores that other workers test on
os.environ["TVM_THREAD_POOL_SPIN_COUNT"] = "0"
os.environ["OMP_WAIT_POLICY"] = "passive"  # and so do PyTorch's

# JAX tells what is right, in few calls of each program: how fast it is does not matter
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

# what imports and collection make lives as long as the tests: looking for garbage in it is in vain
gc.disable()

# the same examples in every run; `pytest --hypothesis-profile=explore` looks for new ones
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/, compare nothing"
    )


#: files that `make quick` leaves out, and that begin first, so that no worker waits for one at the
#: end: whole programs, notebooks, long compilations
SLOW = (
    "test_contributing.py",
    "test_notebooks.py",
    "test_tutorials.py",
    "test_deep_graphs.py",
    "test_determinism.py",
    "test_differentiation_growth.py",
    "test_cuda_audit.py",
    "test_cuda_programs.py",
    "test_cuda_rules.py",
    "test_suite_cases.py",
    "test_cuda_sources.py",
    "test_symbolic_extents.py",
    "test_random_graphs.py",
    "test_random_modes.py",
    "test_tuning.py",
    "test_transformer.py",
)

#: tests that `make quick` leaves out by themselves, as they take a second or more: processes of
#: their own, many examples; with their file where others have the same name
SLOW_TESTS = (
    "test_a_bound_is_told_where_not_everything_is_tried",
    "test_a_budget_for_symbolic_sizes",
    "test_a_budget_is_not_exceeded_where_steps_are_kernels",
    "test_a_cpu_without_the_instructions_is_refused",
    "test_a_fork_after_a_call_with_threads",
    "test_a_linear_extern_in_every_mode_and_order",
    "test_a_measurement",
    "test_a_module_and_its_parameter",
    "test_a_part_for_one_row",
    "test_a_periodic_stencil_and_its_gradient",
    "test_a_program_in_cpp",
    "test_a_program_without_run_on_the_page",
    "test_a_read_beside_an_array_ends_the_process",
    "test_a_script_beside_the_clone_finds_the_package",
    "test_a_single_component_and_an_index_that_is_no_place",
    "test_a_training_step_keeps_two_cotangents_at_a_time",
    "test_affine.py::test_value_is_kept",
    "test_an_override_replaces_them",
    "test_another_process_finds_it_and_does_not_compile",
    "test_answers",
    "test_as_a_process",
    "test_at_most_twice_the_floor",
    "test_attention",
    "test_backward_passes",
    "test_blocks_print_what_the_page_says",
    "test_borders_that_are_mirrored",
    "test_both_modes_and_second_order",
    "test_branches_are_kept_where_there_are_no_vectors",
    "test_built_symbolic_sizes",
    "test_chains_of_stencils",
    "test_chains_with_gradients",
    "test_coefficients_inside_divisions_are_reduced",
    "test_command",
    "test_compiled_gathers",
    "test_conditions_on_unsigned_data",
    "test_costs_are_the_recorded_ones",
    "test_cotangents_times_jacobians",
    "test_crashes_and_endless_programs_are_failures",
    "test_deep_chain",
    "test_deep_expression",
    "test_dtypes.py::test_on_a_cpu",
    "test_emitted_te_and_its_gradient",
    "test_every_mode_and_order",
    "test_extents_may_be_symbolic",
    "test_extents_that_are_converted_are_shared_between_threads",
    "test_factors_of_steps_that_are_shared_are_graphs",
    "test_finite_differences_in_both_modes_and_batched",
    "test_float64.py::test_errors_of_pairs",
    "test_functions_of_results_that_lie_apart_are_a_pass_of_their_own",
    "test_fused_rows.py::test_symbolic_rows",
    "test_gradients_agree_with_jax",
    "test_gradients_are_built",
    "test_gradients_of_two_processes_are_those_of_one",
    "test_graphs_that_pytorch_kept_on_disk_find_their_operators",
    "test_groups_are_batches",
    "test_half_vectors_where_whole_ones_copy_for_longer_than_they_compute",
    "test_in_a_process_of_its_own",
    "test_integers_and_float32",
    "test_kernels_are_called_directly",
    "test_large_contractions_are_split_for_the_cache",
    "test_large_trees_are_stored",
    "test_launches_access_only_their_arrays_and_wrong_ones_are_seen",
    "test_load_in_a_fresh_process",
    "test_long_chains_are_rebuilt",
    "test_long_chains_of_stages",
    "test_long_chains_stay_stages_of_limited_size",
    "test_long_reductions_keep_the_order",
    "test_loops.py::test_values_and_gradients",
    "test_maps_that_share_work_run_in_one_pass",
    "test_masks_are_no_alarm",
    "test_mixed_programs_have_every_feature",
    "test_nearest_neighbours",
    "test_nested",
    "test_nested_conditions_compile",
    "test_nested_indices_are_built_in_time",
    "test_newton_without_its_steps",
    "test_no_budget_is_exceeded_and_more_bytes_are_never_more_work",
    "test_no_graph_break_and_the_same_gradients",
    "test_on_a_gpu",
    "test_one_graph_for_all_sizes",
    "test_one_program_keeps_less",
    "test_operands_over_a_symbolic_axis_are_packed",
    "test_operators_keep_the_contract",
    "test_place_of_the_maximum_with_its_value",
    "test_points_agree_with_islpy",
    "test_prefix_is_a_stack_of_gradients",
    "test_processes_and_threads_that_build_the_same_at_once",
    "test_programs_read_only_their_arrays",
    "test_random_bodies",
    "test_random_expressions",
    "test_random_maps",
    "test_random_nests",
    "test_random_sums",
    "test_random_systems",
    "test_random_systems_by_brute_force",
    "test_random_systems_by_islpy",
    "test_recursive.py::test_built",
    "test_relaxations",
    "test_right_kernels",
    "test_rules.py::test_symbolic",
    "test_same_result_under_another_hash_seed",
    "test_same_text_in_every_process",
    "test_saved_and_in_two_passes",
    "test_scan.py::test_symbolic_sizes",
    "test_second_derivatives_of_loops_in_loops",
    "test_segments.py::test_all_derivatives_are_those_of_the_whole_loop",
    "test_segments.py::test_built",
    "test_several_symbolic_sizes_and_a_sum_of_contributions",
    "test_several_threads_at_once",
    "test_simplex_bounds_every_integer_point",
    "test_simplify.py::test_value_is_kept",
    "test_sizes_alternate",
    "test_small_terms_are_left_out_of_equal_conditions",
    "test_smaller_forms_have_equal_values",
    "test_sparse_operands.py::test_gradients",
    "test_statement_loops.py::test_gradients",
    "test_statement_loops.py::test_tuples",
    "test_states_on_a_gpu",
    "test_sums_of_sums",
    "test_sums_over_no_box_store_nothing",
    "test_symbolic_length",
    "test_symbolic_sizes_that_differ_are_symbols_of_their_own",
    "test_tangents_are_pulled_back",
    "test_temporaries_of_two_sizes_have_those_of_the_call",
    "test_the_checker_sees_a_wrong_entry",
    "test_the_draw_is_the_same_in_every_process",
    "test_the_geometric_mean_is_near_the_floor",
    "test_the_gradient_of_a_bilateral_filter_keeps_its_schedules",
    "test_the_gradient_of_a_chain_is_that_of_its_closed_form",
    "test_the_import_loads_nothing_and_names_load_no_framework",
    "test_the_jacobian_of_a_hand_is_made_of_differences",
    "test_the_matrix_of_bundle_adjustment_is_that_of_jax",
    "test_the_source_holds_what_tests_need",
    "test_the_wheel_alone_differentiates",
    "test_the_wheel_holds_the_package_alone",
    "test_the_work_of_joining_grows_with_the_maps",
    "test_third_derivatives",
    "test_third_order",
    "test_three_orders_beside_pytorch",
    "test_two_devices",
    "test_two_symbols",
    "test_two_te_operators_train_as_in_jax",
    "test_two_threads_work_at_the_same_time",
    "test_updates_in_every_part",
    "test_values_of_every_part",
    "test_vectors_of_short_rows_lie_along_a_symbolic_axis",
    "test_what_a_combiner_uses_twice_has_no_lets",
    "test_what_an_input_holds_is_told",
    "test_what_is_not_shared_is_cut_too",
    "test_windows_of_windows_are_built_in_time",
    "test_work_does_not_grow_with_what_is_below",
    "test_wrong_arrays_and_several_threads",
    "test_wrong_kernels_are_found",
)

#: more files that begin first
LONG = (
    *SLOW,
    "test_random_programs.py",
    "test_guard_pages.py",
    "test_kernels_sanitized.py",
    "test_problem.py",
    "test_processes.py",
    "test_sanitized.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what stands above, and of every parametrised test all cases but the first."""
    seen: set[tuple[Path, str]] = set()
    for item in items:
        name = getattr(item, "originalname", None)
        key = (item.path, f"{getattr(item, 'cls', None)}.{name or item.name}")
        names = {name, f"{item.path.name}::{name}"}
        if item.path.name in SLOW or names.intersection(SLOW_TESTS) or key in seen:
            item.add_marker(pytest.mark.slow)
        seen.add(key)
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_collection_finish() -> None:
    """Look for garbage in what tests make, and seldom: few of them leave any in cycles."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def numbers_of_a_test_alone(request: pytest.FixtureRequest) -> None:
    """Seed the module's generator anew: what a test draws does not depend on other tests."""
    generator = getattr(request.module, "RNG", None)
    if generator is not None:
        generator.bit_generator.state = np.random.default_rng(0).bit_generator.state


#: what these tests check are numbers of programs, not kernels: LLVM takes a fifth of their time to
#: optimise what is called once. All others build as users do: those of the rules of a CPU, whose
#: code LLVM has to keep right, code generation, run time, files, benchmarks, accesses and compiled
#: random programs
UNOPTIMISED = (
    "benchmarks/gradbench",
    "benchmarks/test_suite_cases.py",
    "debug",
    "functions",
    "gradients",
    "graph",
    "interop",
    "operators",
    "partition",
    "rules",
    "schedule/cpu/recurrences",
    "schedule/cpu/test_elementwise_bodies.py",
    "schedule/cpu/test_interleaving.py",
    "schedule/cpu/test_prefix_reduction.py",
    "schedule/cpu/test_transposition.py",
    "schedule/cpu/test_tuple_reductions.py",
    "schedule/cpu/test_windows.py",
    "schedule/cpu/tiles/symbolic",
    "schedule/cuda",  # CUDA's compiler does the kernels: this is the code that launches them
    "schedule/emit",
    "schedule/fusion",
    "schedule/rewrites",
    "schedule/test_guarded_factors.py",
    "schedule/test_size_parts.py",
    "schedule/test_symbolic_sizes.py",
    "schedule/test_wide_shapes.py",
    "schedule/tiled",
    "test_check.py",
    "test_register.py",
    "transforms",
    "zero_elimination",
)
TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def unoptimised_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds for this host are not optimised by LLVM, in the folders above."""
    if request.path.relative_to(TESTS).as_posix().startswith(UNOPTIMISED):
        monkeypatch.setattr("tvm_autodiff.schedule.machine.host_target", _unoptimised_host)


@functools.cache
def _unoptimised_host() -> Any:
    # not above: the process that hands out tests imports none of this
    from tvm.target import Target

    from tvm_autodiff.codegen.targets import host_target

    return Target({**host_target().export(), "opt-level": 0})


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the one on file; a missing file is a failure, not a first recording."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no tests/golden/{name} yet: record it with pytest --update-golden")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            difference = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm=""
            )
            pytest.fail("\n".join(difference), pytrace=False)

    return check
