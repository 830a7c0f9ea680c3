"""The words that ranks share in libddl, under Relacy: any order that C++'s memory model allows.

x86 orders more than the language promises, and qemu shows no more than x86 does.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from support.run import run

DDL = Path(__file__).parents[2] / "recipes" / "ddl"
TESTS = DDL / "tests" / "memory_model"
ORDERS = 200_000  # of each hand-over, at random; the weakest fault below takes some 5,000

pytestmark = [
    pytest.mark.skipif(
        not Path("/usr/include/relacy/relacy.hpp").exists(),
        reason="Relacy is not installed (apt-get install relacy-dev)",
    ),
    pytest.mark.timeout(300),
]

FILES = ("base/wait.h", "base/wait.cc", "transport/shared_words.h")
FENCE = "  std::atomic_thread_fence(std::memory_order_seq_cst);\n"

#: A file, its orders, and weaker ones, each of which x86 would forgive but for the fences. Not the
#: load of a mail: the fence of `wake`, which follows it, would do for that one too.
WEAKER = {
    "the flag's store": ("base/wait.h", ".store(next, std::memory_order_release", "relaxed"),
    "the flag's load": ("base/wait.h", ".load(std::memory_order_acquire", "relaxed"),
    "the mail's store": (FILES[2], ".store(arrived, std::memory_order_release", "relaxed"),
    "the waker's fence": ("base/wait.cc", f"{FENCE}  if (sleepers", "acq_rel"),
    "the sleeper's fence": ("base/wait.cc", f"{FENCE}  const std::uint32_t seen", "acq_rel"),
}


def program(folder: Path, library: Path = DDL / "src/lib") -> Path:
    """The test's program, of libddl's files in `library` and, where they are not there, its own."""
    built = folder / "memory_model_test"
    sources = [TESTS / "memory_model_test.cc", DDL / "src/lib/base/cpus.cc"]
    includes = [f"-I{path}" for path in (TESTS, library, DDL / "src/lib", DDL / "src/include")]
    flags = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror")
    done = run(["g++", *flags, *includes, *sources, "-o", built])
    assert done.returncode == 0, done.stderr
    return built


def test_every_order_of_steps_is_right(tmp_path: Path) -> None:
    done = run([program(tmp_path), str(ORDERS)])
    assert done.returncode == 0, done.stdout[-8000:]
    assert done.stdout.count(f"iterations: {ORDERS}") == 3


@pytest.mark.slow
@pytest.mark.parametrize("what", WEAKER)
def test_a_weaker_order_is_found(what: str, tmp_path: Path) -> None:
    name, text, order = WEAKER[what]
    library = tmp_path / "lib"
    for file in FILES:
        (library / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DDL / "src/lib" / file, library / file)
    before = (library / name).read_text()
    assert before.count(text) == 1
    weaker = re.sub(r"memory_order_\w+", f"memory_order_{order}", text, count=1)
    (library / name).write_text(before.replace(text, weaker))
    assert run([program(tmp_path, library), str(ORDERS)]).returncode == 1
