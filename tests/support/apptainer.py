"""Apptainer in a Debian of its own: only Debian's unstable release has it, for a newer glibc."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.run import Ran, run
from support.userlands import BARE, KEYRING, debootstrap, kept, mirror

#: What the package needs; it is unpacked, not installed, so apt does not bring them.
NEEDS = ("ca-certificates", "libseccomp2", "libsqlite3-0", "squashfs-tools", "uidmap")


@dataclass(frozen=True)
class Apptainer:
    """The program.

    Attributes:
        root: the system that has it.
        folder: the current folder, which it sees at its own path.
    """

    root: Path
    folder: Path

    def run(self, *words: str | Path) -> Ran:
        """Run `apptainer WORDS` as root, without a network."""
        # With the machine's devices: an image is mounted by a loop device.
        system = ("--bind", self.root, "/", "--proc", "/proc", "--dev-bind", "/dev", "/dev")
        more = ("--ro-bind", "/sys", "/sys", "--bind", self.folder, self.folder, "--cap-add", "ALL")
        alone = ("--unshare-net", "--die-with-parent", "--chdir", self.folder)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        return run(["bwrap", *system, *more, *alone, "apptainer", *words], env=environment)


def apptainer(folder: Path) -> Apptainer:
    """Apptainer at work in a folder; the test is skipped where the mirror has none."""
    return Apptainer(kept(f"{BARE}-apptainer", _make), folder)


def _make(target: Path) -> None:
    debootstrap(target, BARE, NEEDS)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        (folder / "lists/partial").mkdir(parents=True)
        (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} sid main\n")
        options = [f"Dir::Etc::sourcelist={folder}/sources.list", "Dir::Etc::sourceparts=-"]
        options += [f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}/cache"]
        command = ["apt-get", "-q", *(f"-o={option}" for option in options)]
        run([*command, "update"])
        done = run([*command, "download", "apptainer"], cwd=folder)
        packages = list(folder.glob("apptainer_*.deb"))
        if not packages:
            pytest.skip(f"the mirror has no Apptainer: {done.stderr.strip()[-200:]}")
        subprocess.run(["dpkg", "-x", packages[0], target], check=True)
    # It takes them into its containers.
    (target / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (target / "etc/resolv.conf").touch()
