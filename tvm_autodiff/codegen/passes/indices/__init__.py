"""Rewrites of index arithmetic: widths, divisions, and what TVM and LLVM simplify wrongly."""
