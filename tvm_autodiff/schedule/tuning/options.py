"""`Tuning`: the options of a schedule search.

`search` runs the search, and `choice` uses its results.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import InvalidArgumentError


@dataclass(frozen=True)
class Tuning:
    """Options of the search for faster schedules; pass them as `tune=` to `build`.

    Parameters
    ----------
    trials : int
        The total number of schedules to try, shared among the kernels that the database lacks. 0
        uses the database without trying anything.
    database : path
        The folder of the results. Every batch of trials is written at once, so an interrupted
        search loses nothing, and later builds with the same folder continue from it.
    seconds : float, optional
        The time limit of the search. The current batch of trials is finished.
    progress : bool
        Whether to show a progress bar (if tqdm is installed).

    Raises
    ------
    InvalidArgumentError
        If a number is negative, or the database is a file.

    Examples
    --------
    >>> Tuning(trials=64, database="schedules").trials
    64
    """

    trials: int = 64
    database: str | os.PathLike[str] = "tvm_autodiff_schedules"
    seconds: float | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 0:
            raise InvalidArgumentError(
                f"Tuning: trials must be an integer of at least 0, got {self.trials!r}"
            )
        if self.seconds is not None and not self.seconds >= 0:
            raise InvalidArgumentError(
                f"Tuning: seconds must be a number of at least 0 or None, got {self.seconds!r}"
            )
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidArgumentError(
                f"Tuning: database {str(self.folder)!r} is a file: pass a folder"
            )

    @property
    def folder(self) -> Path:
        """The folder of the database."""
        return Path(self.database)
