"""Where environments are, which of them are complete, and how a name finds one.

An environment is installed in a hidden folder beside its place, with its final prefix already
written into its files, and comes into being by one rename. So whatever has a readable
`conda-meta/ddl-ce.origin` is complete, and a killed run leaves only hidden folders, which the
next run removes.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ddlce.errors import InputError
from ddlce.files import explain_os_errors, is_shared, make_folder, on_disk_at_end, rename_synced
from ddlce.safepath import Word
from ddlce.settings import ORIGIN as ORIGIN
from ddlce.settings import Settings, release_folder
from ddlce.trees import PARTIAL, remove_tree
from ddlce.userpath import absolute, canonical
from ddlce.waiting import OnWait, waiting_lock

LOCK_COPY = Path("conda-meta", "ddl-ce.lock")
CURRENT = "current"

#: Where clones and overlays go, unless conda's variables name another folder.
CLONES = "~/.local/share/ddl-ce-envs"


class Origin(BaseModel):
    """`conda-meta/ddl-ce.origin`: what an environment is and what it was made from (JSON).

    Not named `.json`: conda and rattler take every JSON file there for a package.

    Attributes:
        kind: `release`: immutable, made from a lock; `clone`: a user's own.
        env, release, digest, platform, manifest: of the lock it goes back to.
        channels: channel name → URL that it was installed from.
        specs: what it was asked to contain.
        pkgs: the read-only package cache that its files are linked from.
        source: the prefix that it was cloned from; None for a release.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kind: Literal["release", "clone"]
    env: Word
    release: Word
    digest: str
    platform: str
    manifest: str
    channels: dict[str, str]
    specs: list[str]
    pkgs: str
    source: str | None = None


@dataclass(frozen=True)
class Layout:
    """The folders under a root.

    Attributes:
        root: `--root`.
    """

    root: Path

    @property
    def envs(self) -> Path:
        """One folder per environment, with its releases and the link `current`."""
        return self.root / "envs"

    @property
    def pkgs(self) -> Path:
        """The read-only package cache that all releases are linked from."""
        return self.root / "pkgs"

    @property
    def names(self) -> Path:
        """Links to the releases under the names that conda finds them by.

        Its own name matters: conda shows an environment by its name, not by its path, where the
        folder above is called `envs`.
        """
        return self.root / "conda" / "envs"

    @property
    def lock(self) -> Path:
        """Held by whoever changes anything under the root."""
        return self.root / ".lock"

    def folder(self, env: str) -> Path:
        """The folder of one environment's releases."""
        return self.envs / env

    def prefix(self, env: str, release: str, digest: str) -> Path:
        """The prefix of one release of an environment."""
        return self.folder(env) / release_folder(release, digest)

    def candidate_mark(self, prefix: Path) -> Path:
        """A file that is there while a release is a candidate: installed, and not for users yet."""
        return prefix.with_name(f".{prefix.name}.candidate")

    def is_candidate(self, prefix: Path) -> bool:
        """Whether a release has never been offered to users: no name and no module lead to it."""
        is_default = (prefix.parent / CURRENT).resolve() == prefix.resolve()
        return self.candidate_mark(prefix).exists() and not is_default

    def modulefiles(self, *, candidates: bool = False) -> Path:
        """The folder of modulefiles; those of candidates are apart, so that users see none."""
        return self.root / ("modulefiles-candidate" if candidates else "modulefiles")

    def reports(self, prefix: Path) -> Path:
        """Where the smoke suite's report on a release is kept."""
        return self.root / "reports" / f"{prefix.parent.name}-{prefix.name}"

    def current(self, env: str) -> Path | None:
        """The default release's prefix, or None."""
        link = self.folder(env) / CURRENT
        return link.resolve() if read_origin(link) else None

    def releases(self) -> list[Path]:
        """All complete releases, sorted by environment and name."""
        found = [p for p in self.envs.glob("*/*") if not p.is_symlink() and p.name[0] != "."]
        return sorted(p for p in found if read_origin(p))


def read_origin(prefix: Path) -> Origin | None:
    """What the environment at `prefix` is, or None where there is no complete one of ours."""
    try:
        return Origin.model_validate_json((prefix / ORIGIN).read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


def require_origin(prefix: Path) -> Origin:
    """What the environment at `prefix` is.

    Raises:
        InputError: there is no complete one of ours.
    """
    origin = read_origin(prefix)
    if origin is None:
        raise InputError(
            f"{prefix} is not a complete environment of ddlce",
            "name one that `ddlce env list` shows",
        )
    return origin


def is_gone(path: Path) -> bool:
    """Whether there is nothing at `path`: one that cannot be looked at just now is not gone."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def clones_folder() -> Path:
    """Where clones go: the user's first folder of environments, else `CLONES`.

    conda takes either variable, and stops where both are set.
    """
    listed = [
        path
        for variable in ("CONDA_ENVS_DIRS", "CONDA_ENVS_PATH")
        for path in os.environ.get(variable, "").split(os.pathsep)
        if path
    ]
    chosen = listed[0] if listed else CLONES
    return Path(os.path.realpath(absolute(chosen, "CONDA_ENVS_PATH")))


def clones() -> list[Path]:
    """All complete clones in the clones' folder."""
    folder = clones_folder()
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [p for p in found if p.name[0] != "." and read_origin(p)]


def clone_target(name: str) -> Path:
    """The prefix of a clone or an overlay, given by name or by path: `userpath.canonical`.

    Raises:
        InputError: not a usable name.
    """
    if "/" in name:
        return canonical(absolute(name, "the path of an environment"))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or name in ("base", "root"):
        raise InputError(
            f"{name!r} is not a name for an environment",
            "use letters, digits, '.', '_' and '-' ('base' and 'root' are conda's own), "
            "or give a path with a '/'",
        )
    return clones_folder() / name


def refuse_name_of_release(settings: Settings, target: Path) -> None:
    """Refuse a clone or an overlay whose name would mean a release as well.

    Raises:
        InputError: there is such an environment, or a release to which conda gives that name.
    """
    layout, name = Layout(settings.root), target.name
    taken = layout.folder(name).is_dir() or os.path.lexists(layout.names / name)
    if target.parent == clones_folder() and taken:
        raise InputError(
            f"{name} is the name of an environment under {layout.root}", "choose another name"
        )


def check_unambiguous(settings: Settings, name: str) -> None:
    """Refuse a name that an environment of the root has and something of the user's, too.

    Raises:
        InputError: says how to name either.
    """
    layout, own = Layout(settings.root), clones_folder() / name
    if "/" not in name and layout.current(name) and own.is_dir():
        raise InputError(
            f"{name} is an environment under {layout.root}, and there is {own} too",
            f"give the whole path, or {name}/RELEASE",
        )


def find_env(settings: Settings, name: str) -> Path:
    """The prefix of an environment, given as ENV, ENV/RELEASE-DIGEST, a clone's name or a path.

    Raises:
        InputError: there is no such complete environment.
    """
    layout = Layout(settings.root)
    candidates: list[Path | None]
    if "/" in name or name in (".", ".."):
        candidates = [absolute(name, "the path of an environment"), layout.envs / name]
    else:
        candidates = [layout.current(name), layout.envs / name, clones_folder() / name]
    for candidate in candidates:
        if candidate and read_origin(candidate):
            return candidate.resolve()
    known = [str(p.relative_to(layout.envs)) for p in layout.releases()]
    known += [p.name for p in clones()]
    raise InputError(
        f"there is no environment {name} under {layout.root} or {clones_folder()}",
        f"there are: {', '.join(known)}" if known else "make one with: ddlce env create",
    )


def default_source(settings: Settings, option: str = "--from") -> Path:
    """What is cloned by default: the active environment, the one that runs this, or `current`.

    Args:
        settings: the root, with its releases.
        option: how the user names another one.

    Raises:
        InputError: there is none.
    """
    active = os.environ.get("CONDA_PREFIX")
    for candidate in (Path(active) if active else None, Path(sys.prefix)):
        if candidate and read_origin(candidate):
            return candidate.resolve()
    layout = Layout(settings.root)
    folders = sorted(p.name for p in layout.envs.iterdir()) if layout.envs.is_dir() else []
    found = [prefix for env in folders if (prefix := layout.current(env))]
    if len(found) == 1:
        return found[0]
    raise InputError(
        f"no environment is active, and {layout.root} has {len(found)} to choose from",
        f"load one (module load ddl-ce) or name it with {option}",
    )


@contextlib.contextmanager
def user_locks(
    settings: Settings, *prefixes: Path, on_wait: OnWait | None = None
) -> Iterator[None]:
    """Hold the locks of a user's own prefixes, which need not be there yet.

    Raises:
        MachineError: one is held for too long, or the folder of a prefix cannot be made.
    """
    with contextlib.ExitStack() as stack:
        for lock in sorted({user_lock(settings, prefix) for prefix in prefixes}):
            stack.enter_context(waiting_lock(lock, on_wait, passing=True))
        yield


def user_lock(settings: Settings, prefix: Path) -> Path:
    """The lock file for a user's prefix.

    It is beside the prefix, where all meet whatever their cache, if that folder is this user's or
    a group of administrators shares it. Elsewhere it is in the user's cache: in a folder of others,
    it would stop them.
    """
    folder = prefix.parent
    with explain_os_errors(prefix):
        make_folder(folder)
        own = folder.stat().st_uid == os.geteuid() or is_shared(folder)
    if own and os.access(folder, os.W_OK, effective_ids=True):
        return folder / f".{prefix.name}.lock"
    name = hashlib.sha256(str(prefix).encode()).hexdigest()[:16]
    return settings.cache / "locks" / f"{name}.lock"


@contextlib.contextmanager
def opened(pkgs: Path) -> Iterator[None]:
    """Let the owner of the package cache change it; call under the root's lock.

    It is read-only otherwise, unless a group of administrators shares it.
    """
    with explain_os_errors(pkgs):
        make_folder(pkgs)
        closed = not is_shared(pkgs)
        if closed:
            pkgs.chmod(0o755)
    try:
        yield
    finally:
        if closed and pkgs.is_dir():
            pkgs.chmod(0o555)


def left_open(pkgs: Path) -> bool:
    """Whether a killed run left the package cache writable."""
    return pkgs.is_dir() and bool(pkgs.stat().st_mode & 0o222) and not is_shared(pkgs)


@contextlib.contextmanager
def staged(prefix: Path) -> Iterator[Path]:
    """A new hidden folder beside `prefix` that becomes `prefix` when the block ends well.

    Call it under the lock of `prefix`: what earlier runs left behind is removed first. The
    folder's name is new each time, so that a program of a killed run cannot write into it.
    """
    with explain_os_errors(prefix):
        make_folder(prefix.parent)
        remove_partials(prefix)
        staging = prefix.with_name(f".{prefix.name}{PARTIAL}{os.getpid()}")
        staging.mkdir(0o755)
    try:
        with on_disk_at_end(staging):
            yield staging
        with explain_os_errors(prefix):
            rename_synced(staging, prefix)
    except BaseException:
        remove_tree(staging)
        raise


def remove_partials(prefix: Path) -> None:
    """Remove what this user's killed runs left beside `prefix`; call under its lock.

    Those of others may be at work: each user has locks of their own for clones.
    """
    for leftover in partials(prefix):
        remove_tree(leftover)


def partials(prefix: Path) -> list[Path]:
    """The folders beside `prefix` in which this user is or was filling or removing it."""
    found = prefix.parent.glob(f".{glob.escape(prefix.name)}{PARTIAL}*")
    return [path for path in found if path.lstat().st_uid == os.geteuid()]
