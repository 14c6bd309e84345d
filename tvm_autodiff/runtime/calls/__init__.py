"""A call of a compiled function: its signature, its arguments, its results and their memory."""
