"""Takes packages from a cache instead of building them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

import requests
from urllib3.exceptions import HTTPError

from ddlce.cache.statement import LARGEST, File, Refused, check_statement, statement_path
from ddlce.errors import SourceError
from ddlce.files import explain_os_errors, make_folder, partial_name, rename_synced, sync_path
from ddlce.locks import locked
from ddlce.plan import Plan, Step, is_built
from ddlce.store import Store
from ddlce.weberror import innermost

if TYPE_CHECKING:
    from securesystemslib.signer import Key

#: Packages at once; and seconds until a server answers.
THREADS, TIMEOUT_S = 4, 30
BLOCK = 1 << 20


@dataclass(frozen=True)
class Cache:
    """Where packages are taken from.

    Attributes:
        address: a URL, `file://` for a folder.
        keys: of whom it is believed.
    """

    address: str
    keys: Sequence[Key]


def take(
    plan: Plan, store: Store, cache: Cache, refuse: Callable[[Step, str], None]
) -> tuple[Plan, int]:
    """Bring into the store what the plan would build and the cache has.

    Args:
        refuse: called with each step whose entry is refused, and why. It is to be built here.

    Returns:
        The plan, in which the steps that were taken are reused, and how many these are.

    Raises:
        SourceError: the cache cannot be reached.
        MachineError: the store cannot be written.
    """

    def one(step: Step) -> bool:
        try:
            return _take_step(step, store, cache)
        except Refused as error:
            refuse(step, str(error))
            return False

    todo = plan.to_build
    with ThreadPoolExecutor(THREADS) as pool:
        results = pool.map(one, todo)
        try:
            taken = [step.name for step, done in zip(todo, results, strict=True) if done]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    steps = {
        name: replace(step, reuse=True, why=()) if name in taken else step
        for name, step in plan.steps.items()
    }
    return replace(plan, steps=steps), len(taken)


def _take_step(step: Step, store: Store, cache: Cache) -> bool:
    """Take the packages of one step; False where the cache has none, or another is building it."""
    data = b""
    with _opened(cache, statement_path(step.digest)) as blocks:
        if blocks is None:
            return False
        for block in blocks:
            data += block
            if len(data) > LARGEST:
                raise Refused("its statement has no end")
    files, seconds = check_statement(data, step, cache.keys)
    try:
        with locked(store.lock_file(step.digest), wait=False):
            if is_built(store, step.digest, step.outputs):
                return True
            for name, file in files.items():
                _fetch(cache, name, file, store.folder / name)
            store.remember(step.record_name, step.digest, step.parts, [*files], seconds)
    except BlockingIOError:
        return False
    return True


def _fetch(cache: Cache, name: str, file: File, target: Path) -> None:
    """Bring one package; it has its name when it is the one that is signed."""
    partial = partial_name(target)
    with explain_os_errors(target):
        make_folder(target.parent)
        partial.unlink(missing_ok=True)
        try:
            digest, size = hashlib.sha256(), 0
            with _opened(cache, name) as blocks, partial.open("xb") as stream:
                if blocks is None:
                    raise Refused(f"{name} is missing")
                for block in blocks:
                    size += len(block)
                    if size > file.size:
                        break
                    digest.update(block)
                    stream.write(block)
            if (size, digest.hexdigest()) != (file.size, file.sha256):
                raise Refused(f"{name} is not the signed one")
            partial.chmod(0o644)
            sync_path(partial)
            rename_synced(partial, target)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(cache: Cache, name: str) -> Iterator[Iterator[bytes] | None]:
    """The bytes of a file of the cache; None where it is not there."""
    parts = urlsplit(cache.address)
    if parts.scheme == "file":
        try:
            stream = Path(unquote(parts.path), name).open("rb")  # noqa: SIM115  closed below
        except FileNotFoundError:
            yield None
            return
        with stream:
            yield iter(lambda: stream.read(BLOCK), b"")
        return
    url = f"{cache.address}/{quote(name)}"
    try:
        with requests.get(
            url, headers={"Accept-Encoding": "identity"}, stream=True, timeout=TIMEOUT_S
        ) as response:
            if response.status_code == requests.codes.not_found:
                yield None
            elif not response.ok:
                raise SourceError(f"{url}: HTTP {response.status_code}", "see the cache's server")
            else:
                yield response.iter_content(BLOCK)
    except (requests.RequestException, HTTPError) as error:
        raise SourceError(
            f"{url}: {innermost(error)}", "see whether the cache's server works"
        ) from error
