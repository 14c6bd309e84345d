"""Operators in expressions that mark what transforms treat differently."""
