"""`ddlce env verify`: every change of a release is told, even where its records hide it."""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddlce.env.layout import LOCK_COPY, ORIGIN
from ddlce.env.verify import Verified, verify
from ddlce.model.envlock import EnvLock
from ddlce.trees import remove_tree
from support.loopback import Silent, listening
from support.minienv import Site, served, site_of_channel

LIB = "lib/python3.11"
#: The id in entries of an access list that have none.
NONE = 0xFFFFFFFF


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, mini_channel: Path) -> Iterator[Site]:
    """A site with a release, which each test changes and puts right again."""
    site = site_of_channel(tmp_path_factory.mktemp("verify"), mini_channel)
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    for path in (site.current, *site.current.rglob("*")):  # as root, who may do this, sees it
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    yield site
    remove_tree(site.root)


@pytest.fixture
def prefix(made: Site) -> Iterator[Path]:
    """The release; what a test changed by `edit` is put right."""
    yield made.current
    while UNDO:
        UNDO.pop()()


UNDO: list[Callable[[], None]] = []


def edit(path: Path, content: bytes | Path | None, mode: int = 0o444) -> None:
    """Put a file, a link (a path) or nothing at `path`, in a file of its own."""
    if path.is_symlink():
        old: bytes | Path | None = path.readlink()
    else:
        old = path.read_bytes() if path.exists() else None
    before = path.lstat().st_mode & 0o777 if old is not None else 0

    def put(what: bytes | Path | None, bits: int) -> None:
        path.unlink(missing_ok=True)
        if isinstance(what, Path):
            path.symlink_to(what)
        elif what is not None:
            path.write_bytes(what)
            path.chmod(bits)

    UNDO.append(lambda: put(old, before))
    put(content, mode)


def bytecode_at(name: str) -> Callable[[dict[str, dict[str, object]]], None]:
    """A change of `record` that adds a file."""
    return lambda entries: entries.update({name: {"_path": name, "path_type": "pyc_file"}})


def record(prefix: Path, stem: str, change: Callable[[dict[str, dict[str, object]]], None]) -> None:
    """Change the entries of a package's record, by path, as somebody who hides a change."""
    path = prefix / "conda-meta" / f"{stem}.json"
    data = json.loads(path.read_bytes())
    entries = {entry["_path"]: entry for entry in data["paths_data"]["paths"]}
    change(entries)
    data["paths_data"]["paths"] = list(entries.values())
    edit(path, json.dumps(data).encode())


def hide(prefix: Path, stem: str, name: str) -> None:
    """Let the record of a package say that a file is as it now is."""
    digest = hashlib.sha256((prefix / name).read_bytes()).hexdigest()

    def change(entries: dict[str, dict[str, object]]) -> None:
        kept = entries.get(name, {"_path": name, "path_type": "hardlink"})
        entries[name] = {**kept, "sha256": digest, "sha256_in_prefix": digest}

    record(prefix, stem, change)


def without_folders(names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith("/")]


def test_a_release_is_what_was_locked(prefix: Path, made: Site) -> None:
    report = verify(prefix, made.settings)
    assert (report.modified, report.missing, report.extra, report.problems) == ([], [], [], [])
    assert without_folders(report.writable) == []
    assert report.files > 1000


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("libmini-1.2-h0_0", "share/mini/plain.txt"),
        ("libmini-1.2-h0_0", "etc/mini.conf"),  # holds the prefix
        ("libmini-1.2-h0_0", "bin/mini-where"),  # in binary
        ("minimod-1.0-pyh0_0", "bin/minimod"),  # written by the installer
        ("minimod-1.0-pyh0_0", f"{LIB}/site-packages/minimod/data.txt"),
        ("python-3.11.7-h0_0", f"{LIB}/__pycache__/os.cpython-311.pyc"),
    ],
)
def test_a_changed_file_whose_record_was_changed_too(prefix: Path, stem: str, name: str) -> None:
    path = prefix / name
    mode = path.stat().st_mode & 0o777
    edit(path, path.read_bytes() + b"\n# evil\n", mode)
    hide(prefix, stem, name)
    assert name not in verify(prefix, quick=True).modified
    assert verify(prefix).modified == [name]


def test_bytecode_of_other_sources(prefix: Path, tmp_path: Path) -> None:
    """Compiled when the release was made: no archive has it."""
    name = f"{LIB}/site-packages/minimod/__pycache__/__init__.cpython-311.pyc"
    path = prefix / name
    evil = tmp_path / "evil.py"
    evil.write_text("def main():\n    print('evil')\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    made = py_compile.compile(str(evil), str(tmp_path / "evil.pyc"), invalidation_mode=mode)
    assert made
    # The hash of the source that it claims to come from is the right one.
    head = path.read_bytes()[:16]
    edit(path, head + Path(made).read_bytes()[16:])
    hide(prefix, "minimod-1.0-pyh0_0", name)
    assert verify(prefix).modified == [name]


def test_bytecode_without_a_source(prefix: Path) -> None:
    good = prefix / f"{LIB}/site-packages/minimod/__pycache__/__init__.cpython-311.pyc"
    for name in ("evil.pyc", "__pycache__/evil.cpython-311.pyc", "minimod/__pycache__/a.pyc"):
        name = f"{LIB}/site-packages/{name}"
        (prefix / name).parent.mkdir(exist_ok=True)
        edit(prefix / name, good.read_bytes())
        record(prefix, "minimod-1.0-pyh0_0", bytecode_at(name))
        assert verify(prefix).modified == [name]
        UNDO.pop()()
        UNDO.pop()()
    (prefix / f"{LIB}/site-packages/__pycache__").rmdir()


@pytest.mark.parametrize("goal", ["other.txt", "/etc/passwd", "../../etc/mini.conf"])
def test_a_link_that_leads_elsewhere(prefix: Path, goal: str) -> None:
    edit(prefix / "share/mini/link.txt", Path(goal))
    assert verify(prefix).modified == ["share/mini/link.txt"]


def test_a_link_in_place_of_a_file(prefix: Path) -> None:
    edit(prefix / "share/mini/plain.txt", Path("/etc/hostname"))
    assert verify(prefix).modified == ["share/mini/plain.txt"]


@pytest.mark.parametrize("quick", [True, False])
def test_added_links(prefix: Path, quick: bool) -> None:
    edit(prefix / "share/folder", Path("/tmp"))
    edit(prefix / "share/file", Path("/etc/passwd"))
    edit(prefix / f"{LIB}/site-packages/nothing", Path("/nowhere"))
    assert verify(prefix, quick=quick).extra == [
        f"{LIB}/site-packages/nothing",
        "share/file",
        "share/folder",
    ]


@pytest.mark.parametrize(
    "name", [f"{LIB}/site-packages/evil.pth", "EXTERNALLY-MANAGED", "x/.condarc"]
)
def test_an_added_file(prefix: Path, name: str) -> None:
    (prefix / name).parent.mkdir(exist_ok=True)
    edit(prefix / name, b"import evil\n")
    assert verify(prefix).extra == [name]
    hide(prefix, "libmini-1.2-h0_0", name)
    report = verify(prefix)
    assert (report.extra, report.problems) == ([name], [f"{name} is in a record and in no package"])


def test_other_permissions_are_told(prefix: Path) -> None:
    plain, script = prefix / "share/mini/plain.txt", prefix / "bin/miniarch"
    edit(plain, plain.read_bytes(), 0o555)
    edit(script, script.read_bytes(), 0o444)
    assert verify(prefix).modified == ["bin/miniarch", "share/mini/plain.txt"]
    UNDO.pop()()
    edit(script, script.read_bytes(), 0o4555)
    assert "bin/miniarch" in verify(prefix).modified


@pytest.mark.parametrize("quick", [False, True])
def test_capabilities_and_access_lists_are_told(prefix: Path, quick: bool) -> None:
    """What `setcap` and `setfacl` write: Linux's `vfs_cap_data` and `posix_acl_xattr`."""
    # cap_net_raw in both masks; user::r-x, user:65534:rwx, group::r-x, mask::rwx, other::r-x.
    capability = struct.pack("<5I", 0x02000001, 1 << 13, 1 << 13, 0, 0)
    entries = [(1, 5, NONE), (2, 7, 65534), (4, 5, NONE), (16, 7, NONE), (32, 5, NONE)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    given = {
        prefix / "bin/miniarch": ("security.capability", capability),
        prefix / "share/mini": ("system.posix_acl_access", acl),
        prefix / "share/mini/plain.txt": ("user.note", b"mine"),
    }
    if os.geteuid() != 0:
        del given[prefix / "bin/miniarch"]  # only root gives capabilities
    assert verify(prefix, quick=quick).attributes == []
    assert not Verified(prefix, "release", attributes=["bin/x: security.capability"]).ok
    modes = {path: path.stat().st_mode for path in given}
    try:
        for path, (name, value) in given.items():
            path.chmod(modes[path] | stat.S_IWUSR)
            os.setxattr(path, name, value)
        report = verify(prefix, quick=quick)
        wanted = {str(path.relative_to(prefix)): name for path, (name, _) in given.items()}
        wanted["share/mini/"] = wanted.pop("share/mini")
        assert report.attributes == sorted(f"{path}: {name}" for path, name in wanted.items())
    finally:
        for path, (name, _) in given.items():
            os.removexattr(path, name)
            path.chmod(modes[path])


def test_what_a_release_has_beside_packages(prefix: Path, made: Site) -> None:
    edit(prefix / ".condarc", b"channels: [https://evil.example]\n")
    state = json.loads((prefix / "conda-meta/state").read_bytes())
    state["env_vars"]["LD_PRELOAD"] = "/tmp/evil.so"
    edit(prefix / "conda-meta/state", json.dumps(state).encode())
    edit(prefix / "conda-meta/frozen", Path("/etc/hostname"))
    edit(prefix / "conda-meta/extra.json", b"{}")
    edit(prefix / "conda-meta/extra", b"")
    report = verify(prefix, made.settings)
    assert set(report.problems) == {
        ".condarc is not what this tree makes of the release's channels",
        "conda-meta/state does not set the lock's variables",
        "conda-meta/frozen is missing: conda would change the environment",
        "conda-meta/extra.json is no locked package's",
    }
    assert report.extra == ["conda-meta/extra"]


def test_another_lock_and_all_that_goes_with_it(prefix: Path, made: Site, tmp_path: Path) -> None:
    """Somebody who may write everything in the folder can make it agree with itself."""
    lock = prefix / "conda-meta/ddl-ce.lock"
    text = lock.read_text().replace("MINI_GREETING: hello", "MINI_GREETING: evil!")
    digest = hashlib.sha256(text.encode()).hexdigest()
    trusted = tmp_path / "trusted.lock"
    trusted.write_bytes(lock.read_bytes())
    edit(lock, text.encode())
    origin = json.loads((prefix / "conda-meta/ddl-ce.origin").read_bytes())
    edit(prefix / "conda-meta/ddl-ce.origin", json.dumps({**origin, "digest": digest}).encode())
    edit(
        prefix / "conda-meta/state",
        b'{"version": 1, "env_vars": {"MINI_GREETING": "evil!"}}',
    )
    problem = "conda-meta/ddl-ce.lock is not the lock that the folder is named after"
    assert verify(prefix).problems == [problem]
    done = made.ddlce("env", "verify", "mini", "--lock", trusted)
    assert done.returncode == 1
    assert "problem   conda-meta/ddl-ce.lock is not the lock that was named\n" in done.stdout


def test_an_archive_that_is_not_there_or_not_the_locked_one(prefix: Path, made: Site) -> None:
    path = Path(made.channel) / "linux-64" / "libmini-1.2-h0_0.conda"
    stem = "libmini-1.2-h0_0 cannot be proven: "
    edit(path, None)
    assert verify(prefix).problems == [f"{stem}{path}: missing"]
    edit(path, b"evil")
    (problem,) = verify(prefix).problems
    assert problem.startswith(f"{stem}{path}: its sha256 is not the locked ")
    edit(prefix / "share/mini/plain.txt", b"evil\n")
    assert verify(prefix).modified == ["share/mini/plain.txt"]
    done = made.ddlce("env", "verify", "mini")
    assert (done.returncode, done.stderr) == (1, "")
    assert f"problem   {stem}" in done.stdout


def test_from_a_server(prefix: Path, made: Site) -> None:
    with served(Path(made.channel)) as url:
        path = prefix / "conda-meta/ddl-ce.origin"
        origin = json.loads(path.read_bytes())
        edit(path, json.dumps({**origin, "channels": {"ddl-ce": url}}).encode())
        assert verify(prefix).problems == []
        edit(Path(made.channel) / "linux-64" / "libmini-1.2-h0_0.conda", None)
        (problem,) = verify(prefix).problems
        assert problem.endswith(f"{url}/linux-64/libmini-1.2-h0_0.conda: 404 File not found")
    assert len([p for p in verify(prefix).problems if "cannot be proven" in p]) == 5


def test_an_answer_that_is_cut_off(prefix: Path, made: Site) -> None:
    """As when a server is restarted."""

    class Cutting(Silent):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"half")

    with listening(Cutting) as url:
        origin = json.loads((prefix / ORIGIN).read_bytes())
        edit(prefix / ORIGIN, json.dumps(origin | {"channels": {"ddl-ce": url}}).encode())
        report = verify(prefix)
    packages = len(EnvLock.load(prefix / LOCK_COPY).packages)
    cut = [line for line in report.problems if f"{url}/" in line and "cannot be fetched" in line]
    assert len(cut) == packages


def test_a_prefix_that_does_not_fit_into_a_script(tmp_path: Path, mini_channel: Path) -> None:
    for number, name in enumerate(("l" * 100, "with space")):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        site = site_of_channel(folder, mini_channel)
        site.ok("lock", "mini")
        root = folder / name
        site.ok("env", "create", "mini", "--root", root)
        (prefix,) = [p for p in (root / "envs/mini").iterdir() if not p.is_symlink()]
        assert verify(prefix).ok, verify(prefix)
        assert os.access(prefix / "bin/miniarch", os.X_OK)
        remove_tree(root)
