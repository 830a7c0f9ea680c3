"""A release's bill of materials, in the two formats that others read.

`collect.py` reads the parts from the lock, its packages and `sources.lock`, `carried.py` those that
packages bring from others. `cyclonedx.py` and `spdx.py` write them with their authors' libraries.
"""
