"""Keeping the distribution up to date: what is newer, what changes, what a release must have.

`difference.py` compares two locks; `changes.py` writes the comparison as a page.
"""
