"""The CNN benchmark: how many made-up images well-known networks learn from per second."""
