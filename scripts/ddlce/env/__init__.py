"""Environments: immutable releases made from a lock, and the users' writable clones of them."""
