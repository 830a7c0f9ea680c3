"""`ddlrun -stage`: the environment is brought to each host's own disk, and the job runs from there.

One `ddl-stage` runs on each host. It sends the image by libddl's broadcast and unpacks it (see
stage/main.cc). Then this process becomes the local copy's ddlrun, with the local prefix in place of
the shared one in its words and variables. So all that it starts, the launcher of MPI and the ranks'
wrapper too, is the local copy's.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ddl.launch.errors import LaunchError
from ddl.launch.hosts import is_local
from ddl.launch.hydra import HydraLauncher
from ddl.launch.image import Image, find_image, own_prefix
from ddl.launch.layout import Job, staging_options
from ddl.launch.options import KEEP_DAYS, Options
from ddl.launch.outcome import say
from ddl.launch.overlay import local_overlay, overlay_of
from ddl.launch.run import die_with_parent

KEEP_VARIABLE = "DDL_STAGE_KEEP"
DAY = 86400
EXIT_FAULT = 2  # of ddl-stage: its words on stdout say what is wrong on which host


class Staging:
    """The staging of one job.

    Attributes:
        image: what is brought to the hosts.
    """

    def __init__(self, options: Options, job: Job, environ: Mapping[str, str]) -> None:
        self._prefix = own_prefix()
        self._program = self._prefix / "bin" / "ddl-stage"
        self.image: Image = find_image(options.stage_image, environ, self._prefix)
        if not self._program.is_file():
            raise LaunchError(f"-stage: there is no {self._program}", "Reinstall the release.")
        if not any(is_local(host) for host in job.hosts):
            raise LaunchError(
                "-stage: ddlrun must run on one of the job's hosts, and this is none of them",
                "Start it there, for example by the batch script.",
            )
        self._launcher = HydraLauncher(options)
        self._command = options.command
        self._job = replace(
            job,
            command=self._words(keep_days(options, environ)),
            placement=tuple(range(len(job.hosts))),
            environment={**job.environment, "DDL_OPTIONS": staging_options(options, job)},
            min_ranks=None,
            chief=None,
        )

    def command(self) -> list[str]:
        """The mpiexec command line that stages."""
        return self._launcher.direct_command(self._job)

    def run(self, *, is_verbose: bool) -> None:
        """Stage the image on all hosts.

        Raises:
            LaunchError: what is wrong, on which host; nothing half-unpacked is left.
        """
        self._launcher.check(self._job)
        begin = time.monotonic()
        with subprocess.Popen(
            self.command(),
            env=self._launcher.environment(self._job),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,
        ) as process:
            try:
                stdout, stderr = process.communicate()
            except BaseException:
                process.terminate()
                process.wait()
                raise
        said = b"".join(
            piece for rank, piece in self._launcher.demultiplexer().feed(stdout) if rank == 0
        )
        lines = said.decode(errors="replace").splitlines()
        if process.returncode:
            self._explain(process.returncode, lines, stderr)
        if is_verbose and lines:
            hosts, unpacked, evicted = lines[-1].split()
            say(
                f"staged {self.image.name} on {hosts} hosts in {time.monotonic() - begin:.1f} s: "
                f"unpacked on {unpacked}, removed {evicted} old images"
            )

    def restart(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        """Become the local copy's ddlrun; does not return.

        Args:
            words: ddlrun's own, without the options of staging.
            environ: the variables that it was called with.
        """
        aliases = aliases_of(self._prefix, environ)
        local = self.image.prefix
        program = f"{local}/bin/ddlrun"
        overlay = overlay_of(self._command, environ, self._prefix)
        moved = [moved_path(word, aliases, local) for word in words]
        variables = moved_environment(environ, aliases, local)
        if overlay:
            moved, variables = local_overlay(overlay, moved, variables, local)
        os.execve(program, [program, *moved], variables)

    def _words(self, days: float) -> tuple[str, ...]:
        image = self.image
        said = {
            "image": str(image.path.absolute()),
            "sha256": image.sha256,
            "size": image.size,
            "unpacked": image.unpacked,
            "files": image.files,
            "place": image.place,
            "name": image.name,
            "keep": round(days * DAY),
        }
        words = [word for name, value in said.items() for word in (f"--{name}", str(value))]
        return (str(self._program), *words)

    def _explain(self, status: int, lines: list[str], stderr: bytes) -> None:
        if status == EXIT_FAULT and lines:
            others = f" ({len(lines) - 1} more hosts have a fault)" if len(lines) > 1 else ""
            raise LaunchError(f"cannot stage {self.image.path.name}: {lines[0]}{others}")
        words = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
        raise LaunchError(
            f"cannot stage {self.image.path.name}: {words[0] if words else f'exit {status}'}",
            f"It was started by: {shlex.join(self.command()[:6])} ...",
        )


def check_words(options: Options, environ: Mapping[str, str]) -> None:
    """LaunchError where staging cannot go well, whatever the hosts of the job are."""
    keep_days(options, environ)
    find_image(options.stage_image, environ, own_prefix())


def stage_and_restart(options: Options, job: Job, words: Sequence[str]) -> int:
    """Stage, then run the job from the local copy; returns only if it is interrupted."""
    staging = Staging(options, job, os.environ)
    if options.dry_run or options.verbose:
        file = sys.stdout if options.dry_run else sys.stderr
        print(shlex.join(staging.command()), file=file, flush=True)
    if options.dry_run:
        return 0
    try:
        staging.run(is_verbose=options.verbose)
    except KeyboardInterrupt:
        say("interrupted while staging")
        return 130
    staging.restart(without_staging(options, words), os.environ)
    raise AssertionError("exec has returned")


def keep_days(options: Options, environ: Mapping[str, str]) -> float:
    """For how long an unused image stays: `-stage_keep`, else DDL_STAGE_KEEP, else a week."""
    if options.stage_keep is not None:
        return options.stage_keep
    text = environ.get(KEEP_VARIABLE) or str(KEEP_DAYS)
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days < 1e5:
        raise LaunchError(f"{KEEP_VARIABLE}={text}: not a number of days from 0")
    return days


def without_staging(options: Options, words: Sequence[str]) -> list[str]:
    """ddlrun's words without the options of staging."""
    end = len(words) - len(options.command)
    kept: list[str] = []
    is_value = False
    for word in words[:end]:
        key, equals, _ = word.partition("=")
        name = key.lstrip("-").replace("-", "_")
        if is_value or (key.startswith("-") and name in ("stage", "stage_keep")):
            is_value = not is_value and name == "stage_keep" and not equals
        else:
            kept.append(word)
    return [*kept, *words[end:]]


def aliases_of(prefix: Path, environ: Mapping[str, str]) -> list[str]:
    """The paths by which variables name the prefix, as modules and `current` do."""
    folders = [path for path in environ.get("PATH", "").split(os.pathsep) if path[:1] == "/"]
    found = {str(prefix), sys.prefix}
    found |= {str(Path(f).parent) for f in folders if os.path.realpath(f) == f"{prefix}/bin"}
    active = environ.get("CONDA_PREFIX", "")
    if active[:1] == "/" and os.path.realpath(active) == str(prefix):
        found.add(active.rstrip("/"))
    return sorted(found, key=len, reverse=True)


def moved_path(text: str, aliases: Sequence[str], local: str) -> str:
    """A path in the prefix as it is in the local copy; any other text as it is."""
    for alias in aliases:
        if text == alias or text.startswith(f"{alias}/"):
            return local + text[len(alias) :]
    return text


def moved_environment(
    environ: Mapping[str, str], aliases: Sequence[str], local: str
) -> dict[str, str]:
    """Variables with the local copy in place of the prefix, in lists of paths too."""
    return {
        name: os.pathsep.join(moved_path(part, aliases, local) for part in value.split(os.pathsep))
        for name, value in environ.items()
    }
