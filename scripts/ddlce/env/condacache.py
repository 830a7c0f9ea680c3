"""What conda needs to see, in rattler's folder of unpacked packages, a package cache of its own.

conda takes a folder for a cache by its `urls.txt`, and an unpacked package for the one that it
looks for by `info/repodata_record.json`: its record in the channel, with the URL that it came
from. With both, `conda create --clone` of a release needs neither network nor channel.

Source: conda 24.7, `conda/core/package_cache_data.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ddlce.env.records import Record
from ddlce.files import write_atomic
from ddlce.packagecache import find

#: Fields of an installed package's record that tell of its prefix, not of the package.
OF_THE_PREFIX = frozenset(
    (
        *("auth", "extracted_package_dir", "files", "installed_system_menus", "link"),
        *("package_tarball_full_path", "paths_data", "requested_spec", "requested_specs"),
    )
)
URLS = "urls.txt"
RECORD = Path("info", "repodata_record.json")


def show_to_conda(pkgs: Path, records: list[Record]) -> None:
    """Add to a cache what conda needs to find the packages of a new release in it.

    Where the channel has moved since a package was unpacked, it is found under the new URL.

    Args:
        records: of the packages that were just installed from it.
    """
    urls_file = pkgs / URLS
    urls = dict.fromkeys(urls_file.read_text().splitlines() if urls_file.is_file() else [])
    for record in records:
        package = find(pkgs, record.stem, str(record.data.get("sha256")))
        if package is None or (package / "info").stat().st_uid != os.geteuid():
            continue  # what another administrator has unpacked, they have shown
        data = {k: v for k, v in record.data.items() if k not in OF_THE_PREFIX and v is not None}
        text = json.dumps(data, indent=2, sort_keys=True) + "\n"
        file = package / RECORD
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.chmod(0o755)
            write_atomic(file, text)
        urls[str(record.data["url"])] = None
    write_atomic(urls_file, "".join(f"{url}\n" for url in urls))
