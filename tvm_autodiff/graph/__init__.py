"""Stages, the graphs that they form, and rewrites of whole stages."""
