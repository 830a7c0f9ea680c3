"""The files of a channel beside its index: run exports, conda's first question, channeldata."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zstandard

from ddlce.engine.versions import version_key

#: Of one subdir (CEP 12, CEP 36), each with its `.zst`.
RUN_EXPORTS, CURRENT = "run_exports.json", "current_repodata.json"

#: Of the channel.
CHANNELDATA = "channeldata.json"

#: What channeldata takes from the newest build's info/about.json.
ABOUT = (
    *("description", "dev_url", "doc_source_url", "doc_url", "home", "identifiers", "keywords"),
    *("license", "summary", "tags"),
)

#: Channeldata's word for each kind of script that runs when a package is linked.
SCRIPTS = {"pre_link": "pre-link", "post_link": "post-link", "pre_unlink": "pre-unlink"}


def describe_channel(folder: Path, metadata: Mapping[str, dict[str, Any]]) -> None:
    """Write the other files that clients ask an indexed channel for.

    - `SUBDIR/run_exports.json`, `.zst`: what packages add to what is built on them (CEP 12), so
      that build tools need not fetch each package to know.
    - `SUBDIR/current_repodata.json`, `.zst`: conda's first question. Elsewhere it has the newest
      versions only; here it is the whole index, which is small.
    - `channeldata.json`: the packages with what their recipes say of them, as conda-index has it:
      https://docs.conda.io/projects/conda-build/en/stable/concepts/generating-index.html

    Args:
        folder: the channel; each of its subdirs has repodata.json and repodata.json.zst.
        metadata: SUBDIR/FILE → what the JSON files in the package's info/ say, by name.
    """
    packages: dict[str, dict[str, Any]] = {}
    subdirs = sorted(path.parent for path in folder.glob("*/repodata.json"))
    for subdir in subdirs:
        for end in ("", ".zst"):
            shutil.copyfile(subdir / f"repodata.json{end}", subdir / f"{CURRENT}{end}")
        exports = {}
        for file, record in _builds(subdir):
            info = metadata[f"{subdir.name}/{file}"]
            found = info.get("run_exports") or {}
            exports[file] = {"run_exports": found}
            package = packages.setdefault(record["name"], {"run_exports": {}, "subdirs": []})
            _merge(package, record, info, f"{subdir.name}/{file}")
            if found:
                package["run_exports"].setdefault(record["version"], found)
        data = {
            "info": {"subdir": subdir.name, "version": 1},
            "packages": {},
            "packages.conda": exports,
        }
        text = _dump(data)
        (subdir / RUN_EXPORTS).write_bytes(text)
        (subdir / f"{RUN_EXPORTS}.zst").write_bytes(zstandard.compress(text, 19))
    channeldata = {
        "channeldata_version": 1,
        "packages": packages,
        "subdirs": [subdir.name for subdir in subdirs],
    }
    (folder / CHANNELDATA).write_bytes(_dump(channeldata))


def _builds(subdir: Path) -> list[tuple[str, dict[str, Any]]]:
    """File and record of each package in the index; the newest of a name first."""
    index = json.loads((subdir / "repodata.json").read_bytes())

    def order(item: tuple[str, dict[str, Any]]) -> tuple[Any, int, int]:
        record = item[1]
        number, time = record.get("build_number", 0), record.get("timestamp", 0)
        return version_key(str(record["version"])), number, time

    named = sorted(index["packages.conda"].items())
    return sorted(named, key=order, reverse=True)


def _merge(
    package: dict[str, Any], record: dict[str, Any], info: dict[str, Any], file: str
) -> None:
    """Add a build to its package's entry in channeldata.

    The newest build describes the package. A script counts if any build has it.
    """
    version = str(record["version"])
    if "version" not in package or version_key(version) > version_key(package["version"]):
        about = info.get("about") or {}
        package.update({key: about[key] for key in ABOUT if about.get(key)})
        package |= {
            "version": version,
            "reference_package": file,
            "timestamp": record.get("timestamp", 0) // 1000,
        }
    if (subdir := file.partition("/")[0]) not in package["subdirs"]:
        package["subdirs"].append(subdir)
    entries = (info.get("paths") or {}).get("paths") or []
    paths = [entry["_path"] for entry in entries]
    modes = {entry.get("file_mode") for entry in entries if entry.get("prefix_placeholder")}
    has = {
        "binary_prefix": "binary" in modes,
        "text_prefix": "text" in modes,
        "activate.d": any(path.startswith("etc/conda/activate.d/") for path in paths),
        "deactivate.d": any(path.startswith("etc/conda/deactivate.d/") for path in paths),
    }
    for key, kind in SCRIPTS.items():
        has[key] = f"bin/.{record['name']}-{kind}.sh" in paths
    package |= {key: value or package.get(key, False) for key, value in has.items()}


def _dump(data: dict[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
