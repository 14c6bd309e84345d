"""Stages that share leading axes, run tile by tile of these axes."""
