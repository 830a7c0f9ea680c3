"""An empty Debian 12 with Lmod: what a login node has when nothing of ours has reached it."""

from __future__ import annotations

from support.userlands import Userland, kept, old_host

SUITE = "bookworm"


def empty_system() -> Userland:
    """The system, made with debootstrap where it is not there yet."""
    root = kept(f"{SUITE}-lmod", lambda target: old_host(target, SUITE, ["lmod"]))
    return Userland("debian-12", "2.36", root)
