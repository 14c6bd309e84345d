"""Scalar expressions: the names of TVM's nodes, and how to build, rewrite, simplify and print them.
"""
