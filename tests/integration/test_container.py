"""The image of docs/kubernetes/Containerfile: buildah builds it, and ranks and sshd run in it.

The base is Debian as debootstrap makes it, with its OpenSSH. The environment is the release's
package `ddl` with all that it depends on.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.environment import built
from support.run import ok, run
from support.userlands import debootstrap, kept

RECIPE = Path(__file__).parents[2] / "docs/kubernetes/Containerfile"
SUITE = "bookworm"
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

Result = subprocess.CompletedProcess[str]


def why_not() -> str:
    """Why no image can be built here; "" if one can."""
    missing = [name for name in ("buildah", "debootstrap") if not shutil.which(name, path=PATH)]
    if missing:
        return f"{missing[0]} is not there; apt-get install buildah debootstrap"
    return "" if os.geteuid() == 0 else "needs root"


pytestmark = [
    pytest.mark.built,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

WHO = """
import ddl, sys
ddl.init()
print(f"rank {ddl.rank()} of {ddl.size()} in {sys.prefix}", flush=True)
ddl.finalize()
"""


@dataclass(frozen=True)
class Store:
    """A store of images of this test's own.

    Attributes:
        folder: of all that it writes.
    """

    folder: Path

    def run(self, *words: str | Path, limit: float = 300) -> Result:
        """Runs buildah; its output is text."""
        return run(
            self.command(*words), env=self.environment, stdin=subprocess.DEVNULL, timeout=limit
        )

    def command(self, *words: str | Path) -> list[str]:
        """The words of a call of buildah."""
        where = ["--root", f"{self.folder}/root", "--runroot", f"{self.folder}/run"]
        return ["buildah", *where, "--storage-driver", "vfs", *map(str, words)]

    def check(self, *words: str | Path) -> str:
        """The same, for a call that ends well; the output without blanks around it."""
        done = ok(self.run(*words))
        return done.stdout.strip()

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of buildah."""
        return {"PATH": PATH, "HOME": str(self.folder), "BUILDAH_ISOLATION": "chroot"}


def base() -> Path:
    """The root of Debian with OpenSSH, made once on this machine."""
    asked = ["openssh-server", "openssh-client"]
    return kept(f"ssh-{SUITE}", lambda target: debootstrap(target, SUITE, asked))


def small_environment(target: Path) -> None:
    """Links `ddl` of the release, and what it depends on, into a folder."""
    prefix = built().resolve()
    found = (json.loads(path.read_text()) for path in (prefix / "conda-meta").glob("*.json"))
    records = {record["name"]: record for record in found}
    wanted, names = ["ddl"], set[str]()
    while wanted:
        if (name := wanted.pop()) in records and name not in names:
            names.add(name)
            wanted += [text.split()[0] for text in records[name]["depends"]]
    for file in (file for name in names for file in records[name]["files"]):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(prefix / file, target / file, follow_symlinks=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with the image `ddl-ce`."""
    folder = tmp_path_factory.mktemp("images")
    store = Store(folder)
    small_environment(folder / "context")
    try:
        empty = store.check("from", "scratch")
        store.check("add", empty, base(), "/")
        store.check("commit", "--rm", empty, "base")
        store.check(
            *("bud", "--layers=false", "--build-arg", "BASE=localhost/base"),
            *("--build-arg", f"PREFIX={built().resolve()}", "-t", "ddl-ce", "-f", RECIPE),
            folder / "context",
        )
        shutil.rmtree(folder / "context")
        store.check("rmi", "base")
        yield store
    finally:
        store.run("rm", "--all")
        store.run("rmi", "--all", "--force")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def container(store: Store) -> str:
    return store.check("from", "localhost/ddl-ce")


def test_ranks_run_in_the_image(store: Store, container: str) -> None:
    done = ok(store.run("run", container, "--", "ddlrun", "-H", "localhost:2", "python", "-c", WHO))
    prefix = built().resolve()
    said = sorted(line[line.index("rank ") :] for line in done.stdout.splitlines())
    assert said == [f"rank {n} of 2 in {prefix}" for n in range(2)]


def test_there_is_no_key_and_no_root_in_the_image(store: Store, container: str) -> None:
    assert store.check("run", container, "--", "id", "-u") == "1000"
    said = store.check("run", container, "--", "ls", "-A", "/etc/ssh", "/home/ddl/.ssh")
    assert "ssh_config.d" in said
    assert "_key" not in said
    assert "id_" not in said


def make_keys(folder: Path) -> Path:
    """The files that the MPI operator mounts for a job."""
    folder.mkdir()
    words = ["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-C", "", "-f", str(folder / "id_rsa")]
    subprocess.run(words, check=True)
    shutil.copy(folder / "id_rsa.pub", folder / "authorized_keys")
    for path in (folder, *folder.iterdir()):
        os.chown(path, 1000, 1000)
    return folder


@pytest.fixture
def worker(store: Store, container: str, tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """The sshd of a manifest's worker, on a port of this machine's own; its keys and the port."""
    keys = make_keys(tmp_path / "keys")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = ["-o", "ListenAddress=127.0.0.1", "-p", str(port)]
    words = ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ddl/sshd_config", *place]
    command = store.command("run", "-v", f"{keys}:/home/ddl/.ssh:ro", container, "--", *words)
    with (tmp_path / "sshd.log").open("w") as log:
        process = subprocess.Popen(
            command,
            env=store.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        end = time.monotonic() + 60
        while "Server listening" not in (tmp_path / "sshd.log").read_text():
            assert process.poll() is None, (tmp_path / "sshd.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.1)
        yield keys, port
        process.terminate()
        process.wait(30)


def ssh(store: Store, container: str, keys: Path, port: int) -> Result:
    """What ddlrun's launcher does to a worker: a command without a question."""
    words = ["ssh", "-x", "-o", "BatchMode=yes", "-p", str(port), "localhost", "id -u"]
    return store.run("run", "-v", f"{keys}:/home/ddl/.ssh:ro", container, "--", *words)


def test_the_jobs_keys_open_its_workers(
    store: Store, container: str, worker: tuple[Path, int], tmp_path: Path
) -> None:
    keys, port = worker
    done = ssh(store, container, keys, port)
    assert (done.returncode, done.stdout.strip()) == (0, "1000"), done.stderr
    # Another job's worker is none of ours: neither side takes the other's key.
    other = make_keys(tmp_path / "other")
    refused = ssh(store, container, other, port)
    assert refused.returncode
    assert "Host key verification failed" in refused.stderr
    shutil.copy(keys / "id_rsa.pub", other / "id_rsa.pub")
    refused = ssh(store, container, other, port)
    assert refused.returncode
    assert "Permission denied (publickey)" in refused.stderr
