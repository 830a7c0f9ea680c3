"""The one file of a release: what it holds, and what it says of bad input before it writes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ddlce.bundle.description import HEADER, Bundle, closure
from ddlce.bundle.install import Stage, copy_packages
from ddlce.bundle.write import STOP, write_bundle
from ddlce.errors import InputError, SourceError
from support.bundles import channel_at, run_bundle, toy_bundle, toy_lock, toy_settings
from support.minienv import NOBODY, can_mount, everything, small_disk
from support.run import run

REPO = Path(__file__).parents[2]
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return toy_bundle(tmp_path_factory.mktemp("bundle"))


def refused(
    bundle: Bundle, tmp_path: Path, *options: str | Path, code: int, file: Path | None = None
) -> str:
    """Run it; it must end with this status and one message, and leave nothing."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    done = run_bundle(file or bundle.path, *options, folder=folder)
    assert done.returncode == code, done
    lines = done.stderr.splitlines()
    assert [line[:7] for line in lines] == ["error: ", "hint:  "], done.stderr
    assert everything(folder) == []
    return lines[0].removeprefix("error: ")


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    settings, lock = toy_settings(tmp_path), toy_lock(channel)
    first = write_bundle(settings, lock, channel, tmp_path / "out")
    time.sleep(1.1)  # what writes times writes seconds
    again = write_bundle(settings, lock, channel, tmp_path / "again")
    assert Path(again.path).read_bytes() == Path(first.path).read_bytes()
    assert again.sha256 == first.sha256
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert names == ["mini-2026.11-linux-64.run"]


@pytest.mark.parametrize("shell", SHELLS)
def test_it_lists_verifies_and_extracts(bundle: Bundle, tmp_path: Path, shell: str) -> None:
    def ok(*options: str | Path) -> str:
        done = run_bundle(bundle.path, *options, folder=tmp_path, shell=shell)
        assert done.returncode == 0, done
        return done.stdout

    if shell == "busybox":
        program = tmp_path / "sh"
        program.symlink_to(shutil.which("busybox") or "")
        shell = str(program)
    command = ["sh", "-c", 'head -c -65 "$1" | sha256sum', "sh", bundle.path]  # as the guide says
    assert bundle.sha256 == subprocess.check_output(command, text=True).split()[0]
    assert bundle.sha256 in ok("--verify")
    assert "toy 1.0 h0_0" in ok("--list").splitlines()
    assert "--extract channel DIR" in ok("--help")
    target = tmp_path / "a channel ü"
    assert target.as_uri().rpartition("/")[0] in ok("--extract", "channel", target)
    packages = sorted(path.name for path in target.glob("*/*.conda"))
    assert packages == [
        *("backports.zstd-1.0-h0_0.conda", "ddlce-1.0-h0_0.conda"),
        *("python-3.11.7-h0_0.conda", "toy-1.0-h0_0.conda"),
    ]
    for name in ("repodata.json", "repodata.json.zst", "current_repodata.json"):
        assert (target / "linux-64" / name).is_file(), name
    assert not list(target.rglob("*shards*"))
    assert "toy-1.0-h0_0" in (target / "linux-64" / "repodata.json").read_text()


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_an_extracted_channel_is_for_others_to_read_and_leaves_nothing_else(
    bundle: Bundle, tmp_path: Path, umask: int
) -> None:
    (tmp_path / "channel.unpacking").mkdir()  # somebody's
    command = f"umask {umask:03o}; exec sh {bundle.path} --extract channel given/"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"channel.unpacking", "given"}
    modes = {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "given").rglob("*")}
    assert modes == {"0o755", "0o644"}
    assert (tmp_path / "given").stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(not shutil.which("bwrap"), reason="a damaged script runs in a cage: bubblewrap")
def test_one_changed_byte_stops_it_before_anything_is_written(
    bundle: Bundle, tmp_path: Path
) -> None:
    """At 200 places: half of them in the script's own text."""
    whole = Path(bundle.path).read_bytes()
    chosen = random.Random(41)
    script = whole.index(STOP)
    places = [0, script - 1, HEADER - 1, len(whole) - 66, len(whole) - 1]
    places += [chosen.randrange(script) for _ in range(95)]
    places += [chosen.randrange(script, len(whole)) for _ in range(100)]
    assert len(places) == 200
    changed, work = tmp_path / "changed.run", tmp_path / "work"
    work.mkdir()
    for place in places:
        data = bytearray(whole)
        data[place] ^= 1 << chosen.randrange(8)
        changed.write_bytes(data)
        done = run_bundle(changed, "--root", work / "root", "--no-smoke", folder=work, caged=True)
        assert done.returncode != 0, (place, done)
        assert everything(work) == [], (place, done)
        assert changed.read_bytes() == data, (place, done)


@pytest.mark.parametrize("change", ["truncated", "concatenated", "empty end"])
def test_a_file_of_another_length(bundle: Bundle, tmp_path: Path, change: str) -> None:
    whole = Path(bundle.path).read_bytes()
    file = tmp_path / "file.run"
    data = {
        "truncated": whole[: len(whole) // 2 + HEADER // 2],
        "concatenated": whole + whole,
        "empty end": whole + b"\0",
    }[change]
    file.write_bytes(data)
    said = refused(bundle, tmp_path, "--root", tmp_path / "work" / "r", code=4, file=file)
    assert said == f"{file} has {len(data)} bytes, and the bundle has {len(whole)}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rot", "x"], "--rot is no option of this file"),
        (["--root"], "--root needs a folder"),
        (["--root="], "no root is named: --root is empty, or DDLCE_ROOT and HOME are"),
        (["--extract", "channel"], "--extract needs a name and a folder"),
        (["--extract", "all", "x"], "--extract all: only 'channel' can be extracted"),
        (["--extract", "channel", "/usr"], "/usr is there already"),
    ],
)
def test_options_that_are_none(
    bundle: Bundle, tmp_path: Path, options: list[str], said: str
) -> None:
    assert refused(bundle, tmp_path, *options, code=2) == said


def test_another_machine(tmp_path: Path) -> None:
    made = toy_bundle(tmp_path / "made", platform="linux-ppc64le")
    here = f"Linux on {os.uname().machine}"
    assert refused(made, tmp_path, "--root", "r", code=3) == (
        f"mini 2026.11 is for Linux on ppc64le, and this machine is {here}"
    )


def test_a_glibc_below_the_floor(tmp_path: Path) -> None:
    made = toy_bundle(tmp_path / "made", glibc="2.99")
    found = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1]
    assert refused(made, tmp_path, "--root", "r", code=3) == (
        f"mini 2026.11 needs glibc 2.99, and this machine has {found}"
    )


def test_a_root_that_is_a_file(bundle: Bundle, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    said = refused(bundle, tmp_path, "--root", file / "root", code=3)
    assert said == f"{file} is a file, not a folder"


@pytest.mark.skipif(not shutil.which("setpriv") or os.geteuid() != 0, reason="needs root")
def test_a_root_of_another_user(bundle: Bundle, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    said = refused(bundle, tmp_path, "--root", theirs, code=3)
    assert said == f"{theirs} belongs to another user"
    assert everything(theirs) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("owner", "mode", "said"),
    [
        (NOBODY, 0o755, "belongs to another user"),
        (NOBODY, 0o2775, "belongs to another user"),
        (0, 0o777, "may be changed by everybody"),
    ],
)
def test_a_root_below_a_folder_that_others_change(
    bundle: Bundle, tmp_path: Path, owner: int, mode: int, said: str
) -> None:
    """They could put another Python there, which the installer runs."""
    above = tmp_path / "above"
    (above / "root").mkdir(parents=True)
    os.chown(above, owner, owner)
    above.chmod(mode)
    assert refused(bundle, tmp_path, "--root", above / "root", code=3) == f"{above} {said}"
    (tmp_path / "link").symlink_to(above)
    root = tmp_path / "link" / "new"
    assert refused(bundle, tmp_path, "--root", root, code=3) == f"{above} {said}"
    assert everything(above) == [above / "root"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_root_of_a_member_of_the_administrators_group(bundle: Bundle, tmp_path: Path) -> None:
    """It goes on as far as a toy can: its Python is none."""
    above = tmp_path / "above"
    (above / "root").mkdir(parents=True)
    os.chown(above / "root", NOBODY, NOBODY)
    above.chmod(0o2775)
    done = run_bundle(bundle.path, "--root", above / "root", folder=tmp_path)
    assert f"error: the packages in {bundle.path} cannot be unpacked" in done.stderr


@pytest.mark.skipif(not shutil.which("setpriv") or os.geteuid() != 0, reason="needs root")
def test_a_root_that_may_not_be_written(bundle: Bundle) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        file = folder / "for-all.run"
        shutil.copyfile(bundle.path, file)
        (folder / "ours").mkdir(0o755)
        root = folder / "ours" / "root"
        done = run_bundle(file, "--root", root, folder=folder, user=NOBODY)
        assert done.returncode == 3, done
        assert done.stderr.startswith(f"error: {root.parent} may not be written by you\n")
        assert everything(root.parent) == []


def test_a_full_disk_is_seen_before_the_first_write(bundle: Bundle, tmp_path: Path) -> None:
    if not can_mount(tmp_path / "disk"):
        pytest.skip("needs root")
    big = tmp_path / "big"
    lock = toy_lock(big / "channel")
    first = lock.packages[0]
    packages = [first.model_copy(update={"size": 1 << 30}), *lock.packages[1:]]
    made = write_bundle(
        toy_settings(big),
        lock.model_copy(update={"packages": packages}),
        big / "channel",
        big / "out",
    )
    with small_disk(tmp_path / "a disk", 8) as disk:
        said = refused(made, tmp_path, "--root", disk / "root", code=3)
        assert said.startswith(f"{disk} has ")
        assert said.endswith(" MB free, and mini 2026.11 needs 2048 MB")
        assert everything(disk) == []


def test_a_disk_that_runs_no_programs(bundle: Bundle, tmp_path: Path) -> None:
    if not can_mount(tmp_path / "disk"):
        pytest.skip("needs root")
    with small_disk(tmp_path / "disk", 64) as disk:
        subprocess.run(["mount", "-o", "remount,noexec", disk], check=True)
        said = refused(bundle, tmp_path, "--root", disk / "root", code=3)
        assert said == f"{disk / 'root'} is on a file system that is mounted noexec"
        assert everything(disk) == []


def test_what_cannot_be_bundled(tmp_path: Path) -> None:
    settings, channel, out = toy_settings(tmp_path), tmp_path / "channel", tmp_path / "out"
    with pytest.raises(InputError, match=r"has no backports\.zstd to install it with"):
        write_bundle(settings, toy_lock(channel, without="backports.zstd"), channel, out)
    lock = toy_lock(channel)
    foreign = lock.packages[0].model_copy(update={"channel": "https://example.org/other"})
    other = lock.model_copy(update={"packages": [foreign, *lock.packages[1:]]})
    with pytest.raises(InputError, match="our own packages alone are handed over"):
        write_bundle(settings, other, channel, out)
    toy = channel / "linux-64" / "toy-1.0-h0_0.conda"
    toy.write_bytes(toy.read_bytes() + b"x")
    with pytest.raises(SourceError, match="its sha256 is not the locked"):
        write_bundle(settings, lock, channel, out)
    toy.unlink()
    with pytest.raises(SourceError, match="missing"):
        write_bundle(settings, lock, channel, out)
    assert everything(out) == []


def test_a_file_that_is_cut_while_it_is_read(bundle: Bundle, tmp_path: Path) -> None:
    whole = Path(bundle.path).read_bytes()
    file = tmp_path / "cut.run"
    file.write_bytes(whole[: whole.index(b"PK", whole.index(b"toy-1.0-h0_0.conda\0")) + 100])
    stage = Stage(file, channel_at(file), tmp_path)
    # Packed anew, the others may bear another second and so another sha256.
    packages = [one for one in toy_lock(tmp_path / "channel").packages if one.name == "toy"]
    with pytest.raises(SourceError, match="cannot be read: unexpected end of data") as caught:
        copy_packages(stage, packages, tmp_path / "target")
    assert "changed while it was read" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("offset", "said"), [(0, "Not a directory"), (7, "not in the bundle: backports.zstd")]
)
def test_what_cannot_be_unpacked_is_one_line(
    bundle: Bundle, tmp_path: Path, offset: int, said: str
) -> None:
    """The header adds which file it is of. A quota is met here, which no check before sees."""
    file = Path(bundle.path)
    part = tmp_path / "part.tar"
    part.write_bytes(file.read_bytes()[HEADER:])
    subprocess.run(["tar", "-xf", part, "-C", tmp_path], check=True)
    (tmp_path / "python").write_text("in the way\n")
    script = str(tmp_path / "boot" / "unpack.py")
    words = [script, str(file), str(channel_at(file) + offset), str(tmp_path)]
    done = run([sys.executable, "-I", *words])
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")
def test_what_a_killed_run_in_a_container_left(bundle: Bundle, tmp_path: Path) -> None:
    """Its process has a small number, which the next container's has too."""
    root = tmp_path / "root"
    for number in range(1, 20):
        (root / f".unpack-{os.uname().nodename}-{number}" / "python").mkdir(parents=True)
    done = run_bundle(bundle.path, "--root", root, folder=tmp_path, caged=True)
    assert f"error: the packages in {bundle.path} cannot be unpacked" in done.stderr  # it goes on
    assert {path.name for path in root.iterdir()} <= {f".unpack-{os.uname().nodename}-1"}


def test_an_interrupted_installation_has_no_traceback() -> None:
    code = "import os, signal; from ddlce.cli.app import run_designed; "
    code += "run_designed(lambda: os.kill(os.getpid(), signal.SIGINT))"
    done = run([sys.executable, "-c", code])
    assert (done.returncode, done.stderr) == (
        130,
        "interrupted; run the same command again to go on\n",
    )


def test_what_ddlce_runs_on_is_its_closure(tmp_path: Path) -> None:
    lock = toy_lock(tmp_path)
    names = sorted(package.name for package in closure(lock, "ddlce"))
    assert names == ["backports.zstd", "ddlce", "python"]


def test_the_header_is_clean_sh(bundle: Bundle, tmp_path: Path) -> None:
    script = tmp_path / "header.sh"
    script.write_bytes(Path(bundle.path).read_bytes().partition(STOP)[0])
    checker = Path(sys.executable).with_name("shellcheck")
    subprocess.run([checker, "-s", "sh", "-S", "warning", script], check=True)
