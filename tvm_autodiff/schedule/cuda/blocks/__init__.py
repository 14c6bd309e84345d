"""What blocks of threads do: tiles of matrix products, phases of rows, parts, registers."""
