"""`scan`, and how loops over time are differentiated, batched and simplified."""
