"""The folder of this package, for what digests its files or looks for them in tracebacks."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(os.path.abspath(__file__)).parent
