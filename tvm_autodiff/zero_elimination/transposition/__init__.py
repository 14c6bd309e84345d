"""Transposes derivative terms into sums over solutions."""
