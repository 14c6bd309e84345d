"""What a loop nest reads and computes: index forms, ranges, products, bodies."""
