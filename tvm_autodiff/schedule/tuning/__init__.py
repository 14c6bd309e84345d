"""Schedules found by trying them out: TVM's meta-schedule over kernels, with a database on disk."""
