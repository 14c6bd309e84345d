"""Register tiles over axes of symbolic extent: their choice, blocks of rows, panels of columns."""
