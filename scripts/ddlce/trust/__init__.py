"""Who made a release: TUF's metadata over locks, index, SBOMs and bundles.

`policy.py` reads whom this machine trusts, `client.py` checks that, `sentences.py` says why not.
`keys.py` and `repository.py` are for whoever keeps a channel; they alone need `cryptography`.
"""
