"""Elementary functions of float64 whose arithmetic is not that of float32 with other numbers."""
