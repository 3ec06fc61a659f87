"""The fast path: a prompt template that DSPy renders once and that is filled in for each question."""
