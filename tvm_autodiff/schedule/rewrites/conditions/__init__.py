"""Conditions of stages in a form that TVM keeps."""
