"""Fills a cache from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddlce.cache.statement import Refused, check_statement, make_statement, statement_path
from ddlce.files import explain_os_errors, link_or_copy, make_folder, write_atomic
from ddlce.ownership import check_place
from ddlce.plan import Plan
from ddlce.store import Store
from ddlce.waiting import OnWait, waiting_lock

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner


def push(
    plan: Plan,
    store: Store,
    folder: Path,
    signers: Sequence[CryptoSigner],
    *,
    report: Callable[[str], None] = lambda _: None,
    on_wait: OnWait | None = None,
) -> int:
    """Put what the plan has built into a cache, unless it is there, signed by these keys.

    Args:
        plan: those of its steps that are built are pushed.
        signers: the builder's keys.
        report: called with the name of each recipe that is pushed.

    Returns:
        How many recipes were pushed.

    Raises:
        MachineError: the folder cannot be written, or others could change it.
    """
    check_place(folder, "the cache")
    with explain_os_errors(folder):
        make_folder(folder)
    pushed = 0
    with waiting_lock(folder / ".lock", on_wait):
        for step in plan.steps.values():
            target = folder / statement_path(step.digest)
            if not step.reuse:
                continue
            try:
                keys = [signer.public_key for signer in signers]
                check_statement(target.read_bytes(), step, keys)
                continue
            except (OSError, Refused):
                pass
            for output in step.outputs:
                path = store.package(output.subdir, output.filename)
                link_or_copy(path, folder / output.subdir / output.filename)
            record = store.last_build(step.record_name)
            seconds = record.seconds if record and record.digest == step.digest else 0.0
            write_atomic(target, make_statement(step, store.folder, seconds, signers))
            report(step.name)
            pushed += 1
    return pushed
