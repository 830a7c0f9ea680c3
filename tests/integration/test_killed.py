"""Commands that are killed before any system call that changes a file, or whose disk fails.

After each of them the same command is run again: everything must be as after a run that nobody
disturbed, and nothing left over. The short form takes some of the calls, the long one every one.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.killing import Ended, Machine, possible
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


@dataclass
class Row:
    """How one command took one kind of fault.

    Attributes:
        calls: how many calls an undisturbed run makes that change a file.
        tried: before how many of them a run ended, or how many failed.
        said: after how many the command ended with one message.
        found: what is wrong, for each that is not whole, or said nothing.
    """

    calls: int
    tried: int = 0
    said: int = 0
    found: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        whole = self.tried - len(self.found)
        return f"{self.calls} calls, {self.tried} tried, {self.said} messages, {whole} whole"


def difference(scene: Scene, wanted: dict[str, str]) -> list[str]:
    """Some of the paths that are not as after an undisturbed run."""
    there = snapshot(scene.folder)
    return sorted(
        path for path in wanted.keys() | there.keys() if wanted.get(path) != there.get(path)
    )[:5]


def is_said(said: str) -> bool:
    """Whether an output has one message, and nothing for developers."""
    return len(re.findall("^error: ", said, re.MULTILINE)) == 1 and "Traceback" not in said


def problems_at(scene: Scene, machine: Machine, ended: Ended, wanted: dict[str, str]) -> list[str]:
    """What is wrong after a command has ended at a call and has been run again."""
    found = []
    if ended.status == 0 and (changed := difference(scene, wanted)):
        found.append(f"ended well, but: {changed}")
    if ended.status > 0 and not is_said(ended.said):
        found.append(f"said {ended.said[-500:]!r}")
    try:
        scene.whole(scene.folder)
    except (AssertionError, OSError, ValueError) as error:
        found.append(f"half-made: {error!r}")
    again = scene.run(machine)
    if again.status not in (0, scene.done):
        found.append(f"again: {again.status}, {again.said[-500:]!r}")
    if changed := difference(scene, wanted):
        found.append(f"other than it should be: {changed}")
    return found


def try_points(scene: Scene, machine: Machine, points: int | None, code: int) -> Row:
    """Try every call, or some of them."""
    scene.keep()
    undisturbed = scene.run(machine)
    assert undisturbed.status == 0, undisturbed.said
    assert undisturbed.calls > 4
    wanted = snapshot(scene.folder)
    row = Row(undisturbed.calls)
    step = 1 if points is None else max(1, row.calls // points)
    for at in range(1 + step // 2 if points else 1, row.calls + 1, step):
        scene.restore()
        ended = scene.run(machine, at, code)
        row.tried += bool(ended.last)
        row.said += ended.status > 0
        if found := problems_at(scene, machine, ended, wanted):
            row.found.append(f"{scene.name}, call {at} ({ended.last}): {'; '.join(found)}")
    return row


@pytest.mark.parametrize("name", ["create", "clone", "remove", "fetch", "image"])
def test_some_calls(tmp_path: Path, machine: Machine, name: str) -> None:
    scene = SCENES[name](tmp_path / name)
    row = try_points(scene, machine, POINTS, 0)
    assert not row.found, "\n".join(row.found)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCENES)
def test_every_call(tmp_path: Path, machine: Machine, name: str, fault: str) -> None:
    scene = SCENES[name](tmp_path / name)
    row = try_points(scene, machine, None, FAULTS[fault])
    print(f"{name}, {fault}: {row}")
    assert not row.found, "\n".join(row.found)
