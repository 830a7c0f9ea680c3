"""A small tree with one manifest, a root, caches and clones, for the tests of environments."""

from __future__ import annotations

import functools
import http.server
import importlib.metadata
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ddlce.engine.index import index_channel
from ddlce.files import sha256_file
from ddlce.settings import Settings
from support.loopback import Silent, listening
from support.minichannel import MANIFEST, PLACEHOLDER, Pkg, pack
from support.run import run

REPO = Path(__file__).parents[2]
#: A user who owns nothing here.
NOBODY = 65534
FORK = multiprocessing.get_context("fork")
#: An interpreter that other users may run; the one that runs the tests may be in a home.
PUBLIC_PYTHON = "/usr/bin/python3"
IMPORTS = (PUBLIC_PYTHON, "-c", "import rattler, pydantic, ddlce")
PYTHONPATH = f"{REPO / 'scripts'}:{sysconfig.get_path('purelib')}"


@dataclass
class Site:
    """Everything in one folder: `repo`, `root`, `cache`, `clones`, `home`.

    Attributes:
        folder: where.
        channel: the channel's folder or URL.
        shared: a site whose root (with its installed releases) is used instead of an own one.
        extra: more variables of the environment in which `ddlce` works.
        groups: of other users who run it here.
    """

    folder: Path
    channel: str
    shared: Site | None = None
    extra: dict[str, str] = field(default_factory=dict)
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        envs = self.repo / "envs"
        envs.mkdir(parents=True, exist_ok=True)
        (self.repo / "recipes").mkdir(exist_ok=True)
        (self.repo / "channel").mkdir(exist_ok=True)
        shutil.copyfile(REPO / "channel" / "condarc.j2", self.repo / "channel" / "condarc.j2")
        if not self.manifest.exists():
            self.manifest.write_text(MANIFEST)

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def manifest(self) -> Path:
        return self.repo / "envs" / "mini.yaml"

    @property
    def lock(self) -> Path:
        return self.repo / "envs" / "locks" / "mini.linux-64.lock"

    @property
    def root(self) -> Path:
        return self.shared.root if self.shared else self.folder / "root"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def clones(self) -> Path:
        return self.folder / "clones"

    @property
    def current(self) -> Path:
        """The default release's prefix."""
        return (self.root / "envs" / "mini" / "current").resolve()

    @property
    def settings(self) -> Settings:
        return Settings(repo=self.repo, cache=self.cache, root=self.root)

    def env(self) -> dict[str, str]:
        """The environment in which `ddlce` works here."""
        unset = {"CONDA_PREFIX", "DDLCE_CHANNEL"}
        return {k: v for k, v in os.environ.items() if k not in unset} | {
            "DDLCE_REPO": str(self.repo),
            "DDLCE_CACHE": str(self.cache),
            "DDLCE_ROOT": str(self.root),
            "CONDA_ENVS_PATH": str(self.clones),
            "HOME": str(self.folder / "home"),
            "COLUMNS": "200",
            "PYTHONPATH": PYTHONPATH,
            **self.extra,
        }

    def start(self, *args: str | Path, user: int | None = None) -> subprocess.Popen[str]:
        """Start `ddlce ARGS` in a session of its own."""
        interpreter = sys.executable if user is None else PUBLIC_PYTHON
        command = [interpreter, "-m", "ddlce", *map(str, args)]
        own = args[0] == "lock" or args[:2] in (("env", "create"), ("env", "install"))
        if own and "--from" not in args and "--release" not in args:
            command += ["--channel", self.channel]
        if user is not None:
            groups = f"--groups={','.join(map(str, self.groups))}" if self.groups else None
            ids = [f"--reuid={user}", f"--regid={user}", groups or "--clear-groups"]
            command = ["setpriv", *ids, *command]
        return subprocess.Popen(
            command,
            env=self.env(),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ddlce(self, *args: str | Path, user: int | None = None) -> subprocess.CompletedProcess[str]:
        """Run `ddlce ARGS`."""
        process = self.start(*args, user=user)
        stdout, stderr = process.communicate(timeout=300)
        return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)

    def ok(self, *args: str | Path, user: int | None = None) -> str:
        """Run `ddlce ARGS`, which must succeed; returns its standard output."""
        done = self.ddlce(*args, user=user)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, code: int, *args: str | Path, user: int | None = None) -> str:
        """Run `ddlce ARGS`, which must end with `code` and a designed message; returns it."""
        done = self.ddlce(*args, user=user)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert done.stderr.startswith("error: "), done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    def killed_after(self, seconds: float, *args: str | Path) -> bool:
        """Run `ddlce ARGS` and kill it, with all its children; False when it ended before."""
        process = self.start(*args)
        time.sleep(seconds)
        early = process.poll() is None
        if early:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return early

    def python(self, prefix: Path, code: str) -> str:
        """Run Python code in an environment."""
        done = run([prefix / "bin" / "python", "-c", code], check=True)
        return done.stdout.strip()


def site_of_channel(folder: Path, channel: Path) -> Site:
    """A site with a channel of its own, which may be damaged: a copy of `channel`."""
    copy = folder / "channel"
    shutil.copytree(channel, copy, ignore=shutil.ignore_patterns(".tmp"))
    return Site(folder, str(copy))


def packages_alone(folder: Path, *distributions: str) -> Path:
    """A new folder with these of our installed packages and nothing else, for a PYTHONPATH."""
    folder.mkdir()
    for distribution in distributions:
        files = importlib.metadata.files(distribution) or []
        # What stands in ../ are scripts.
        for name in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (folder / name).symlink_to(Path(sysconfig.get_path("purelib")) / name)
    return folder


def hello_wheel(folder: Path) -> Path:
    """A wheel with one module."""
    path = folder / "hello-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("hello.py", "GREETING = 'hi'\n")
        info = "hello-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


def everything(folder: Path) -> list[Path]:
    """All paths under a folder, hidden ones too."""
    return sorted(folder.rglob("*")) if folder.is_dir() else []


def as_served(folder: Path) -> dict[str, str]:
    """Path → sha256 of each file that a web server of this folder gives, which follows links."""
    found = {}
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(place, name) for name in names if not name.startswith(".")):
            found[str(path.relative_to(folder))] = sha256_file(path)
    return found


def run_as(user: int, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program as another user, without any privilege."""
    return run(
        ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *map(str, command)],
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
    )


def as_nobody(folder: Path, work: Callable[[], None]) -> None:
    """Do some work as a user for whom a folder without write permission is closed."""

    def change_and_work() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        work()

    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    process = FORK.Process(target=change_and_work)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def can_be_nobody() -> bool:
    """True when the tests may run `ddlce` as another user."""
    try:
        return os.getuid() == 0 and run_as(NOBODY, *IMPORTS).returncode == 0
    except OSError:  # no setpriv here
        return False


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder on a loopback HTTP server; yields its URL."""

    class Files(Silent, http.server.SimpleHTTPRequestHandler):
        """Silent about files, too."""

    with listening(functools.partial(Files, directory=str(folder))) as url:
        yield url


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system with that much space, mounted at `folder`; needs root."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", folder], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def can_mount(folder: Path) -> bool:
    """True when the tests may mount a file system."""
    try:
        with small_disk(folder, 1):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


TOY = """\
name: mini
release: "2026.11"
summary: An environment without Python, installed in a second.
platforms:
  linux-64:
    glibc: "2.17"
specs:
  - toy
"""


def toy_site(folder: Path, *packages: Pkg) -> Site:
    """A site whose release holds the package `toy`; its channel has these packages too."""
    if not any(package.name == "toy" for package in packages):
        packages = (Pkg("toy", files={"etc/toy": f"{PLACEHOLDER}\n"}), *packages)
    for package in packages:
        pack(package, folder / "channel")
    index_channel(folder / "channel")
    (folder / "repo" / "envs").mkdir(parents=True)
    (folder / "repo" / "envs" / "mini.yaml").write_text(TOY)
    site = Site(folder, str(folder / "channel"))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    return site
