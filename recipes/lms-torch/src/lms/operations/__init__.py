"""Single operations that are computed again: the log of an iteration's, and their repetition."""
