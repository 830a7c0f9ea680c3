"""Commands that are killed before any system call that changes a file, or whose disk fails.

After each of them the same command is run again: everything must be as after a run that nobody
disturbed, and nothing left over. The short form takes some of the calls, the long one every one.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.killing import Machine, possible
from support.scenes import SCENES, Scene, snapshot

pytestmark = pytest.mark.skipif(not possible(), reason="this kernel asks no supervisor (seccomp)")

#: Of the short form: each command is killed about so often.
POINTS = 3
FAULTS = {"killed": 0, "no space": errno.ENOSPC, "broken disk": errno.EIO}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.close()


def problems_at(scene: Scene, machine: Machine, at: int, code: int, wanted: dict[str, str]) -> str:
    """What is wrong after a command has ended at a call and has been run again; "" if nothing."""
    scene.restore()
    ended = scene.run(machine, at, code)
    found = []
    if code and ended.status and ("error: " not in ended.said or "Traceback" in ended.said):
        found.append(f"said {ended.said[-500:]!r}")
    try:
        scene.whole(scene.folder)
    except (AssertionError, OSError, ValueError) as error:
        found.append(f"half-made: {error!r}")
    again = scene.run(machine)
    if again.status not in (0, scene.done):
        found.append(f"again: {again.status}, {again.said[-500:]!r}")
    there = snapshot(scene.folder)
    changed = {path for path in wanted.keys() | there.keys() if wanted.get(path) != there.get(path)}
    if changed:
        found.append(f"other than it should be: {sorted(changed)[:5]}")
    return f"{scene.name}, call {at} ({ended.last}): {'; '.join(found)}" if found else ""


def try_points(scene: Scene, machine: Machine, points: int | None, code: int) -> int:
    """Try every call, or some of them; how many."""
    scene.keep()
    undisturbed = scene.run(machine)
    assert undisturbed.status == 0, undisturbed.said
    assert undisturbed.calls > 4
    wanted = snapshot(scene.folder)
    step = 1 if points is None else max(1, undisturbed.calls // points)
    chosen = range(1 + step // 2 if points else 1, undisturbed.calls + 1, step)
    found = [problems_at(scene, machine, at, code, wanted) for at in chosen]
    assert not any(found), "\n".join(filter(None, found))
    return len(chosen)


@pytest.mark.parametrize("name", ["create", "clone", "remove", "fetch", "image"])
def test_some_calls(tmp_path: Path, machine: Machine, name: str) -> None:
    scene = SCENES[name](tmp_path / name)
    try_points(scene, machine, POINTS, 0)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCENES)
def test_every_call(tmp_path: Path, machine: Machine, name: str, fault: str) -> None:
    scene = SCENES[name](tmp_path / name)
    tried = try_points(scene, machine, None, FAULTS[fault])
    print(f"{name}, {fault}: {tried} points, all whole, nothing left over")
