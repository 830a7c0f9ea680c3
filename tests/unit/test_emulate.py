"""Registering an emulator, and the sysroot; that programs run is in tests/integration."""

from __future__ import annotations

import re
import struct
import sys
import tempfile
from pathlib import Path

import pytest

from ddlce.emulate.command import emulated, find_emulator
from ddlce.emulate.enter import become, glibc_of, register, registration
from ddlce.emulate.processor import cpuinfo, show_processor
from ddlce.emulate.sysroot import machine_of, make_sysroot, relative_links
from ddlce.errors import InputError, MachineError, SourceError
from support.debs import make_deb
from support.minitree import MiniTree


def elf_header(kind: int, machine: int, abi: int = 0) -> bytes:
    """The first 20 bytes of a 64-bit little-endian ELF file."""
    return b"\x7fELF" + bytes([2, 1, 1, abi]) + bytes(8) + struct.pack("<HH", kind, machine)


def matches(header: bytes) -> bool:
    """What the kernel does with a registration."""
    _, _, _, offset, magic, mask, _, flags = registration("linux-ppc64le", "/q").split(b":")
    assert (offset, flags) == (b"0", b"PF")
    pattern, bits = (
        bytes(int(digits, 16) for digits in re.findall(rb"\\x(..)", text)) for text in (magic, mask)
    )
    return all(h & b == p & b for h, p, b in zip(header, pattern, bits, strict=True))


def test_registration_takes_programs_and_libraries_of_the_platform() -> None:
    assert matches(elf_header(2, 21))
    assert matches(elf_header(3, 21))
    assert matches(elf_header(3, 21, abi=3))  # GNU/Linux: it has IFUNC symbols


def test_registration_leaves_other_files_alone() -> None:
    assert not matches(elf_header(3, 62))  # x86-64
    assert not matches(elf_header(1, 21))  # an object file
    assert not matches(Path(sys.executable).read_bytes()[:20])
    big_endian = b"\x7fELF\x02\x02\x01" + bytes(9) + struct.pack(">HH", 2, 21)
    assert not matches(big_endian)


def test_a_platform_without_emulator_is_refused() -> None:
    with pytest.raises(InputError, match="linux-64: no emulator is known"):
        find_emulator("linux-64")


def test_a_missing_emulator_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="qemu-ppc64le: not on this machine") as caught:
        find_emulator("linux-ppc64le")
    assert caught.value.hint
    assert "qemu-user-static" in caught.value.hint


def test_a_missing_unshare_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = tmp_path / "qemu-ppc64le"
    emulator.write_text("")
    emulator.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="unshare: not on this machine"):
        emulated(["true"], "linux-ppc64le", tmp_path)


def test_a_missing_command_is_named() -> None:
    with pytest.raises(InputError, match="no-such-program: No such file"):
        become(["no-such-program"], "0:0")


def test_sysroot_has_links_that_stay_inside(tmp_path: Path) -> None:
    deb = make_deb(
        tmp_path / "libc6.deb",
        [("usr/lib/machine/libc.so.6", b"c"), ("usr/lib64/ld64.so.2", "/lib/machine/libc.so.6")],
    )
    root = tmp_path / "root"
    make_sysroot(deb, root)
    assert (root / "lib/machine/libc.so.6").read_bytes() == b"c"
    assert (root / "lib64/ld64.so.2").read_bytes() == b"c"
    assert not (root / "lib64/ld64.so.2").readlink().is_absolute()
    assert (root / "etc/mpich.conf").read_text() == "MPIR_CVAR_CH4_CMA_ENABLE=0\n"
    hidden = [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert hidden == [".sysroot-lock"]  # which stays: a lock that is removed guards nothing


def test_programs_of_an_arm_read_of_an_arm_s_processors() -> None:
    assert cpuinfo("aarch64", count=2).count("CPU implementer\t: 0x41\n") == 2
    assert cpuinfo("aarch64").startswith("processor\t: 0\n")  # whatever the machine


def test_others_read_of_this_machine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpuinfo("ppc64le") == ""
    monkeypatch.setenv("PATH", "")
    show_processor("ppc64le")  # mounts nothing


def test_a_processor_that_cannot_be_shown_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = "cannot show an emulated processor in /proc/cpuinfo: "
    with pytest.raises(MachineError, match=f"^{problem}mount: No such file"):
        show_processor("aarch64")
    (tmp_path / "mount").write_text("#!/bin/sh\necho permission denied >&2; exit 32\n")
    (tmp_path / "mount").chmod(0o755)
    with pytest.raises(MachineError, match=f"^{problem}permission denied$"):
        show_processor("aarch64")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(MachineError, match=f"^cannot write {re.escape(str(tmp_path))}/gone"):
        show_processor("aarch64")


def test_an_emulator_that_cannot_be_registered_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"^cannot mount a private binfmt_misc: mount: No such"):
        register("linux-ppc64le", "/usr/bin/qemu-ppc64le-static")


def test_the_glibc_of_a_sysroot(tmp_path: Path) -> None:
    assert glibc_of(tmp_path) == ""
    library = tmp_path / "usr/lib/m-linux-gnu/libc.so.6"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\x7fELF GNU C Library (Debian) stable release version 2.41.\n")
    assert glibc_of(tmp_path) == "2.41"


def test_an_environment_with_its_own_glibc_is_tried_on_a_bare_machine(tmp_path: Path) -> None:
    tree = MiniTree(tmp_path)
    tree.recipe("base")
    tree.lock_sources([])
    prefix = tmp_path / "env"
    prefix.mkdir()
    with pytest.raises(InputError, match="has no libc6 for linux-ppc64le"):
        machine_of(tree.settings, "linux-ppc64le", prefix)
    (prefix / "lib" / "glibc").mkdir(parents=True)
    assert list(machine_of(tree.settings, "linux-ppc64le", prefix).iterdir()) == []


def test_relative_links_keeps_links_that_are_relative(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").symlink_to("a")
    relative_links(tmp_path)
    assert (tmp_path / "b").readlink() == Path("a")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"!<arch>\n"])
def test_a_broken_package_leaves_no_sysroot(tmp_path: Path, content: bytes) -> None:
    deb = tmp_path / "libc6.deb"
    deb.write_bytes(content)
    with pytest.raises(SourceError, match="not a Debian package"):
        make_sysroot(deb, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_package_cannot_write_outside_its_root(tmp_path: Path) -> None:
    deb = make_deb(tmp_path / "evil.deb", {"../outside": b"x"})
    with pytest.raises(SourceError, match="outside its root"):
        make_sysroot(deb, tmp_path / "root" / "inner")
    assert not (tmp_path / "outside").exists()
