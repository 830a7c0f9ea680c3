"""Taking Hydra's marked output apart, however it is cut."""

import os
import random
import sys
from pathlib import Path

from ddl.launch.bind import cores_by_node
from ddl.launch.hydra import MarkedStream, escape
from ddl.launch.rank import unescape

MARK = "<0123456789ab:"
STREAM = (
    b"<0123456789ab:0>whole line\n"
    b"<0123456789ab:12>torn <0123456789ab:0>with < inside and <0123456789a\n"
    b"<0123456789ab:12>apart\n"
    b"[mpiexec] own words <01\n"
    b"<0123456789ab:0>last, without a newline"
)


def by_rank(pieces: list[tuple[int | None, bytes]]) -> dict[int | None, bytes]:
    found: dict[int | None, bytes] = {}
    for rank, piece in pieces:
        found[rank] = found.get(rank, b"") + piece
    return found


def test_every_cut_gives_the_same() -> None:
    expected = {
        0: b"whole line\nwith < inside and <0123456789a\nlast, without a newline",
        12: b"torn apart\n",
        None: b"[mpiexec] own words <01\n",
    }
    assert by_rank(list(MarkedStream(MARK).feed(STREAM))) == expected
    for cut in range(len(STREAM)):
        stream = MarkedStream(MARK)
        assert by_rank([*stream.feed(STREAM[:cut]), *stream.feed(STREAM[cut:])]) == expected
    generator = random.Random(1)
    for _ in range(200):
        stream, pieces, rest = MarkedStream(MARK), [], STREAM
        while rest:
            size = generator.randrange(1, 9)
            pieces += stream.feed(rest[:size])
            rest = rest[size:]
        assert by_rank(pieces) == expected


def test_words_survive_mpiexec() -> None:
    for word in (":", "\\:", "\\\\:", "a:", ":b", "", "\\", "::"):
        assert unescape(escape(word)) == word
        assert escape(word) != ":"


def test_cores_are_those_we_may_use() -> None:
    nodes = cores_by_node(os.sched_getaffinity(0)).values()
    cpus = [cpu for cores in nodes for core in cores for cpu in core]
    assert sorted(cpus) == sorted(os.sched_getaffinity(0))


def test_import_is_light() -> None:
    """ddlrun starts on machines where MPI does not, and at once."""
    import subprocess

    code = "import sys, ddl.launch.cli, ddl.launch.run, ddl.launch.hydra; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"numpy", "torch", "argparse", "asyncio", "multiprocessing", "mpi4py", "ddl._ddl"}
    assert not heavy & set(modules)
    assert not [name for name in modules if name.startswith("ddl.") and "launch" not in name]


def test_no_file_of_the_launcher_is_missing() -> None:
    from ddl.launch.hydra import WRAPPER

    assert Path(WRAPPER).is_file()
