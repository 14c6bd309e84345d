"""Bridges to other frameworks, one package for each, which imports its framework."""
