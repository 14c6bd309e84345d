"""Integer expressions: bounds, widths, and their values at the points of loops."""
