"""Runs meta-schedule over kernels, one batch of trials at a time, into a database on disk.

Every batch is written after it was measured. A time limit ends the search after the current batch,
as does an interrupt by the user, which is passed on.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from ...codegen.modules import module_of
from ...errors import InvalidArgumentError
from .measure import Builder, Runner
from .options import Tuning


class _TimeIsUp(Exception):
    """Raised to end a search from inside."""


@derived_object
class _Watch(ms.measure_callback.PyMeasureCallback):
    """Counts trials, and ends the search when its time is up."""

    def __init__(self, bar: Any, end: float | None) -> None:
        super().__init__()
        self.bar = bar
        self.end = end
        self.expired = False

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:
        """Count a batch that was measured and written."""
        if self.bar is not None:
            self.bar.update(len(measure_candidates))
        if self.end is not None and time.monotonic() >= self.end:
            self.expired = True
            raise _TimeIsUp


def search(functions: Mapping[str, Any], target: Any, tuning: Tuning) -> None:
    """Try schedules of some functions and write the measurements into the database.

    Parameters
    ----------
    functions : mapping of str to PrimFunc
        The functions to schedule, by name.
    target
        The target with its number of cores.
    tuning : Tuning
        The number of trials, time limit, folder and progress bar.
    """
    if not functions or not tuning.trials:
        return
    module = module_of(
        {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    )
    end = None if tuning.seconds is None else time.monotonic() + tuning.seconds
    try:
        tuning.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(
            f"Tuning: cannot make the database folder {str(tuning.folder)!r}: {error.strerror}"
        ) from None
    _load_intrinsics()
    # trials between two looks at the clock
    batch = min(8, max(1, tuning.trials // len(functions)))
    # schedules to choose a batch from: for a whole one the 512 that TVM makes, which take longer
    # than most trials
    candidates = 64 * batch
    builder = Builder()
    with _progress(tuning) as bar, _quiet():
        watch = _Watch(bar, end)
        try:
            ms.tune_tir(
                module,
                target,
                str(tuning.folder),
                max_trials_global=tuning.trials,
                num_trials_per_iter=batch,
                builder=builder,
                runner=Runner(builder.libraries),
                strategy=ms.search_strategy.EvolutionarySearch(population_size=candidates),
                cost_model=_cost_model(),
                measure_callbacks=[
                    ms.measure_callback.AddToDatabase(),
                    ms.measure_callback.UpdateCostModel(),
                    watch,
                ],
                seed=0,
            )
        except Exception:
            if not watch.expired:
                raise


def best_schedule(func: Any, target: Any, tuning: Tuning) -> Any | None:
    """The fastest schedule for a function in the database."""
    database = ms.database.JSONDatabase(work_dir=str(tuning.folder))
    return database.query_schedule(module_of({"main": func}), target, "main")


def _load_intrinsics() -> None:
    """Import what meta-schedule imports when it starts: some hundred functions in TVM's script.

    For each of them TVM asks `inspect` for the modules of all frames. Frames of the import system
    and of code that was given as text have no file, so `inspect` searches all loaded modules each
    time, unless they are in its cache.
    """
    known = inspect.modulesbyfile
    for name in ("importlib._bootstrap", "importlib._bootstrap_external"):
        known.setdefault(f"<frozen {name}>", name)
    texts, frame = {}, inspect.currentframe()
    while frame is not None:
        texts[frame.f_code.co_filename] = frame.f_globals.get("__name__", "")
        frame = frame.f_back
    added = {file: name for file, name in texts.items() if file[0] == "<" and file not in known}
    known.update(added)
    try:
        importlib.import_module("tvm.s_tir.tensor_intrin")
    finally:  # other code may have such a name, too
        for file in added:
            known.pop(file, None)


def _cost_model() -> str:
    """A model that learns from trials where xgboost is installed."""
    try:
        importlib.import_module("xgboost")
    except ImportError:
        return "random"
    return "xgb"


@contextlib.contextmanager
def _progress(tuning: Tuning) -> Iterator[Any]:
    if not tuning.progress:
        yield None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield None
        return
    with tqdm(total=tuning.trials, desc="tuning", unit="trial") as bar:
        yield bar


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Meta-schedule prints tables after each batch; the progress bar is sufficient.

    It also fails over loggers of an earlier search, so its handlers do not outlive this one.
    """
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    level, handlers, propagate = logger.level, logger.handlers[:], logger.propagate
    logger.setLevel(logging.ERROR)
    logger.handlers.clear()
    try:
        yield
    finally:
        for handler in logger.handlers:
            handler.close()
        logger.handlers[:] = handlers
        logger.propagate = propagate
        logger.setLevel(level)
