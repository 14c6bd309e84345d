"""Stages, the graphs they form, and rewrites of whole stages."""
