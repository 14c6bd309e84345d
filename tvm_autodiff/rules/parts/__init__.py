"""Parts of stages as stages of their own, which are differentiated instead."""
