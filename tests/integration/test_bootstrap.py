"""scripts/bootstrap.sh on small trees: what it says is missing, and that it makes .venv once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ddlce.doctor.packages import read_list
from support.run import ok, run
from support.wheelfiles import make_wheel

TREE = Path(__file__).parents[2]
LIST = "scripts/ddlce/doctor/system-packages.txt"
PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

#: The smallest backend that pip can install from in place: the test needs no network.
BACKEND = """\
import zipfile

def build_editable(folder, settings=None, metadata=None):
    name, info = "ddlce-0-py3-none-any.whl", "ddlce-0.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("toy.py", "def main(): print('toy')")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: ddlce\\nVersion: 0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\\nddlce = toy:main\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""


def make_tree(folder: Path) -> Path:
    """A tree that needs nothing but python and an empty lock."""
    (folder / "scripts/ddlce/doctor").mkdir(parents=True)
    shutil.copy(TREE / "scripts/bootstrap.sh", folder / "scripts")
    (folder / LIST).write_text("# nothing\nrequired bash - bash bash bash the shell\n")
    (folder / "requirements.lock").write_text("# empty\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of a test's own."""
    return make_tree(tmp_path)


def bootstrap(tree: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run(
        ["bash", "scripts/bootstrap.sh"],
        cwd=tree,
        env={**os.environ, "DDLCE_NO_INSTALL": "1", **env},
    )


#: A tree, and what was said as its .venv was made.
Made = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Takes seconds, so once for two tests."""
    tree = make_tree(tmp_path_factory.mktemp("made"))
    return tree, bootstrap(tree)


def test_makes_the_venv_once_and_again_when_its_inputs_change(made: Made) -> None:
    tree, first = made
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("making .venv with ")
    program = tree / ".venv/bin/ddlce"
    assert subprocess.check_output([program], text=True) == "toy\n"
    changed = program.stat().st_mtime_ns
    second = bootstrap(tree)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert program.stat().st_mtime_ns == changed
    (tree / ".venv/ddlce-stamp").unlink()  # as after a killed run
    (tree / ".venv/left-over").write_text("")
    assert bootstrap(tree).stdout.startswith("making .venv")
    assert not (tree / ".venv/left-over").exists()
    (tree / "requirements.lock").write_text("# other\n")
    assert bootstrap(tree).stdout.startswith("making .venv")


def test_a_wrong_hash_is_not_installed(tree: Path) -> None:
    wheel = tree / "toy-1-py3-none-any.whl"
    wheel.write_bytes(b"not the locked bytes")
    lock = f"toy @ {wheel.as_uri()} --hash=sha256:{'0' * 64}\n"
    (tree / "requirements.lock").write_text(lock)
    done = bootstrap(tree)
    assert done.returncode == 3
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert done.stderr.endswith(
        "error: pip could not install the packages of requirements.lock\n"
        "hint:  its message is above; is the Python package registry reachable from here?\n"
    )
    assert not (tree / ".venv/ddlce-stamp").exists()


def test_a_machine_with_no_network(tree: Path) -> None:
    """As the site guide says: wheels that `pip download` has written into a folder."""
    wheel = make_wheel(tree, "other")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tree / "requirements.lock").write_text(f"other==1.0 --hash=sha256:{digest}\n")
    ok(bootstrap(tree, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheel.parent)))
    assert list((tree / ".venv").glob("lib/python3*/site-packages/other-1.0.dist-info"))


def test_a_missing_lock(tree: Path) -> None:
    (tree / "requirements.lock").unlink()
    done = bootstrap(tree)
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        "",
        f"error: {tree}/requirements.lock: missing\n"
        "hint:  restore it: git checkout requirements.lock\n",
    )


def test_names_what_is_missing_and_the_command(tree: Path) -> None:
    (tree / LIST).write_text(
        "required no-such-a 1 pkg-a rpm-a zyp-a why\n"
        "required no-such-b - pkg-b rpm-b zyp-b why\n"
        "required path:/no/such|/etc - pkg-c rpm-c zyp-c why\n"
        "test path:/no/such* - pkg-d rpm-d zyp-d why\n"
        "optional no-such-e - pkg-e rpm-e zyp-e why\n"
    )
    done = bootstrap(tree)
    assert done.returncode == 3
    if Path("/etc/debian_version").exists():
        assert done.stdout == "system packages that are not there: pkg-a pkg-b pkg-d\n"
        assert done.stderr == (
            "error: system packages are missing: pkg-a pkg-b\n"
            "hint:  as root: apt-get install -y pkg-a pkg-b pkg-d\n"
        )
    assert not (tree / ".venv").exists()


def test_installs_as_root_and_looks_again(tree: Path, tmp_path: Path) -> None:
    """With an apt-get that installs what it is asked for, and one that does not."""
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        pytest.skip("needs root on Debian: the script installs for root only")
    tools = tmp_path / "tools"
    tools.mkdir()
    apt = tools / "apt-get"
    (tree / LIST).write_text("required no-such-a - pkg-a rpm-a zyp-a why\n")
    install = f"echo $* >> {tmp_path}/log\n"
    apt.write_text("#!/bin/sh\n" + install)
    apt.chmod(0o755)
    env = {"DDLCE_NO_INSTALL": "", "PATH": f"{tools}:{os.environ['PATH']}"}
    done = bootstrap(tree, **env)
    assert (done.returncode, done.stderr) == (
        3,
        "error: still missing after the installation: pkg-a\n"
        "hint:  see the installer's own message above\n",
    )
    assert (tmp_path / "log").read_text().splitlines() == [
        "update -q",
        "install -y -q --no-install-recommends pkg-a",
    ]
    apt.write_text(f"#!/bin/sh\n{install}ln -sf /bin/true {tools}/no-such-a\n")
    done = ok(bootstrap(tree, **env))
    assert (tree / ".venv/bin/ddlce").exists()


def test_bash_and_python_read_the_list_alike(tree: Path) -> None:
    shutil.copy(TREE / LIST, tree / LIST)
    script = (
        "while read -r need check least apt dnf zypper why; do"
        ' [[ $need == "#"* || -z $need ]] || echo "$need|$check|$apt|$dnf|$zypper|$why"; done'
    )
    bash = subprocess.check_output(
        ["bash", "-c", script], stdin=(tree / LIST).open(), text=True
    ).splitlines()
    assert bash == [
        "|".join((wanted.need, wanted.check, *wanted.packages.values(), wanted.why))
        for wanted in read_list()
    ]


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Modules of another Python, as a user's PYTHONPATH may have them."""
    folder = tmp_path / "planted"
    folder.mkdir()
    for name in ("typing", "json", "re", "sitecustomize"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n1/0\n")
    return folder


@pytest.mark.slow
def test_a_user_s_settings_for_other_pythons(tree: Path, planted: Path) -> None:
    """All at once: each of them alone would stop it, or spring the trap."""
    theirs = {"PYTHONPATH": str(planted), "PIP_USER": "1", "PIP_TARGET": "other", "PIP_PREFIX": "p"}
    done = bootstrap(tree, **theirs)
    assert (done.returncode, done.stderr) == (0, "")
    program = [tree / ".venv/bin/ddlce"]
    assert subprocess.check_output(program, text=True, env=os.environ | theirs) == "toy\n"
    assert not (tree / "sprung").exists()


def test_a_user_s_pip_conf(tree: Path, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[install]\nuser = true\n")
    done = bootstrap(tree, PIP_CONFIG_FILE=str(config))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_program_takes_nothing_from_the_current_folder(made: Made, planted: Path) -> None:
    tree, done = made
    assert done.returncode == 0
    program, env = tree / ".venv/bin/ddlce", os.environ | {"PYTHONPATH": ":"}
    assert subprocess.check_output([program], text=True, env=env, cwd=planted) == "toy\n"


@pytest.mark.slow
def test_the_program_of_a_tree_with_a_long_path(tree: Path, planted: Path) -> None:
    """Of a first line, the kernel reads 127 or 255 characters only; pip then writes another."""
    deep = tree / "/".join(["n" * 50] * 5)
    shutil.copytree(tree, deep, ignore=lambda *_: ["n" * 50, "planted"])
    assert bootstrap(deep).returncode == 0
    env = os.environ | {"PYTHONPATH": str(planted)}
    assert subprocess.check_output([deep / ".venv/bin/ddlce"], text=True, env=env) == "toy\n"


@pytest.mark.slow
def test_libraries_that_stop_python(tree: Path) -> None:
    libraries = tree / "libraries"
    libraries.mkdir()
    for name in ("libssl.so.3", "libssl.so.1.1", "libz.so.1", "libffi.so.8"):
        (libraries / name).write_text("not a library\n")
    done = bootstrap(tree, LD_LIBRARY_PATH=str(libraries))
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: LD_LIBRARY_PATH={libraries}: with it, ")
    assert "does not work: " in error
    assert hint == "hint:  unset LD_LIBRARY_PATH, or unload the module that sets it"
    assert not (tree / ".venv").exists()
    (libraries / "fine").mkdir()
    assert bootstrap(tree, LD_LIBRARY_PATH=str(libraries / "fine")).returncode == 0


@pytest.mark.slow
def test_two_at_once(tree: Path) -> None:
    """The second neither removes what the first is making nor makes it again."""
    (tree / "backend.py").write_text(f"import time; time.sleep(2)\n{BACKEND}")
    command = ["bash", "scripts/bootstrap.sh"]
    env = os.environ | {"DDLCE_NO_INSTALL": "1"}
    started = [
        subprocess.Popen(command, cwd=tree, env=env, stdout=-1, stderr=-1, text=True)
        for _ in range(3)
    ]
    said = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    assert sorted(out[:14] for out, _ in said) == ["", "", "making .venv w"]
    assert subprocess.check_output([tree / ".venv/bin/ddlce"], text=True) == "toy\n"
