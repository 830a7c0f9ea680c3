"""The channel inside a bundle, extracted: stock conda reads its index and installs its packages."""

from __future__ import annotations

import json
from pathlib import Path

from support.bundles import run_bundle, working_bundle
from support.run import ok, run
from support.stockconda import conda_environ, find_conda


def test_conda_installs_from_the_channel_of_a_bundle(tmp_path: Path) -> None:
    lock, file = working_bundle(tmp_path / "made")
    channel = tmp_path / "a channel"
    done = ok(run_bundle(file, "--extract", "channel", channel, folder=tmp_path))
    address = channel.as_uri()
    assert done.stdout.strip().startswith(f"{channel} is a channel: ")
    conda, environ = find_conda(), conda_environ(tmp_path / "home")
    words = ("--override-channels", "--channel", address)
    done = ok(conda.run("search", *words, "--json", env=environ))
    found = [record for records in json.loads(done.stdout).values() for record in records]
    assert {record["fn"]: record["sha256"] for record in found} == {
        package.file: package.sha256 for package in lock.packages
    }
    # Its solver for SAT is a compiled package, which these tests cannot have: by name of the file.
    prefix = tmp_path / "prefix"
    files = [channel / package.subdir / package.file for package in lock.packages]
    ok(conda.run("create", "--yes", "--quiet", "--prefix", prefix, *files, env=environ))
    records = [json.loads(path.read_text()) for path in (prefix / "conda-meta").glob("*.json")]
    assert {record["fn"]: record["sha256"] for record in records} == {
        package.file: package.sha256 for package in lock.packages
    }
    assert (prefix / "etc/toy").read_text() == "toy\n"
    assert run([prefix / "bin/python", "-c", "print(1)"]).stdout == "1\n"
