"""A release as a container image: an OCI layout, with the layers of a base image below its own.

`layers.py` divides the release's packages and writes a layer, `layout.py` the image around them.
The files are those of the installed release, with the image's own paths inside.
"""
