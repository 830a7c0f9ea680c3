"""A binary cache: packages that others have built from the same inputs, signed by who built them.

    SUBDIR/NAME-VERSION-hDIGEST_0.conda    as in the store
    statements/DIGEST.json                 what was built from the inputs of this digest

A statement is an in-toto statement in a DSSE envelope, with SLSA provenance. It is good for ever,
since a digest names all inputs; so a cache is plain files that never change, in a folder or on a
web server. `statement.py` writes and checks them, `push.py` fills a cache, `take.py` takes from it.
"""
