"""A site: releases as plain files for any web server.

- `releases.json` says what there is. It is the last file that changes.
- `releases/SHA256.json` is the same text, under the name that is signed.
- `releases/ENV-RELEASE-DIGEST-PLATFORM/` has one release: lock, condarc.j2, bundle and SBOMs.
- `ddlce.pyz` and the wheel are `ddlce` itself, where `make dist` has put it.
- `channel/` has the packages, their index, SBOMs and signatures.

`site.py` writes it for `ddlce publish`. `read.py` reads it for `ddlce env create --from`.
"""
