"""Elementary functions in branch-free arithmetic, which vectorises."""
