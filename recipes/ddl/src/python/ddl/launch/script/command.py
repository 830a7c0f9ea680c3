"""`ddlrun -script`: writes the script, and submits it where that is asked for."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ddl.launch.errors import LaunchError
from ddl.launch.options import Options
from ddl.launch.own import find_program
from ddl.launch.script.request import read_request
from ddl.launch.script.systems import System
from ddl.launch.script.text import script_text

SECONDS = 120  # for the batch system's answer
REASON_LINES = 3  # of its words, the last ones


def run_script(options: Options, environ: Mapping[str, str]) -> str:
    """Does what the options of a batch script ask for.

    Returns:
        The text for standard output: the script, the job's number, or nothing.

    Raises:
        LaunchError: wrong options, a file that is there already, or a refused job.
    """
    request = read_request(options)
    text = script_text(request, environ)
    output = Path(options.batch["output"]) if "output" in options.batch else None
    program = _program(request.system) if "submit" in options.batch else None
    if output:
        write_new(output, text)
    if program:
        return submit(request.system, program, text) + "\n"
    return "" if output else text


def write_new(path: Path, text: str) -> None:
    """Writes a file that only its owner reads: a command line may hold secrets.

    Raises:
        LaunchError: the file is there already, or cannot be written; nothing of it is left then.
    """
    temporary: str | None = None
    try:
        file, temporary = tempfile.mkstemp(dir=path.parent, prefix=".ddlrun-")
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.link(temporary, path)  # fails where there is a file, unlike a rename
    except FileExistsError:
        raise LaunchError(f"-output {path}: the file exists", "Remove it first.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LaunchError(f"-output {path}: cannot write the file: {reason}") from None
    finally:
        if temporary:
            Path(temporary).unlink()


def submit(system: System, program: str, text: str) -> str:
    """Hands a script to the batch system; the job's number.

    Args:
        program: the path of its program.

    Raises:
        LaunchError: the program refuses the script, or has not answered.
    """
    command = [program, *system.submit[1:]]
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"{system.submit[0]} has not answered within {SECONDS} s",
            "The job may be submitted all the same: look into the queue.",
        ) from None
    except OSError as error:
        raise LaunchError(f"cannot run {program}: {error.strerror}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        said = " / ".join(line.strip() for line in lines[-REASON_LINES:]) or "no reason"
        raise LaunchError(
            f"{system.submit[0]} refuses the job (exit status {done.returncode}): {said}",
            "Without -submit, the script is shown.",
        )
    match = system.number.search(done.stdout)
    if not match:
        raise LaunchError(
            f"{system.submit[0]} names no job: '{done.stdout.strip()}'",
            "The job may be submitted all the same: look into the queue.",
        )
    return match[1]


def _program(system: System) -> str:
    found = find_program(system.submit[0])
    if not found:
        raise LaunchError(
            f"-submit: {system.submit[0]} of {system.title} is not on PATH",
            "Run this on a host that submits jobs, or leave -submit out and take the script there.",
        )
    return found
