"""Scalar expressions: vocabulary of TVM's nodes, building, rewriting, simplification, printing."""
