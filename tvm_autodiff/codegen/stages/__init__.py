"""Stages as TIR functions, and TIR functions as stages."""
