"""Rules of differentiation that users give for tensors, and how they are applied."""
