"""What a user asks of tuning.

In: numbers and a folder. Out: a checked `Tuning`, which `build` takes. The search itself is in
`search`, the use of what it found in `choice`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import InvalidArgumentError


@dataclass(frozen=True)
class Tuning:
    """How long to look for faster schedules, and where to keep them.

    Parameters
    ----------
    trials : int
        Schedules to try in all, shared among the kernels that the database does not know yet; 0
        uses what the database holds and tries nothing.
    database : path
        Folder of what was found. Every batch of trials is written at once, so a search that is
        interrupted loses nothing, and later builds with the same folder start from it.
    seconds : float, optional
        Time limit of the search; the batch of trials that runs by then is finished.
    progress : bool
        Whether to show a progress bar (where tqdm is installed).

    Raises
    ------
    InvalidArgumentError
        A number is negative, or the database is a file.

    Examples
    --------
    >>> Tuning(trials=64, database="schedules", seconds=600.0).trials
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
                f"Tuning: database {str(self.folder)!r} is a file: name a folder"
            )

    @property
    def folder(self) -> Path:
        """The database's folder."""
        return Path(self.database)
