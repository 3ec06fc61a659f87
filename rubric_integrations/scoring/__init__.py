"""From answers to a score: pure functions, without I/O, models or randomness."""
