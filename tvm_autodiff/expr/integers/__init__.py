"""Integer expressions: bounds, widths and values at the points of loops."""
