"""The ways to compute a guarded sum with few points, one a file, and the table that chooses."""
