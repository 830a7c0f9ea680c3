"""A build's sources: the engine reads bytes that have been hashed, and nobody can change them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ddlce.builder.job import Job
from ddlce.builder.worker import own_source
from ddlce.errors import SourceError

DATA = b"some bytes\n"
DIGEST = hashlib.sha256(DATA).hexdigest()


def job(tmp_path: Path, mode: int) -> Job:
    stored = tmp_path / "store" / DIGEST / "x-1.tar.gz"
    stored.parent.mkdir(parents=True)
    stored.write_bytes(DATA)
    stored.chmod(mode)
    return Job.model_construct(staging=tmp_path / "staging", sources={DIGEST: stored})


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_a_source_in_the_jobs_own_folder(tmp_path: Path, mode: int) -> None:
    made = job(tmp_path, mode)
    path = own_source(made, DIGEST)
    assert path.is_relative_to(made.staging)
    assert path.name == "x-1.tar.gz"
    assert path.stat().st_mode & 0o022 == 0
    assert path.samefile(made.sources[DIGEST]) == (mode == 0o644)
    made.sources[DIGEST].unlink()
    made.sources[DIGEST].write_bytes(b"evil bytes\n")
    assert path.read_bytes() == DATA


def test_a_source_that_is_not_the_locked_one(tmp_path: Path) -> None:
    made = job(tmp_path, 0o644)
    made.sources[DIGEST].write_bytes(b"evil bytes\n")
    with pytest.raises(SourceError, match=r"x-1\.tar\.gz: not the locked bytes") as caught:
        own_source(made, DIGEST)
    assert caught.value.hint == "ddlce fetch"
