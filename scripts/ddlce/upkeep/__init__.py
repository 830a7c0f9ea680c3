"""Keeping the distribution up to date: what is newer, what changes, what a release must have.

`outdated.py` asks pip and apt for newer versions. `changes.py` writes as a page what `lockdiff.py`
finds between two locks. `release.py` checks a release, and tags it.
"""
