"""Splits a sum into sums over disjoint cases, each with simpler indices or conditions."""
