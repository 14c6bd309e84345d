"""Steps of loops over time, row by row: their programs, states and latencies."""
