"""The error of the benchmark when it cannot go on."""


class BenchmarkError(Exception):
    """One line: what was wrong, and what to do."""
