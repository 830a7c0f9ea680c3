"""A build that failed, and its message."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from pathlib import Path

from ddlce.errors import WorkError
from ddlce.platforms import BUILD_PLATFORM

#: Last lines of the log that a message shows.
TAIL_LINES = 30


@dataclass(frozen=True)
class Failure:
    """A step that failed: everything that its user needs to go on."""

    name: str
    package: str
    phase: str
    error: str
    log: Path
    subdir: str = BUILD_PLATFORM

    def tail(self, lines: int = TAIL_LINES) -> list[str]:
        """The log's last lines."""
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace").splitlines()[-lines:]
        return []


def failure_error(failure: Failure) -> WorkError:
    """The message for a failed step: package, phase, last lines, log and what to type next."""
    tail = "\n".join(f"  │ {line}" for line in failure.tail())
    recipe = shlex.quote(failure.name.partition("@")[0])
    option = "" if failure.subdir == BUILD_PLATFORM else f" --platform {failure.subdir}"
    return WorkError(
        f"{failure.package}: failed in phase {failure.phase!r}: {failure.error}\n"
        f"{tail}\n  log: {failure.log}",
        f"for a shell in its build folder: ddlce debug {recipe}{option}",
    )
