"""Holes in a release, found without a network.

`parts.py` reads what a release is made of from its SBOM. `osv.py`, `tracker.py` and `changelog.py`
read advisories that a site has carried in. `statements.py` reads what we say of them, and
`match.py` brings the three together.
"""
