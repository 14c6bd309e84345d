"""Register tiles of contractions: their choice, their loops, packed operands."""
