"""Small helpers that every package may use: records, the background event loop, number parsing, notebook tables."""
