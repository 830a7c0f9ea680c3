"""ddlrun -stage before anything starts: its options, its image, and the words that it moves."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ddl.launch.errors import LaunchError
from ddl.launch.image import Image, find_image
from ddl.launch.layout import make_job, staging_options
from ddl.launch.options import parse
from ddl.launch.stage import (
    Staging,
    aliases_of,
    keep_days,
    moved_environment,
    moved_path,
    without_staging,
)

RELEASE = {"env": "e", "release": "2026.11", "digest": "d" * 64}
HEX = "0123456789abcdef"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A release, as far as it is looked at."""
    folder = tmp_path / "root" / "envs" / "e" / "2026.11-dddddddd"
    (folder / "conda-meta").mkdir(parents=True)
    origin = folder / "conda-meta" / "ddl-ce.origin"
    origin.write_text(json.dumps({**RELEASE, "kind": "release"}))
    return folder


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Makes an image and the file beside it; its path."""

    def make(folder: Path, place: str = "/local", **said: Any) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"e-2026.11-{place.strip('/').replace('/', '_')}"
        manifest = {
            **{"format": 1, "platform": "linux-64", **RELEASE, "place": place, "name": name},
            **{"image": f"{name}-{HEX}.tar.zst", "sha256": HEX * 4},
            **{"size": 3, "unpacked": 4096, "files": 1, **said},
        }
        (folder / f"{name}.json").write_text(json.dumps(manifest))
        image = folder / f"{name}-{HEX}.tar.zst"
        image.write_text("abc")
        return image

    return make


def refused(given: Path | None, environ: dict[str, str], prefix: Path) -> str:
    with pytest.raises(LaunchError) as caught:
        find_image(given, environ, prefix)
    return f"{caught.value.message} {caught.value.hint}"


# -- options ------------------------------------------------------------------------------------


def test_stage_is_a_flag_or_has_an_image() -> None:
    assert not parse(["true"]).stage
    alone = parse(["-stage", "image.tar.zst"])
    assert (alone.stage, alone.stage_image, alone.command) == (True, None, ["image.tar.zst"])
    named = parse(["--stage=a.tar.zst", "-stage-keep", "0.5", "true"])
    assert (named.stage, named.stage_image, named.stage_keep) == (True, Path("a.tar.zst"), 0.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-stage -probe f", "-stage excludes -probe"),
        ("-stage -show_topology", "-stage excludes -probe and -show_topology"),
        ("-stage_keep 3 true", "-stage_keep needs -stage"),
        ("-stage -stage_keep -1 true", "-stage_keep -1: not a number of days"),
        ("-stage -stage_keep nan true", "not a number of days"),
        ("-stage=a -stage=b true", "-stage is given twice"),
    ],
)
def test_wrong_options_of_staging(words: str, said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        parse(words.split())


def test_how_long_copies_stay() -> None:
    assert keep_days(parse(["-stage", "true"]), {}) == 7
    assert keep_days(parse(["-stage", "true"]), {"DDL_STAGE_KEEP": "2"}) == 2
    assert keep_days(parse(["-stage", "-stage_keep", "1", "true"]), {"DDL_STAGE_KEEP": "2"}) == 1
    with pytest.raises(LaunchError, match="DDL_STAGE_KEEP=long: not a number of days"):
        keep_days(parse(["-stage", "true"]), {"DDL_STAGE_KEEP": "long"})


@pytest.mark.parametrize(
    "words",
    [
        "-stage -v -np 2 python -stage x",
        "-v -stage=i.tar.zst -np 2 -stage_keep 3 python -stage x",
        "--stage-keep=3 -v --stage -np 2 python -stage x",
    ],
)
def test_the_copys_ddlrun_does_not_stage_again(words: str) -> None:
    split = words.split()
    assert without_staging(parse(split), split) == ["-v", "-np", "2", "python", "-stage", "x"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-H a:2,b:2,c:2,d:2 -mode p:2x2x2", "-mode p:1x2x2"),
        ("-H a:2,b:2,c:2,d:2 -racks 2 -nodes 2", "-mode p:1x2x2"),
        ("-H a:2,b:2,c:2,d:2 -mode p:8x1", ""),
        ("-H a:2,b:2 -ddlarg -deterministic", ""),
    ],
)
def test_the_stager_knows_the_networks_shape(words: str, expected: str) -> None:
    options = parse([*words.split(), "true"])
    assert staging_options(options, make_job(options, {}, [])) == expected


def test_staging_is_for_all_hosts_or_none(
    prefix: Path, put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that may lose ranks begins on every host."""
    monkeypatch.setattr("ddl.launch.stage.own_prefix", lambda: prefix)
    put(prefix.parents[2] / "images")
    (prefix / "bin").mkdir()
    (prefix / "bin" / "ddl-stage").write_text("")
    options = parse(["-stage", "-keep_going", "-np", "2", "true"])
    environ = {"HOME": "/nowhere", "PATH": os.environ["PATH"]}
    job = make_job(options, environ, [])
    assert job.min_ranks == 1
    assert "-disable-auto-cleanup" not in Staging(options, job, environ).command()


# -- the image ----------------------------------------------------------------------------------


def test_the_image_beside_the_environments_is_found(prefix: Path, put: Callable[..., Path]) -> None:
    image = put(prefix.parents[2] / "images")
    found = find_image(None, {"HOME": "/nowhere"}, prefix)
    assert (found.path, found.prefix, found.size) == (image, f"/local/{found.name}", 3)


def test_the_place_decides_between_images(prefix: Path, put: Callable[..., Path]) -> None:
    images = prefix.parents[2] / "images"
    put(images, "/local")
    put(images, "/scratch")
    home = {"HOME": "/nowhere"}
    assert "images of" in (said := refused(None, home, prefix))
    assert "for /local and /scratch" in said
    chosen = find_image(None, {**home, "DDLCE_STAGE_PLACE": "/scratch"}, prefix)
    assert chosen.place == "/scratch"
    assert "for /other" in refused(None, {**home, "DDLCE_STAGE_PLACE": "/other"}, prefix)
    mine = put(images, f"/tmp/ddl-ce-{os.getuid()}")
    assert find_image(None, home, prefix).path == mine


def test_images_are_looked_for_in_the_users_cache_first(
    prefix: Path, put: Callable[..., Path], tmp_path: Path
) -> None:
    put(prefix.parents[2] / "images")
    mine = put(tmp_path / "cache" / "images")
    assert find_image(None, {"DDLCE_CACHE": str(tmp_path / "cache")}, prefix).path == mine


def test_without_an_image_the_command_for_one_is_said(prefix: Path) -> None:
    said = refused(None, {"HOME": "/nowhere"}, prefix)
    assert "have no image of" in said
    assert f"ddlce env image {prefix}" in said


def test_an_image_of_another_release_is_refused(
    prefix: Path, put: Callable[..., Path], tmp_path: Path
) -> None:
    image = put(tmp_path / "i", release="2025.1", digest="c" * 64)
    said = refused(image, {}, prefix)
    assert "is an image of e 2025.1 (cccccccc), but this ddlrun is of e 2026.11 (dddddddd)" in said
    put(prefix.parents[2] / "images", digest="c" * 64)
    assert "have no image" in refused(None, {"HOME": "/nowhere"}, prefix)


def test_the_file_beside_an_image_must_be_whole(
    prefix: Path, put: Callable[..., Path], tmp_path: Path
) -> None:
    image = put(tmp_path / "i")
    manifest = tmp_path / "i" / "e-2026.11-local.json"
    assert find_image(manifest, {}, prefix).path == image
    whole = json.loads(manifest.read_text())
    for change in (
        {"size": "3"},
        {"format": 2},
        {"place": "x"},
        {"name": "../x"},
        {"image": "a/b"},
    ):
        manifest.write_text(json.dumps(whole | change))
        assert f"{manifest} is not understood" in refused(image, {}, prefix)
    manifest.write_text("{")
    assert "is not understood" in refused(image, {}, prefix)
    manifest.write_text(json.dumps(whole))
    image.unlink()
    assert f"{image} is not there" in refused(image, {}, prefix)
    manifest.unlink()
    assert "No such file" in refused(image, {}, prefix)


def test_an_image_that_everybody_may_write_is_refused(
    prefix: Path, put: Callable[..., Path], tmp_path: Path
) -> None:
    image = put(tmp_path / "i")
    image.chmod(0o666)
    assert f"everybody may write {image}" in refused(image, {}, prefix)
    image.chmod(0o644)
    image.parent.chmod(0o777)
    assert f"everybody may write {image.parent}" in refused(image, {}, prefix)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_image_is_refused(
    prefix: Path, put: Callable[..., Path], tmp_path: Path
) -> None:
    image = put(tmp_path / "i")
    os.chown(image, 65534, 65534)
    assert f"{image} belongs to user 65534" in refused(image, {}, prefix)


def test_clones_and_other_environments_have_no_image(prefix: Path, tmp_path: Path) -> None:
    origin = prefix / "conda-meta" / "ddl-ce.origin"
    origin.write_text(json.dumps({**RELEASE, "kind": "clone"}))
    assert "is a clone, and images are of releases" in refused(None, {}, prefix)
    origin.unlink()
    assert "is no environment of ddlce" in refused(None, {}, prefix)


def test_an_environment_without_images_is_an_error_of_ddlrun(ddlrun: Callable[..., Any]) -> None:
    done = ddlrun("-stage=/nowhere/x.tar.zst", "true", env={"HOME": "/nowhere"})
    assert done.returncode == 2
    assert done.stderr.startswith("ddlrun: error: -stage")
    assert "Traceback" not in done.stderr


# -- words and variables ------------------------------------------------------------------------


def test_the_local_copy_takes_the_place_of_the_prefix(tmp_path: Path) -> None:
    prefix = tmp_path / "envs" / "e" / "1"
    (prefix / "bin").mkdir(parents=True)
    current = prefix.with_name("current")
    current.symlink_to("1")
    path = f"/usr/bin:{current}/bin:{prefix}/bin:{prefix}2/bin"
    environ = {"PATH": path, "CONDA_PREFIX": str(current), "X": f"a{prefix}", "EMPTY": ""}
    aliases = aliases_of(prefix, environ)
    assert set(aliases) == {str(prefix), str(current), sys.prefix}
    moved = moved_environment(environ, aliases, "/l/e")
    assert moved["PATH"] == f"/usr/bin:/l/e/bin:/l/e/bin:{prefix}2/bin"
    assert (moved["CONDA_PREFIX"], moved["X"], moved["EMPTY"]) == ("/l/e", f"a{prefix}", "")
    assert moved_path(f"{current}/bin/python", aliases, "/l/e") == "/l/e/bin/python"
    assert moved_path("train.py", aliases, "/l/e") == "train.py"


def test_an_image_has_a_prefix(tmp_path: Path) -> None:
    image = Image(tmp_path, "e", "1", "d", "/local", "e-1", "s", 1, 1, 1)
    assert image.prefix == "/local/e-1"
