"""Stages that te cannot write, each embedded as an extern with a plain loop nest."""
