"""What programs of another platform read in /proc/cpuinfo about their processor.

qemu 7 gives them the kernel's own, of this machine's processor: PyTorch's cpuinfo crashes then. A
file in the sysroot would do too, but a program that lists /proc would find nothing else there.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ddlce.emulate.mount import mount
from ddlce.files import explain_os_errors

#: Arm's Neoverse N1: Armv8.2 with 16-bit floats and without SVE, as many servers have it.
ARM = """\
processor\t: {number}
BogoMIPS\t: 100.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""  # noqa: E501

CPUINFO = "/proc/cpuinfo"


def cpuinfo(machine: str, count: int | None = None) -> str:
    """The file's text; "" for a machine whose programs may read this one's.

    Args:
        machine: the kernel's name of the processor, `aarch64`.
        count: how many processors there are; None: as many as this machine has.
    """
    if machine != "aarch64":
        return ""
    return "".join(ARM.format(number=number) for number in range(count or os.cpu_count() or 1))


def show_processor(machine: str) -> None:
    """Put the text in the file's place, in this namespace.

    Raises:
        MachineError: the kernel refuses, or there is no place for a file.
    """
    text = cpuinfo(machine)
    if not text:
        return
    # The mount holds the file, which needs no name any longer.
    with (
        explain_os_errors(Path(tempfile.gettempdir())),
        tempfile.NamedTemporaryFile("w", suffix=".cpuinfo") as file,
    ):
        file.write(text)
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        problem = f"cannot show an emulated processor in {CPUINFO}"
        hint = "in a container, allow mounts in user namespaces (seccomp, AppArmor)"
        mount("--bind", file.name, CPUINFO, problem=problem, hint=hint)
