"""One file of a release: it lists, extracts, checks and installs itself where only sh and tar are.

Its parts, in this order:

- the header: `header.sh`, which checks the whole file and unpacks the first part;
- the first part: a tar archive of the description, the lock, and a Python that reads packages;
- the channel: a tar archive of the packages as they are, and their index;
- the sha256 of all that comes before, in hex, and a line break.

`unpack.py` is run by that Python and makes the one that `ddlce` needs, out of the packages. Then
`install.py` fills the root in the way `ddlce env create` does. Nothing is in the file twice but
the first Python, so it is hardly larger than its packages.
"""
