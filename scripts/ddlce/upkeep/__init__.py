"""Keeping the distribution up to date: what is newer, what changes, what a release must have.

`outdated.py` asks pip and apt for newer versions. `difference.py` compares two locks, and
`changes.py` writes the comparison as a page. `release.py` checks a release, and tags it.
"""
