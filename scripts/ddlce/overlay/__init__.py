"""Overlays: a user's Python packages on top of a release, in a venv that pins what it has."""
