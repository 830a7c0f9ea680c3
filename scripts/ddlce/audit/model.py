"""What the rules of the audit share: their findings, and what the machine brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ddlce.audit.facts import Facts
from ddlce.platforms import PLATFORMS

#: What every glibc brings; with the drivers, all that may come from the machine.
GLIBC = frozenset(
    {
        *("libc.so.6", "libm.so.6", "libmvec.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1"),
        *("libutil.so.1", "libresolv.so.2", "libanl.so.1", "libnss_files.so.2"),
        *("libthread_db.so.1", *(row.loader for row in PLATFORMS.values())),
    }
)

#: User-space parts of device drivers: they fit the machine's kernel, so they are always its own.
#: What needs them are plugins that are tried and left out where they do not load.
DRIVERS = frozenset(
    {
        *("libcuda.so.1", "libnvidia-ml.so.1", "libibverbs.so.1", "librdmacm.so.1"),
        *("libmlx5.so.1", "libefa.so.1", "libpsm2.so.2"),
    }
)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a package or a channel.

    Attributes:
        rule: the name of the rule.
        path: the file inside the package, or of the channel.
        message: what is wrong and what to do.
    """

    rule: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule} {self.path}: {self.message}"


@dataclass(frozen=True)
class Below:
    """The packages that are installed beside the package: its dependencies, direct or not.

    Attributes:
        paths: path → name of the package that brings it.
        direct: what index.json names.
        packages: their files, the nearest first.
    """

    paths: dict[str, str]
    direct: frozenset[str]
    packages: tuple[Path, ...] = ()


Rule = Callable[[Facts, Below | None], Iterator[Finding]]
