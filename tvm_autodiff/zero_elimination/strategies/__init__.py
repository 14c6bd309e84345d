"""Strategies that compute a guarded sum with few points, one per file, and the table that chooses.
"""
