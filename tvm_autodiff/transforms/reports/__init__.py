"""What a gradient costs and why, as text and as tables."""
