"""Helpers that every package may import. They import no other package of the library."""
