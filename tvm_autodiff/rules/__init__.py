"""Rules of differentiation: scalar operators, reducers, and the terms of a stage's derivative."""
