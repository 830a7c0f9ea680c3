"""Unpacks the packages that `ddlce` runs on; the bundle's first Python runs it, and has no more.

Usage: unpack.py FILE OFFSET STAGE. FILE has the channel's tar archive at OFFSET. The packages
that STAGE/release/bundle.json names are unpacked into STAGE/python.
"""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from pathlib import Path

sys.path.append(str(Path(__file__).with_name("site")))

from backports.zstd import ZstdError, ZstdFile


def unpack(file: str, offset: int, stage: str) -> None:
    """Unpack them."""
    said = json.loads(Path(stage, "release", "bundle.json").read_text("utf-8"))
    packages = set(said["runs_on"])
    with Path(file).open("rb") as stream:
        stream.seek(offset)
        with tarfile.open(fileobj=stream, mode="r:") as channel:
            for member in channel:
                name = member.name.rpartition("/")[2]
                if name not in packages:
                    continue
                noarch = member.name.startswith("channel/noarch/")
                target = f"{stage}/python"
                with zipfile.ZipFile(channel.extractfile(member)) as package:  # type: ignore[arg-type]
                    _payload(package, f"{target}/lib/{said['python']}" if noarch else target)
                packages.remove(name)
    if packages:
        sys.exit(f"not in the bundle: {', '.join(sorted(packages))}")


def _payload(package: zipfile.ZipFile, target: str) -> None:
    inner = next(name for name in package.namelist() if name.startswith("pkg-"))
    with package.open(inner) as packed, ZstdFile(packed) as plain:
        with tarfile.open(fileobj=plain, mode="r|") as files:
            files.extractall(target)


if __name__ == "__main__":
    try:
        unpack(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    except KeyboardInterrupt:
        sys.exit(130)
    except (
        OSError,
        EOFError,
        ValueError,
        tarfile.TarError,
        zipfile.BadZipFile,
        ZstdError,
    ) as error:
        sys.exit(f"{error or type(error).__name__}")
