"""Who made a release: TUF's metadata over locks, index, SBOMs and bundles.

`policy.py` reads whom this machine trusts, `client.py` checks that, `sentences.py` says why not.
How long signatures are valid is said when signing (`days` of `cli/keys.py`).
`keys.py` and `repository.py` are for whoever keeps a channel; they alone need `cryptography`.
"""
