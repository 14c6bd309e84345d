"""Compiled programs in files: their manifest, the cache of builds, export and loading."""
