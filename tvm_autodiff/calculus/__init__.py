"""The rules of calculus: scalar operators, reducers, and the terms of a stage's derivative."""
