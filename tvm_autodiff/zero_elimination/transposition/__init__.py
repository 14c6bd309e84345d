"""A term of a derivative transposed into a sum over solutions, and such sums as stages."""
