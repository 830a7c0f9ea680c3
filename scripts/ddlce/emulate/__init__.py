"""Programs of another platform on this machine: qemu, a private binfmt_misc, and a bare glibc.

Programs that other programs start are emulated too (`mpiexec`, `multiprocessing`), since it is
the kernel that hands them to qemu. It does so in a user namespace of the command's own: nothing
is registered with the machine, no privilege is needed, and it ends with the command.
"""

from ddlce.emulate.command import emulated
from ddlce.emulate.sysroot import ensure_sysroot, machine_of

__all__ = ["emulated", "ensure_sysroot", "machine_of"]
