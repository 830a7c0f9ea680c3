"""The files of /proc and /sys in which programs of another platform read about their processor.

qemu looks for every file in the sysroot first. Where it has none, an emulated program reads the
kernel's own, and learns that the processor is this machine's: PyTorch's cpuinfo crashes then.
"""

from __future__ import annotations

import os

#: Arm's Neoverse N1: Armv8.2 with 16-bit floats and without SVE, as many servers have it.
MIDR = 0x413FD0C1

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


def processor_files(machine: str, count: int | None = None) -> dict[str, str]:
    """The files that a sysroot has, by their path without the first slash; none for most machines.

    Args:
        machine: the kernel's name of the processor, `aarch64`.
        count: how many processors there are; None: as many as this machine has.
    """
    if machine != "aarch64":
        return {}
    numbers = range(count or os.cpu_count() or 1)
    files = {"proc/cpuinfo": "".join(ARM.format(number=number) for number in numbers)}
    for number in numbers:
        folder = f"sys/devices/system/cpu/cpu{number}/regs/identification"
        files[f"{folder}/midr_el1"] = f"0x{MIDR:016x}\n"
    return files
