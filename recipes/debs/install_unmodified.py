"""Install the Debian packages in $SRC_DIR/debs into $PREFIX, each file as it is.

The build script of what its licence lets be passed on unmodified alone, as CUDA's libraries. They
get no RPATH: a library is found by the RPATH of the program that loads it (ld.so(8)), as Python's.
Run by the build machine's python3, as install_deb.py is.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from install_deb import install, keep_text, layout, unpack


def main() -> None:
    """Read the options and install."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    more = {"action": "append", "default": []}
    parser.add_argument("--python", required=True, help="the target's Python, e.g. 3.13")
    parser.add_argument("--deb", metavar="NAME", help="a package to install", **more)
    parser.add_argument("--exclude", metavar="GLOB", help="files that are left out", **more)
    parser.add_argument("--move", metavar="FROM=TO", help="a folder of the package", **more)
    options = parser.parse_args()
    source, prefix = Path(os.environ["SRC_DIR"]), Path(os.environ["PREFIX"])
    root = source / "root"
    for deb in sorted((source / "debs").glob("*.deb")):
        unpack(deb, root if deb.stem in options.deb else source / "texts" / deb.stem)
        keep_text(deb.stem, source)
    install(root, prefix, layout(root, options))


if __name__ == "__main__":
    main()
