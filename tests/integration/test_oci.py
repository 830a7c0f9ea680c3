"""A release as a container image; umoci unpacks it, and its programs run in it by chroot."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ddlce.env.layout import Origin, require_origin
from ddlce.env.records import read_records
from ddlce.env.relink import plan_links
from ddlce.oci.layers import divide
from ddlce.platforms import BUILD_PLATFORM
from support.minienv import Site, as_served, everything
from support.ocibase import small_base
from support.run import ok, run

pytestmark = pytest.mark.skipif(
    BUILD_PLATFORM != "linux-64", reason="the base is of this machine's own files"
)
needs_umoci = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("umoci"), reason="needs root and umoci"
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with a shell and a C library, made by hand of this system's files."""
    return small_base(tmp_path_factory.mktemp("base") / "small")


def oci(user: Site, base: Path, out: Path) -> dict[str, Any]:
    said = user.ok("image", "oci", "mini", "--base", f"{base}:1", "--out", out, "--json")
    return dict(json.loads(said))


@needs_umoci
def test_umoci_unpacks_it_and_its_programs_run(user: Site, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "image"
    made = oci(user, base, out)
    done = ok(run(["umoci", "unpack", "--image", f"{out}:2026.11", tmp_path / "bundle"]))
    top = tmp_path / "bundle" / "rootfs"
    prefix = Path(made["prefix"])
    assert str(prefix).startswith("/opt/ddl-ce/envs/mini/2026.11-")
    environ = dict(
        each.split("=", 1)
        for each in json.loads((tmp_path / "bundle" / "config.json").read_text())["process"]["env"]
    )
    assert environ["MINI_GREETING"] == "hello"
    assert environ["LANG"] == "C.UTF-8"
    assert environ["PATH"].startswith(f"{prefix}/bin:")
    assert str(user.root) not in json.dumps(environ)
    command = ["/usr/sbin/chroot", top, "/bin/sh", "-c", "minimod && miniarch && mini-where"]
    # The mini channel's Python is this machine's, whose library it finds at its old place alone.
    done = ok(run(command, env={**environ, "LD_LIBRARY_PATH": f"{prefix}/lib"}))
    assert done.stdout.splitlines()[:2] == [
        f"{prefix}/lib/python3.11/site-packages/minimod/__init__.py",
        "0.4",
    ]
    # The same files as the release has, but bytecode of a source in which the prefix stands.
    names = {p.relative_to(user.current) for p in everything(user.current)}
    unpacked = {p.relative_to(top / str(prefix)[1:]) for p in everything(top / str(prefix)[1:])}
    assert unpacked - names == set()
    assert [p.name for p in names - unpacked] == ["mini_prefix.cpython-311.pyc"]
    # Python sets the path of a source when it loads the bytecode.
    found = run(["grep", "-rlF", "--exclude=*.pyc", str(user.root), top / str(prefix)[1:]])
    assert found.stdout == ""
    assert {p.stat().st_uid for p in everything(top / "opt")} == {0}


@pytest.mark.skipif(not shutil.which("skopeo"), reason="needs skopeo")
def test_skopeo_reads_it(user: Site, base: Path, tmp_path: Path) -> None:
    made = oci(user, base, tmp_path / "image")
    said = ok(run(["skopeo", "inspect", f"oci:{tmp_path / 'image'}:2026.11"]))
    read = json.loads(said.stdout)
    assert read["Digest"] == made["digest"]
    assert read["Labels"]["org.opencontainers.image.version"] == "2026.11"
    assert read["Labels"]["vendor"] == "us"
    assert len(read["Layers"]) == 1 + len(made["layers"]) == 4
    copy = ["skopeo", "copy", f"oci:{tmp_path / 'image'}:2026.11", f"oci:{tmp_path / 'copy'}:x"]
    assert run(copy).returncode == 0  # it hashes each layer, packed and not


def test_the_same_release_and_base_give_the_same_bytes(
    user: Site, base: Path, tmp_path: Path
) -> None:
    oci(user, base, tmp_path / "one")
    oci(user, base, tmp_path / "two")
    assert as_served(tmp_path / "one") == as_served(tmp_path / "two")
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]


def test_two_at_once_write_one_image(user: Site, base: Path, tmp_path: Path) -> None:
    words = ("image", "oci", "mini", "--base", f"{base}:1", "--out", tmp_path / "image")
    both = [user.start(*words) for _ in range(2)]
    said = [one.communicate(timeout=120)[1] for one in both]
    codes = [one.returncode for one in both]
    assert sorted(codes) == [0, 2], said
    assert f"{tmp_path / 'image'} is there already" in said[codes.index(2)]
    for blob in (tmp_path / "image" / "blobs" / "sha256").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".image")]


def test_the_definition_for_apptainer_takes_all_from_the_layout() -> None:
    """Apptainer is on no machine of ours. It has no list of packages, variables or files."""
    path = Path(__file__).parents[2] / "docs" / "kubernetes" / "Apptainerfile"
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    header = lines[: lines.index("%arguments")]
    assert header == ["Bootstrap: oci", "From: {{ IMAGE }}"]
    sections = [line for line in lines if line.startswith("%")]
    assert sections == ["%arguments", "%runscript", "%test", "%help"]


def test_what_is_no_base(user: Site, base: Path, tmp_path: Path) -> None:
    def refused(code: int, said: str) -> str:
        out = tmp_path / "out"
        message = user.fails(code, "image", "oci", "mini", "--base", said, "--out", out)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith((".out", "out"))]
        return message

    assert "/absent is no OCI layout" in refused(2, "/absent")
    assert "0 images fit" in refused(2, f"{base}:2")
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    for path in (copy / "blobs" / "sha256").iterdir():
        if path.stat().st_size > 10_000:
            path.write_bytes(path.read_bytes()[:-1])
    assert "is damaged or missing" in refused(4, str(copy))
    (copy / "index.json").write_text("{")
    assert "no JSON" in refused(4, str(copy))
    (tmp_path / "there").mkdir()
    said = user.fails(2, "image", "oci", "mini", "--base", base, "--out", tmp_path / "there")
    assert f"{tmp_path / 'there'} is there already" in said


@pytest.mark.built
def test_layers_of_the_built_release(prefix: Path) -> None:
    origin: Origin = require_origin(prefix)
    pkgs = Path(origin.pkgs)
    layers = divide(plan_links(prefix, Path("/opt/x"), read_records(prefix), pkgs), pkgs)
    names = {
        layer: {str(plan.record.data["name"]) for plan in plans} for layer, plans in layers.items()
    }
    assert {"python", "openssl", "libstdcxx"} <= names["base"]
    assert {"pytorch", "numpy", "horovod"} <= names["frameworks"]
    assert {"ddl", "ddl-torch", "lms-torch", "ddlce"} <= names["ours"]
