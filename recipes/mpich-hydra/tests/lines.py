"""`mpiexec -l`: each line of output has one rank's prefix and one rank's words."""

import re
import shutil
import subprocess
import sys

MPIEXEC = shutil.which("mpiexec") or sys.exit("no mpiexec")
RANKS = 3

# Each rank writes its lines in pieces, each piece with a system call of its own.
PIECES = r"""
import os, sys, time
rank = os.environ["PMI_RANK"]
for number in range(100):
    for piece in (f"rank {rank} ", f"says {number}", "\n"):
        os.write(int(sys.argv[1]), piece.encode())
        time.sleep(0.0005 * ((number + int(rank)) % 3))
"""


def run(program: str, *words: str, ranks: int = RANKS) -> tuple[int, bytes, bytes]:
    command = [MPIEXEC, "-l", "-n", str(ranks), sys.executable, "-c", program, *words]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


def test_lines_stay_whole() -> None:
    for fd in (1, 2):
        status, *streams = run(PIECES, str(fd))
        assert status == 0
        lines = streams[fd - 1].decode().splitlines()
        assert len(lines) == RANKS * 100, lines
        for rank in range(RANKS):
            mine = [line for line in lines if line.startswith(f"[{rank}] ")]
            assert mine == [f"[{rank}] rank {rank} says {number}" for number in range(100)], mine


def test_what_has_no_end_of_line_is_shown_at_the_end() -> None:
    for end, wanted in (("", 0), ("; sys.exit(3)", 3), ("; os.kill(os.getpid(), 9)", 9)):
        program = "import os, sys; os.write(1, b'at rank ' + os.environ['PMI_RANK'].encode())"
        status, out, _ = run(program + end)
        assert status == wanted, (end, status)
        shown = [line for line in out.decode().splitlines() if line.startswith("[")]
        # Where a rank fails, Hydra ends the others at once.
        ranks = {line[1] for line in shown}
        assert ranks == {"0", "1", "2"} if not end else ranks, (end, out)
        assert all(re.fullmatch(r"\[(\d)\] at rank \1", line) for line in shown), (end, out)


def test_progress_bars() -> None:
    """A carriage return shows the line, whether or not one follows; CR LF is one end of line."""
    status, out, _ = run("import os; os.write(1, b'1%\\r2%\\r3%\\r\\ndone\\r\\n')", ranks=1)
    assert (status, out) == (0, b"[0] 1%\r[0] 2%\r[0] 3%\r\n[0] done\r\n")


def test_a_line_without_end_is_written_in_pieces() -> None:
    """mpiexec does not keep all that a program writes: a dump without a newline passes through."""
    program = "import os, sys; sys.stdout.write('x' * (5 << 20)); sys.stdout.flush()"
    status, out, _ = run(program, ranks=1)
    assert status == 0
    assert out.count(b"x") == 5 << 20
    assert out.count(b"[0] ") == 5


def test_a_pattern_stands_before_each_piece() -> None:
    """As upstream; so a question that has no end of line is seen before it is answered."""
    ask = "import sys; sys.stdout.write('Name? '); sys.stdout.flush(); print(sys.stdin.readline())"
    command = [MPIEXEC, "-prepend-pattern", "<%r>", "-n", "1", sys.executable, "-c", ask]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdin
        assert job.stdout
        assert job.stdout.read(len("<0>Name? ")) == b"<0>Name? "
        job.stdin.write(b"you\n")
        job.stdin.close()
        assert job.stdout.read() == b"<0>you\n<0>\n"
    assert job.returncode == 0


# PMI's words as MPI_Abort writes them, after more than a proxy reads at a time.
ABORTS = r"""
import os
pmi = int(os.environ["PMI_FD"])
os.write(pmi, b"cmd=init pmi_version=1 pmi_subversion=1\n")
os.read(pmi, 1 << 10)
for fd in (1, 2):
    os.write(fd, b"x" * 65_000 + b"\n")
    os.write(fd, b"the last words of %d\n" % fd)
os.write(pmi, b"cmd=abort exitcode=7\n")
os.read(pmi, 1 << 10)
"""


def test_what_is_written_before_an_abort_is_shown() -> None:
    """mpiexec exits when it reads the abort; its proxy may not have read the ranks' pipes yet."""
    for _ in range(20):
        status, *streams = run(ABORTS, ranks=1)
        assert status == 7
        for fd, stream in enumerate(streams, 1):
            assert stream.endswith(b"[0] the last words of %d\n" % fd), stream[-80:]


# All but PMI is closed, as a daemon does it; then the word that is given.
CLOSED = r"""
import os, sys, time
pmi, word = int(os.environ["PMI_FD"]), sys.argv[1]
def ask(words):
    os.write(pmi, words.encode())
    return os.read(pmi, 1 << 10)
ask("cmd=init pmi_version=1 pmi_subversion=1\n")
os.closerange(0, pmi)
os.closerange(pmi + 1, 64)
time.sleep(0.3)  # until the proxy has seen that
if word == "kill" and os.environ["PMI_RANK"] == "0":
    os.kill(os.getpid(), 9)
ask("cmd=abort exitcode=7\n" if word == "abort" else "cmd=barrier_in\n")
ask("cmd=finalize\n")
"""


def test_ranks_without_output_meet_abort_and_are_ended() -> None:
    for word, wanted in (("barrier", 0), ("abort", 7), ("kill", 9)):
        status, *_ = run(CLOSED, word)
        assert status == wanted, (word, status)


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        test()
        print("passed", name)
