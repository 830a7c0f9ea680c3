"""What several programs do."""

from __future__ import annotations

import threading
from collections.abc import Callable

import ddl


def error_of(call: Callable[[], object]) -> str:
    """What the call raises; "no error" when it raises nothing."""
    try:
        call()
    except ddl.DDLError as error:
        return f"{error.code.name}: {error}"
    return "no error"


def in_threads(tasks: list[Callable[[], None]]) -> None:
    """Runs each in a thread of its own; raises the first failure."""
    failures: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
