"""Operators over data: pairs, sequences, signals, statistics."""
