"""What the server of workers imports, with no look for garbage in between: none is made."""

from __future__ import annotations

import gc
import importlib

gc.disable()
importlib.import_module("tests.random_programs.tasks")
