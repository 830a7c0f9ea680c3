"""A site: releases as plain files for any web server.

    releases.json                                what there is; the last file that changes
    releases/SHA256.json                         the same text, under the name that is signed
    releases/ENV-RELEASE-PLATFORM-DIGEST/        lock, condarc.j2, bundle and SBOMs of one release
    ddlce.pyz, ddlce-VERSION….whl                ddlce itself, where `make dist` has put it
    channel/                                     the packages, their index, SBOMs and signatures

`site.py` writes it for `ddlce publish`; `read.py` reads it for `ddlce env create --from`.
"""
