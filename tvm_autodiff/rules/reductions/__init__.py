"""The derivatives of reductions, one for each kind of reducer."""
