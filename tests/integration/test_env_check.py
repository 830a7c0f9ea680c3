"""`ddlce env check`: what an overlay shadows of its release, and what is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

import ddlce
from ddlce.trees import remove_tree
from support.minienv import Site
from support.overlays import pip, run_bash, wheel
from support.run import ok, run

SITE_PACKAGES = "lib/python3.11/site-packages"


@pytest.fixture
def overlay(user: Site) -> Path:
    user.ok("env", "overlay", "mine")
    return user.clones / "mine"


def test_check_names_what_is_shadowed(user: Site, overlay: Path, tmp_path: Path) -> None:
    newer = wheel(tmp_path, "minimod", "99.0", {"minimod/__init__.py": "", "minimod/a.py": ""})
    assert pip(overlay, "--no-deps", newer, "-c", "/dev/null").returncode == 1
    (overlay / "pip.conf").unlink()
    assert pip(overlay, "--no-deps", newer).returncode == 0
    done = user.ddlce("env", "check", "mine")
    info = overlay / SITE_PACKAGES / "minimod-99.0.dist-info"
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert lines[0].startswith(f"problem   {overlay}/pip.conf does not name constraints.txt any")
    assert lines[1].startswith("shadowed  minimod: 99.0 hides minimod ")
    assert lines[1].endswith(f" of the release ({info})")
    assert lines[2:] == [f"{overlay}: 1 packages on {user.current}: not ok"]


def test_check_names_modules_and_programs_under_other_names(
    user: Site, overlay: Path, tmp_path: Path
) -> None:
    """As tensorflow-cpu brings the module tensorflow."""
    files = {
        "minimod/__init__.py": "",
        "minimod/sub.py": "",
        "own/__init__.py": "",
        "minimod_cpu-1.0.data/scripts/mini-where": "#!/bin/sh\n",
    }
    assert pip(overlay, wheel(tmp_path, "minimod_cpu", "1.0", files)).returncode == 0
    (overlay / SITE_PACKAGES / "mini_helper.py").touch()
    report = json.loads(user.ddlce("env", "check", "mine", "--json").stdout)
    assert [(s["kind"], s["name"], s["version"], s["package"]) for s in report["shadowed"]] == [
        ("module", "minimod", "minimod_cpu 1.0", "minimod"),
        ("program", "mini-where", "minimod_cpu 1.0", report["shadowed"][1]["package"]),
    ]
    assert report["ok"] is False
    (overlay / SITE_PACKAGES / "minimod").rename(overlay / SITE_PACKAGES / "other")
    (overlay / SITE_PACKAGES / "minimod.py").touch()
    report = json.loads(user.ddlce("env", "check", "mine", "--json").stdout)
    assert report["shadowed"][0]["version"] == "no package"


def test_check_imports_what_was_installed(user: Site, overlay: Path, tmp_path: Path) -> None:
    """And names libraries that nobody has: a package may keep the fault to itself at first."""
    linked = linked_to_nothing(tmp_path)
    files = {
        "vision/__init__.py": "",
        "loud.py": "raise RuntimeError('no operator nms')",
        "_own.py": "x",
    }
    ok(pip(overlay, wheel(tmp_path, "vision", "1.0", {**files, "vision/_C.so": ""})))
    (overlay / SITE_PACKAGES / "vision" / "_C.so").write_bytes(linked)
    checked = user.ddlce("env", "check", "mine")
    assert checked.returncode == 1
    assert checked.stdout.splitlines()[:-1] == [
        f"broken    vision 1.0: {SITE_PACKAGES}/vision/_C.so needs libgone.so.13, which neither "
        "the overlay nor the release nor this machine has",
        "broken    vision 1.0: import loud fails: RuntimeError: no operator nms",
    ]


def test_check_leaves_drivers_to_the_machine(user: Site, overlay: Path, tmp_path: Path) -> None:
    """As libcufile_rdma of NVIDIA's wheels, which is loaded where there is such a network."""
    plugin = linked_to_nothing(tmp_path, "libpsm2.so.2")
    files: dict[str, str | bytes] = {"rdma/__init__.py": "", "rdma/_plugin.so": plugin}
    assert pip(overlay, wheel(tmp_path, "rdma", "1.0", files)).returncode == 0
    user.ok("env", "check", "mine")


def linked_to_nothing(folder: Path, soname: str = "libgone.so.13") -> bytes:
    """A shared library that needs another, which nobody has."""
    library, linked = folder / soname, folder / "_C.so"
    for words in (
        f"cc -shared -Wl,-soname,{library.name} -o {library} -xc /dev/null",
        f"cc -shared -Wl,--no-as-needed -o {linked} -xc /dev/null -xnone {library}",
    ):
        subprocess.run(words.split(), check=True)
    return linked.read_bytes()


def test_pip_itself_names_libraries_that_nobody_has(site: Site, tmp_path: Path) -> None:
    """A release with pip and ddlce; a wheel that needs the library at once, and one that may."""
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    packages = site.current / SITE_PACKAGES
    packages.chmod(0o755)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not (packages / path.name).exists() and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    (packages / "ddlce").symlink_to(Path(ddlce.__file__).parent)
    site.ok("env", "overlay", "mine")
    prefix = site.clones / "mine"
    load = "import ctypes, pathlib; ctypes.CDLL(pathlib.Path(__file__).with_name('_C.so'))"
    wheels = {
        name: wheel(tmp_path, name, "1.0", {f"{name}/__init__.py": text, f"{name}/_C.so": linked})
        for linked in [linked_to_nothing(tmp_path)]
        for name, text in (("may", ""), ("must", load))
    }
    hello = wheel(tmp_path, "hello", "1.0", {"hello.py": ""})

    def pip_of_overlay(*words: str | Path) -> tuple[int, list[str]]:
        done = run([prefix / "bin" / "pip", *words], env={"PIP_NO_INDEX": "1"})
        return done.returncode, [line for line in done.stderr.splitlines() if "1.0: " in line]

    assert pip_of_overlay("install", hello) == (0, [])
    needs = (
        "_C.so needs libgone.so.13, which neither the overlay nor the release nor this machine has"
    )
    file = f"may 1.0: {SITE_PACKAGES}/may/{needs}"
    assert pip_of_overlay("install", wheels["may"]) == (0, [f"warning: {file}"])
    status, lines = pip_of_overlay("install", wheels["must"])
    assert (status, lines[:2]) == (
        1,
        [f"error: {file}", f"error: must 1.0: {SITE_PACKAGES}/must/{needs}"],
    )
    assert lines[2].startswith("error: must 1.0: import must fails: OSError: libgone.so.13: cannot")
    assert pip_of_overlay("uninstall", "-y", "must", "may") == (0, [])
    assert pip_of_overlay("install", "--no-such") == (2, [])
    assert pip_of_overlay("install", hello) == (0, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_nobody_runs_what_others_have_installed(user: Site, overlay: Path, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    done = pip(overlay, wheel(tmp_path, "trap", "1.0", {"trap.py": f"open({str(trap)!r}, 'w')"}))
    assert done.returncode == 0, done.stderr
    os.chown(overlay, 65534, 65534)
    assert "note      its modules were not imported: it belongs to" in user.ok(
        "env", "check", "mine"
    )
    assert not trap.exists()


def test_check_names_what_is_broken(user: Site, overlay: Path, tmp_path: Path) -> None:
    for name, needs in (("a", "minimod>=99"), ("b", "nowhere"), ("c", "x; python_version<'3'")):
        done = pip(overlay, "--no-deps", wheel(tmp_path, name, "1.0", {f"{name}.py": ""}, needs))
        assert done.returncode == 0, done.stderr
    done = user.ddlce("env", "check", "mine")
    assert done.returncode == 1
    first, second, _ = done.stdout.splitlines()
    assert first.startswith("broken    a 1.0 needs minimod>=99, and minimod is ")
    assert second == "broken    b 1.0 needs nowhere, which is not there"


def test_check_after_the_overlay_was_moved(user: Site, overlay: Path) -> None:
    overlay.with_name("link").symlink_to(overlay)
    assert user.ok("env", "check", "link").endswith(": ok\n")
    overlay.rename(overlay.with_name("yours"))
    done = user.ddlce("env", "check", "yours")
    assert done.returncode == 1
    assert done.stdout.startswith(f"problem   it was moved: its programs name {overlay}, where ")


def test_check_of_what_is_no_overlay(user: Site, tmp_path: Path) -> None:
    assert user.fails(2, "env", "check", "mine").startswith(
        f"error: there is no overlay at {user.clones}/mine\n"
    )
    said = user.fails(2, "env", "check", user.current)
    assert said.startswith(f"error: {user.current} is a release, not an overlay\n")


def test_after_the_release_is_gone(site: Site, tmp_path: Path) -> None:
    """As `ddlce env gc` removes old ones: activation and check say so, and nothing breaks off."""
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    site.ok("env", "overlay", "mine")
    overlay, old = site.clones / "mine", site.current
    needs = wheel(tmp_path, "a", "1.0", {"a.py": ""}, "minimod>=0")
    assert pip(overlay, "--no-deps", needs).returncode == 0
    remove_tree(old)
    done = site.ddlce("env", "check", "mine")
    assert done.returncode == 1
    assert done.stdout.startswith(
        f"problem   its release mini {old.name[:-9]} is gone from {old}: "
    )
    done_bash = run_bash(f". '{overlay}/bin/activate'; echo $?")
    assert done_bash.stdout == "1\n"
    assert done_bash.stderr.startswith(f"error: the release of this overlay is gone: {old}\n")


def test_check_of_what_the_overlay_is_made_of(user: Site, overlay: Path) -> None:
    (overlay / SITE_PACKAGES / "ddl-ce-overlay.pth").unlink()
    (overlay / "constraints.txt").write_text("minimod==99\n")
    marker = overlay / "ddl-ce.overlay"
    marker.write_text(marker.read_text().replace('"3.11"', '"3.10"'))
    report = json.loads(user.ddlce("env", "check", "mine", "--json").stdout)
    assert report["problems"] == [
        "ddl-ce-overlay.pth is missing: packages in ~/.local would shadow the release's",
        f"its packages are for Python 3.10, and {user.current} has Python 3.11.7",
        f"{overlay}/constraints.txt does not have the packages of the release any more",
    ]


def test_check_against_what_is_no_release(user: Site, overlay: Path) -> None:
    user.ok("env", "clone", "copy")
    said = user.fails(2, "env", "check", "mine", "--release", "copy")
    assert said.startswith(f"error: {user.clones}/copy is a clone: an overlay is made on a release")
