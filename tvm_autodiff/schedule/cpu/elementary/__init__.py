"""Elementary functions of float32 as arithmetic without branches, which vectorises."""
