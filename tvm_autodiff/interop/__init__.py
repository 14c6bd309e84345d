"""The library inside of other frameworks: one package for each, which imports its framework."""
