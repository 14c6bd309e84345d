"""Stages that te cannot express, each embedded as an extern with a plain loop nest."""
