"""Searches for schedules with TVM's meta-schedule, and stores them in a database on disk."""
