"""The parts of the project: every test belongs to one."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.parts import NAMES, PARTS, part_of
from support.run import ok, run
from support.sweeps import SWEEPS

TESTS = Path(__file__).parents[1]
FILES = sorted(
    path.relative_to(TESTS.parent).as_posix()
    for kind in ("unit", "integration")
    for path in (TESTS / kind).glob("test_*.py")
)


@pytest.mark.parametrize("file", FILES)
def test_every_file_belongs_to_a_part(file: str) -> None:
    assert part_of(file) in NAMES


@pytest.mark.parametrize("part", PARTS)
def test_every_pattern_finds_a_file(part: str) -> None:
    for pattern in PARTS[part]:
        assert [*TESTS.glob(f"*/test_{pattern}.py")], pattern


def test_recipes_tests_belong_to_their_recipes() -> None:
    built = "tests/integration/test_recipe_tests_built.py::test_the_recipe_s_tests_pass"
    assert part_of(f"{built}[lms-torch/tests]") == "lms"
    assert part_of(f"{built}[ddl-torch/tests]") == "frameworks"
    assert part_of(f"{built}[ddl/tests/launch]") == "ddl"


@pytest.mark.parametrize("folder", SWEEPS)
def test_every_sweep_is_of_a_test_and_once_in_the_list(folder: str) -> None:
    assert len(set(SWEEPS[folder])) == len(SWEEPS[folder])
    for case in SWEEPS[folder]:
        file, _, name = case.partition("::")
        text = (TESTS.parent / "recipes" / folder / file).read_text()
        assert f"def {name.partition('[')[0]}(" in text, case


def collected(*options: str) -> subprocess.CompletedProcess[str]:
    return run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *options, str(TESTS / "unit")],
        cwd=TESTS.parent,
    )


def test_a_part_alone_is_collected() -> None:
    done = ok(collected("--part", "docs"))
    files = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert {part_of(file) for file in files} == {"docs"}


def test_a_part_that_is_none_is_named() -> None:
    done = collected("--part", "dll")
    assert done.returncode == 4
    assert "invalid choice: 'dll'" in done.stderr


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest takes them for one module, and collects neither folder with the other."""
    names = Counter(path.name for path in map(Path, FILES))
    assert [name for name, count in names.items() if count > 1] == []
