"""Running a piece of rattler in a process of its own.

rattler's runtime aborts while the interpreter shuts down in about one run of seven. A worker
therefore prints its answer as a line of JSON and leaves without shutting down, and what counts
is the answer, not the exit status.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddlce.errors import WorkError
from ddlce.programs import own_python
from ddlce.waiting import OnWait

#: Where Debian, Red Hat and SUSE have the certificates of authorities (openssl-probe's list).
BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)

#: Called with (done, total, what) while the worker works.
OnProgress = Callable[[int, int, str], None]


class WorkerError(Exception):
    """rattler's own error, carried over from the worker.

    Attributes:
        kind: the name of the exception's class, e.g. `SolverError`.
        text: its message.
        hint: what to do, of an error that was designed here.
    """

    def __init__(self, kind: str, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.hint = hint


def call(
    module: str,
    request: dict[str, Any],
    progress: OnProgress | None = None,
    on_wait: OnWait | None = None,
) -> Any:
    """Run `python -m module` with `request` and return its answer.

    Args:
        module: what calls `serve`.

    Raises:
        WorkerError: the worker's function raised.
        WorkError: the worker died without an answer.
    """
    # A file, not a pipe: a worker that says much must not wait for somebody to read it.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as complaints,
        subprocess.Popen(
            own_python("-m", module),
            env={**os.environ, **certificates()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        ) as process,
    ):
        try:
            answer = _converse(process, request, progress, on_wait)
        except BaseException:
            process.kill()
            raise
        process.wait()
        complaints.seek(0)
        complaint = complaints.read()
    if answer is None:
        last = (complaint.strip().splitlines() or ["no message"])[-1]
        raise WorkError(
            f"{module} ended with status {process.returncode} and no answer: {last}",
            "run the command again; if it happens again, report it with this message",
        )
    if "error" in answer:
        raise WorkerError(*answer["error"])
    return answer["answer"]


def _converse(
    process: subprocess.Popen[str],
    request: dict[str, Any],
    progress: OnProgress | None,
    on_wait: OnWait | None,
) -> dict[str, Any] | None:
    """Give a worker its request and listen to the end; its last word, if it says any."""
    assert process.stdin is not None
    assert process.stdout is not None
    answer: dict[str, Any] | None = None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request))
        process.stdin.close()
    for line in process.stdout:
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if "progress" in message and progress:
                progress(*message["progress"])
            elif "waiting" in message and on_wait:
                on_wait(message["waiting"])
            elif "answer" in message or "error" in message:
                answer = message
    return answer


def certificates() -> dict[str, str]:
    """The variable that names certificate authorities, on a machine that has none; else nothing.

    rattler ends with a panic where it finds none, whatever the channel's address.
    """
    told = {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys()
    if told or any(bundle.is_file() for bundle in BUNDLES):
        return {}
    from requests.utils import DEFAULT_CA_BUNDLE_PATH  # slow to import, and seldom needed

    return {"SSL_CERT_FILE": DEFAULT_CA_BUNDLE_PATH}


def serve(function: Callable[[dict[str, Any]], Any]) -> None:
    """The worker's side: answer the one request on standard input, then leave at once."""
    try:
        message = {"answer": function(json.load(sys.stdin))}
    except Exception as error:  # the caller turns it into a designed message
        message = {"error": [type(error).__name__, str(error), getattr(error, "hint", None)]}
    say(message)
    os._exit(0)


def say(message: dict[str, Any]) -> None:
    """Write one line to the caller."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
