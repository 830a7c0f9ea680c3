"""Modulefiles: an environment as pure environment changes, for Lmod and Environment Modules."""
