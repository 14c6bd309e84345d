"""Passes over vectors: how they are read, computed lane by lane, and kept on the stack."""
