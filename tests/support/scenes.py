"""Small sites, each in front of one command: what the machine that kills (`killing`) tries."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ddlce.engine.index import index_channel
from ddlce.engine.variants import VARIANTS
from ddlce.env.layout import Layout
from ddlce.env.verify import verify
from ddlce.files import sha256_file
from ddlce.model.envlock import EnvLock
from ddlce.publish.listing import Listing
from ddlce.settings import Settings
from support.bundles import run_bundle, working_bundle
from support.killing import Ended, Machine
from support.minichannel import PLACEHOLDER, Pkg, pack
from support.minienv import Site
from support.minitree import make_tree
from support.run import ok
from support.sourceserver import Server, environment, publish
from support.sourceserver import lock as lock_sources

MANIFEST = """\
name: mini
release: "2026.11"
summary: Two small packages.
platforms:
  linux-64:
    glibc: "2.17"
specs: [x, y]
variables:
  MINI_GREETING: hello
"""

#: In these, the bytes depend on the time or on chance; that they are there is compared.
VOLATILE = re.compile(
    r"history|generation\.json|\.verified|.*repodata.*|.*\.log|records/.*|.*\.msgpack\.zst"
)
#: Locks stay; what is in a folder for temporary files is the machine's to remove.
IGNORED = re.compile(r"(.*/)?\.?[^/]*\.?lock|tmp/.*|home/.*|cache/logs/.*|.*/\.lock")


@dataclass
class Scene:
    """A folder as it is before a command.

    Attributes:
        name: of the command.
        folder: in which all of it is.
        argv: of `ddlce`, or of the program.
        env: its whole environment.
        done: the exit status of a run after it has been done, where it is not 0.
        whole: looks at the folder after a kill, and raises where something is half-made.
        program: the path of another program than `ddlce`.
    """

    name: str
    folder: Path
    argv: list[str]
    env: dict[str, str]
    done: int = 0
    whole: Callable[[Path], None] = field(default=lambda folder: None)
    program: str = ""

    def keep(self) -> None:
        """Remember the folder as it is now."""
        subprocess.run(["rm", "-rf", self._kept], check=True)
        subprocess.run(["cp", "-a", self.folder, self._kept], check=True)

    def restore(self) -> None:
        """Make the folder what it was when it was kept."""
        subprocess.run(["chmod", "-R", "u+rwX", self.folder], check=True)
        subprocess.run(["rm", "-rf", self.folder], check=True)
        subprocess.run(["cp", "-a", self._kept, self.folder], check=True)

    @property
    def _kept(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.kept")

    def run(self, machine: Machine, at: int = 0, code: int = 0) -> Ended:
        """Run the command under the machine."""
        return machine.run(self.argv, self.env, self.folder, at=at, code=code, program=self.program)


def snapshot(folder: Path) -> dict[str, str]:
    """Path → kind, mode and content of all that is there, as far as it is the same in each run."""
    found = {}
    now = {str(path.readlink()) for path in folder.glob("**/.generation") if path.is_symlink()}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if IGNORED.fullmatch(name):
            continue
        name = re.sub(r"\.generation-[0-9a-f]{8}", lambda m: _generation(m[0], now), name)
        name = re.sub(r"shards/[0-9a-f]{64}", "shards/X", name)  # another in each run
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            text = re.sub(r"\.generation-[0-9a-f]{8}", "X", str(path.readlink()))
            found[name] = f"link to {text}"
        elif stat.S_ISDIR(status.st_mode):
            found[name] = f"folder {stat.S_IMODE(status.st_mode):o}"
        else:
            volatile = VOLATILE.fullmatch(path.name) or VOLATILE.fullmatch(name)
            data = path.read_bytes()
            if path.parent.name == "conda-meta" and path.suffix == ".json":
                data = json.dumps(json.loads(data), sort_keys=True).encode()
            digest = "" if volatile else hashlib.sha256(data).hexdigest()
            found[name] = f"file {stat.S_IMODE(status.st_mode):o} {digest[:12]}"
    return found


def _generation(name: str, now: set[str]) -> str:
    """What to call a channel's generation, which has another name in each run."""
    return "generation-now" if name in now else "generation-before"


def _site(folder: Path) -> Site:
    """A site with a channel of a few tiny packages, and a manifest."""
    channel = folder / "channel"
    conf = {"etc/x.conf": f"prefix={PLACEHOLDER}\n", "share/x.txt": "x\n", "share/l": "-> x.txt"}
    pack(Pkg("x", files=dict(conf)), channel)
    pack(Pkg("y", files={"share/y.txt": "y\n"}, noarch="generic"), channel)
    pack(Pkg("z", files={"share/z.txt": "z\n", "etc/z.conf": f"{PLACEHOLDER}\n"}), channel)
    index_channel(channel)
    (folder / "repo/envs").mkdir(parents=True)
    (folder / "repo/envs/mini.yaml").write_text(MANIFEST)
    return Site(folder, str(channel), extra=_extra(folder))


def _extra(folder: Path) -> dict[str, str]:
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    (folder / "home").mkdir(exist_ok=True)
    return {"TMPDIR": str(folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}


def _releases_are_whole(folder: Path) -> None:
    """Each prefix that says what it is has all files of its packages."""
    for origin in folder.glob("root/envs/*/[!.]*/conda-meta/ddl-ce.origin"):
        prefix = origin.resolve().parents[1]
        assert (prefix / "etc/x.conf").read_text() == f"prefix={prefix}\n"
        assert (prefix / "conda-meta/frozen").is_file()
    for link in [*folder.glob("root/envs/*/current"), *folder.glob("root/conda/envs/mini")]:
        assert link.resolve().is_dir(), f"{link} leads nowhere"


def _clones_are_whole(folder: Path) -> None:
    for origin in folder.glob("clones/[!.]*/conda-meta/ddl-ce.origin"):
        prefix = origin.parents[1]
        assert (prefix / "etc/x.conf").read_text() == f"prefix={prefix}\n"


def lock(folder: Path) -> Scene:
    """`ddlce lock`."""
    site = _site(folder)
    return Scene("lock", folder, ["lock", "mini", "--channel", site.channel], site.env())


def create(folder: Path) -> Scene:
    """`ddlce env create`."""
    site = _site(folder)
    site.ok("lock", "mini")
    argv = ["env", "create", "mini", "--channel", site.channel]
    return Scene("create", folder, argv, site.env(), whole=_releases_are_whole)


def _released(folder: Path) -> Site:
    site = _site(folder)
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    return site


def clone(folder: Path) -> Scene:
    """`ddlce env clone`."""
    site = _released(folder)
    argv = ["env", "clone", "mine", "--from", "mini"]
    return Scene("clone", folder, argv, site.env(), 2, _clones_are_whole)


def install(folder: Path) -> Scene:
    """`ddlce env install`."""
    site = _released(folder)
    site.ok("env", "clone", "mine", "--from", "mini")
    argv = ["env", "install", "mine", "z", "--channel", site.channel]
    return Scene("install", folder, argv, site.env(), whole=_clones_are_whole)


def remove(folder: Path) -> Scene:
    """`ddlce env remove` of a clone."""
    site = _released(folder)
    site.ok("env", "clone", "mine", "--from", "mini")
    argv = ["env", "remove", "mine"]
    return Scene("remove", folder, argv, site.env(), 2, _clones_are_whole)


def _two_releases(folder: Path) -> Site:
    site = _released(folder)
    site.manifest.write_text(MANIFEST.replace("2026.11", "2026.12").replace("[x, y]", "[x, z]"))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    return site


def collect(folder: Path) -> Scene:
    """`ddlce env gc` of a release and of a package that only it has."""
    site = _two_releases(folder)
    return Scene("gc", folder, ["env", "gc"], site.env(), whole=_releases_are_whole)


def module(folder: Path) -> Scene:
    """`ddlce module`, where the last release's modulefiles are there and its prefix is gone."""
    site = _released(folder)
    site.ok("module", "mini")
    site.manifest.write_text(MANIFEST.replace("2026.11", "2026.12"))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    site.ok("env", "gc")
    return Scene("module", folder, ["module", "mini"], site.env())


def image(folder: Path) -> Scene:
    """`ddlce env image`."""
    site = _released(folder)
    argv = ["env", "image", "mini", "--for", "/tmp/ddl-ce-nodes"]
    return Scene("image", folder, argv, site.env())


def index(folder: Path) -> Scene:
    """`ddlce index`, after one of three packages was built anew."""
    tree = make_tree(folder)
    env = tree.env(**_extra(folder))
    for command in ("build", "index", "build"):
        ok(tree.ddlce(command))
        if command == "index":
            (tree.repo / "recipes/app/LICENSE").write_text("another\n")
    return Scene("index", folder, ["index"], env, whole=_index_is_whole)


def _index_is_whole(folder: Path) -> None:
    subdir = folder / "repo/channel/noarch"
    named = json.loads((subdir / "repodata.json").read_bytes())["packages.conda"]
    exports = json.loads((subdir / "run_exports.json").read_bytes())["packages.conda"]
    assert len(named) == 3
    assert named.keys() == exports.keys()
    for file, record in named.items():
        assert hashlib.sha256((subdir / file).read_bytes()).hexdigest() == record["sha256"]


def overlay(folder: Path) -> Scene:
    """`ddlce env overlay` on a release whose Python is the one that runs the tests."""
    site = _site(folder)
    python = f'#!/bin/sh\nexec {Path(sys.executable).resolve()} "$@"\n'
    pack(Pkg("python", "3.11.7", files={"bin/python": python}), folder / "channel")
    index_channel(folder / "channel")
    site.manifest.write_text(MANIFEST.replace("[x, y]", "[x, python]"))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    argv = ["env", "overlay", "over", "--release", "mini"]
    return Scene("overlay", folder, argv, site.env(), 2)


def fetch(folder: Path) -> Scene:
    """`ddlce fetch` of two files from a server, which ends with this process."""
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tree = folder / "repo"
    (tree / "recipes").mkdir(parents=True)
    (tree / "recipes" / VARIANTS).write_text("python: [3.11.* *_cpython]\n")
    (tree / "channel").mkdir()
    (tree / "channel/channel.yaml").touch()
    settings = Settings(repo=tree, cache=folder / "cache", root=folder / "root")
    lock_sources(settings, *(publish(server, f"{name}.tar", 200_000) for name in "ab"))
    env = {**environment(settings), **_extra(folder), "DDLCE_ROOT": str(settings.root)}
    return Scene("fetch", folder, ["fetch"], env, whole=_sources_are_whole)


def _sources_are_whole(folder: Path) -> None:
    for path in folder.glob("cache/sources/*/[!.]*"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.parent.name


def published(folder: Path) -> Scene:
    """`ddlce publish` of a second release on a site that has one."""
    site = _site(folder)
    site.ok("lock", "mini")
    options = ("--channel", site.channel, "--no-bundle", "--no-sbom")
    argv = ["publish", str(folder / "www"), "mini", *options]
    site.ok(*argv)
    site.manifest.write_text(MANIFEST.replace("2026.11", "2026.12").replace("[x, y]", "[x, z]"))
    site.ok("lock", "mini")
    return Scene("publish", folder, argv, site.env(), whole=_site_is_whole)


def _site_is_whole(folder: Path) -> None:
    """What the list of releases names is there, with the packages of each lock."""
    www = folder / "www"
    listing = Listing.model_validate_json((www / "releases.json").read_bytes())
    assert "mini-2026.11-linux-64" in {one.name for one in listing.releases}
    for one in listing.releases:
        for name, digest in one.files.items():
            assert sha256_file(www / one.folder / name) == digest
        for package in EnvLock.load(www / one.folder / one.lock).packages:
            path = www / "channel" / package.subdir / package.file
            assert sha256_file(path) == package.sha256


def bundle(folder: Path) -> Scene:
    """`sh FILE --root ROOT`, a bundle beside an older release that another one has installed."""
    (lock, older), (_, newer) = (
        working_bundle(folder / "made", release) for release in ("2026.11", "2026.12")
    )
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder / "home"), **_extra(folder)}
    argv = ["--root", str(folder / "root"), "--no-smoke"]
    ok(run_bundle(older, *argv, folder=folder))
    there = Layout(folder / "root").prefix(lock.env, lock.release, lock.digest)

    def whole(folder: Path) -> None:
        assert (there / "etc/toy").is_file()
        for origin in folder.glob("root/envs/*/[!.]*/conda-meta/ddl-ce.origin"):
            assert verify(origin.resolve().parents[1]).ok
        for link in (*folder.glob("root/envs/*/current"), *folder.glob("root/conda/envs/*")):
            assert link.resolve().is_dir(), f"{link} leads nowhere"

    return Scene("bundle", folder, [str(newer), *argv], env, whole=whole, program="/bin/sh")


SCENES: dict[str, Callable[[Path], Scene]] = {
    "lock": lock,
    "create": create,
    "clone": clone,
    "install": install,
    "remove": remove,
    "gc": collect,
    "module": module,
    "image": image,
    "index": index,
    "overlay": overlay,
    "fetch": fetch,
    "publish": published,
    "bundle": bundle,
}
