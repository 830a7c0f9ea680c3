"""Commands that are killed before any system call that changes a file, or whose disk fails.

After each of them the same command is run again: everything must be as after a run that nobody
disturbed, and nothing left over. The short form takes some of the calls, the long one every one.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest

from support.killing import Ended, Machine, possible
from support.scenes import SCENES, Scene, snapshot

pytestmark = pytest.mark.skipif(not possible(), reason="this kernel asks no supervisor (seccomp)")

#: Of the short form: each command is disturbed about so often.
POINTS = 3
#: Fetching without them is only slower: a note that a file was hashed, and what was downloaded so
#: far, which the next run removes. So it does with what a bundle has unpacked, where `rm` failed.
NOTES = re.compile(r"^cache/sources/[^/]+/\.(verified$|partial)|^root/\.unpack-")
#: How many calls there are → which of them, from 1, and the error code: `Machine.run`.
Choose = Callable[[int], list[tuple[int, int]]]
FAULTS = {"killed": 0, "no space": errno.ENOSPC, "broken disk": errno.EIO}
#: Points of the long form after which something was not whole, which the short form has too.
FOUND = {"index": [(64, errno.EIO)]}  # a folder of the index's engine stayed in the channel


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
    )


def is_said(said: str) -> bool:
    """Whether an output has one message, and nothing for developers."""
    return len(re.findall("^error: ", said, re.MULTILINE)) == 1 and "Traceback" not in said


def problems_at(scene: Scene, machine: Machine, ended: Ended, wanted: dict[str, str]) -> list[str]:
    """What is wrong after a command has ended at a call and has been run again."""
    found = []
    if ended.status == 0:
        changed = [path for path in difference(scene, wanted) if not NOTES.search(path)]
        found += [f"ended well, but: {changed[:5]}"] * bool(changed)
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
        found.append(f"other than it should be: {changed[:5]}")
    return found


def try_points(scene: Scene, machine: Machine, choose: Choose) -> Row:
    """Try some of the calls, or every one."""
    scene.keep()
    undisturbed = scene.run(machine)
    assert undisturbed.status == 0, undisturbed.said
    assert undisturbed.calls > 4
    wanted = snapshot(scene.folder)
    row = Row(undisturbed.calls)
    for at, code in choose(row.calls):
        scene.restore()
        ended = scene.run(machine, at, code)
        row.tried += bool(ended.last)
        row.said += ended.status > 0
        if found := problems_at(scene, machine, ended, wanted):
            row.found.append(f"{scene.name}, call {at} ({ended.last}): {'; '.join(found)}")
    return row


def some_points(calls: int) -> list[tuple[int, int]]:
    """Points that lie evenly, and every kind of fault in turn."""
    step = max(1, calls // POINTS)
    return list(zip(range(1 + step // 2, calls + 1, step), cycle(FAULTS.values()), strict=False))


@pytest.mark.parametrize("name", SCENES)
def test_some_calls(tmp_path: Path, machine: Machine, name: str) -> None:
    scene = SCENES[name](tmp_path / name)
    row = try_points(scene, machine, lambda calls: [*some_points(calls), *FOUND.get(name, [])])
    assert not row.found, "\n".join(row.found)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCENES)
def test_every_call(tmp_path: Path, machine: Machine, name: str, fault: str) -> None:
    scene = SCENES[name](tmp_path / name)
    code = FAULTS[fault]
    row = try_points(scene, machine, lambda calls: [(at, code) for at in range(1, calls + 1)])
    print(f"{name}, {fault}: {row}")
    assert not row.found, "\n".join(row.found)
