"""Stands before PyTorch on the path of processes that need none: see `tests.processes`."""

raise ImportError("this process is tested without PyTorch")
