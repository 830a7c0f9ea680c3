"""Real runs over the real mpiexec on this host."""

import hashlib
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import DDLRUN, Result

Run = Callable[..., Result]

SHOW = """
import json, os, sys
names = sys.argv[1].split()
print(json.dumps([
    {name: os.environ.get(name) for name in names}, sys.argv[2:], sorted(os.sched_getaffinity(0))
]))
"""


def show(result: Result) -> list[tuple[dict[str, str | None], list[str], list[int]]]:
    """What SHOW printed, by rank."""
    assert result.returncode == 0, result.stderr
    found = re.findall(r"^\[(\d+)@[^\]]+\] (.*)$", result.stdout, re.M)
    return [json.loads(text) for _, text in sorted(found, key=lambda pair: int(pair[0]))]


def test_success_is_silent(ddlrun: Run) -> None:
    result = ddlrun("-H", "localhost:3", "true")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_every_line_has_rank_and_host(ddlrun: Run) -> None:
    code = "import os, sys; print('out', os.environ['RANK']); print('err', file=sys.stderr)"
    result = ddlrun("-H", "localhost:2,127.0.0.1:1", sys.executable, "-c", code)
    assert sorted(result.stdout.splitlines()) == [
        "[0@localhost] out 0",
        "[1@localhost] out 1",
        "[2@127.0.0.1] out 2",
    ]
    assert sorted(result.stderr.splitlines()) == [
        "[0@localhost] err",
        "[1@localhost] err",
        "[2@127.0.0.1] err",
    ]


def test_lines_of_ranks_that_write_at_once_stay_whole(ddlrun: Run) -> None:
    code = (
        "import os; r = os.environ['RANK']\n"
        "for n in range(2000): print(f'{n}:' + r * (n % 997), flush=n % 7 == 0)"
    )
    result = ddlrun("-H", "localhost:4", sys.executable, "-c", code)
    for rank in range(4):
        lines = re.findall(rf"^\[{rank}@localhost\] (.*)$", result.stdout, re.M)
        assert lines == [f"{n}:" + str(rank) * (n % 997) for n in range(2000)]


def test_a_last_line_without_newline_is_not_lost(ddlrun: Run) -> None:
    result = ddlrun("-np", "2", "printf", "a\\nb")
    lines = sorted(result.stdout.splitlines())
    assert lines == [f"[{rank}@localhost] {text}" for rank in (0, 1) for text in "ab"]


def test_stdin_is_rank_0s(ddlrun: Run) -> None:
    result = ddlrun("-np", "2", "cat", stdin="some\ntext\n")
    assert result.stdout == "[0@localhost] some\n[0@localhost] text\n"


def test_the_end_of_stdin_reaches_rank_0_while_others_run(ddlrun: Run) -> None:
    code = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '0': sys.stdin.read(); open('read', 'w').close()\n"
        "while not os.path.exists('read'): time.sleep(0.1)"
    )
    result = ddlrun("-np", "2", "-timeout", "60", sys.executable, "-c", code, stdin="text")
    assert result.returncode == 0, result.stderr


def numbers(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


def test_much_input_that_nobody_reads(ddlrun: Run) -> None:
    """mpiexec's proxy would end the job as soon as the pipe is full."""
    result = ddlrun("-np", "2", "sleep", "1", stdin=numbers(50000))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_much_input_for_a_slow_reader(ddlrun: Run) -> None:
    code = (
        "import hashlib, os, sys, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    time.sleep(1); print(hashlib.md5(sys.stdin.buffer.read()).hexdigest())"
    )
    text = numbers(300000)
    result = ddlrun("-np", "2", sys.executable, "-c", code, stdin=text)
    wanted = hashlib.md5(text.encode()).hexdigest()
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"[0@localhost] {wanted}\n"


def test_input_after_the_program_has_closed_it(ddlrun: Run) -> None:
    code = "import os, time; os.close(0); time.sleep(1); print('well')"
    result = ddlrun(sys.executable, "-c", code, stdin=numbers(50000))
    assert (result.returncode, result.stdout) == (0, "[0@localhost] well\n")


def test_input_from_a_file(ddlrun: Run, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(numbers(50000))
    line = shlex.join([*DDLRUN, "-np", "2", "wc", "-l"])
    result = subprocess.run(
        ["bash", "-c", f"{line} <in"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert sorted(result.stdout.splitlines()) == ["[0@localhost] 50000", "[1@localhost] 0"]


def test_a_closed_input(ddlrun: Run) -> None:
    line = shlex.join([*DDLRUN, "-np", "2", "cat"])
    result = subprocess.run(["bash", "-c", f"{line} <&-"], capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_a_question_is_seen_before_it_is_answered() -> None:
    code = (
        "import os, sys\n"
        "if os.environ['RANK'] == '0':\n"
        "    print('Name? ', end='', flush=True); print('Hello', sys.stdin.readline(), end='')"
    )
    process = subprocess.Popen(
        [*DDLRUN, "-np", "2", sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    with process:
        seen = b""
        while not seen.endswith(b"Name? "):
            ready, _, _ = select.select([process.stdout], [], [], 20)
            assert ready, seen
            seen += os.read(process.stdout.fileno(), 100)
        process.stdin.write(b"you\n")
        process.stdin.close()
        assert seen + process.stdout.read() == b"[0@localhost] Name? Hello you\n"
    assert process.returncode == 0


def test_one_long_line(ddlrun: Run) -> None:
    """It took a minute and more when each of its pieces had all before it copied."""
    began = time.monotonic()
    result = ddlrun(sys.executable, "-c", "print('a' * 30_000_000)")
    assert result.stdout == f"[0@localhost] {'a' * 30_000_000}\n"
    assert time.monotonic() - began < 30


def test_words_reach_the_program_unchanged(ddlrun: Run) -> None:
    words = ["", "a b", "x\ny", "$HOME", '"', "'", "\\", ":", "\\:", "-n", "*", "é", "`id`", "%r"]
    values = show(ddlrun("-np", "2", sys.executable, "-c", SHOW, "", *words))
    assert [value[1] for value in values] == [words, words]


def test_environment(ddlrun: Run) -> None:
    names = (
        "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS "
        "DDL_OPTIONS A B DDLRUN_TOKEN DDLRUN_BIND"
    )
    strange = "b 'c'\n\"$HOME\" ;`id`"
    result = ddlrun(
        *("-H", "localhost:2,127.0.0.1:1", "-x", f"A={strange}", "-x", "B"),
        *(sys.executable, "-c", SHOW, names),
        env={"B": strange},
    )
    values = [value[0] for value in show(result)]
    assert [value["RANK"] for value in values] == ["0", "1", "2"]
    assert {value["WORLD_SIZE"] for value in values} == {"3"}
    assert [value["LOCAL_RANK"] for value in values] == ["0", "1", "0"]
    assert [value["LOCAL_WORLD_SIZE"] for value in values] == ["2", "2", "1"]
    assert {value["MASTER_ADDR"] for value in values} == {"127.0.0.1"}
    assert len({value["MASTER_PORT"] for value in values}) == 1
    assert 1024 < int(values[0]["MASTER_PORT"] or "") < 32768
    assert {(value["A"], value["B"]) for value in values} == {(strange, strange)}
    assert {(value["DDLRUN_TOKEN"], value["DDLRUN_BIND"]) for value in values} == {(None, None)}
    cpus = len(os.sched_getaffinity(0))
    assert int(values[0]["OMP_NUM_THREADS"] or "") <= max(1, cpus // 2)


TASK = """
import json, os, pathlib, sys, time
config = json.loads(os.environ["TF_CONFIG"])
told = pathlib.Path(sys.argv[1]) / "-".join(map(str, config["task"].values()))
told.with_suffix(".new").write_text(json.dumps([config, "DDLRUN_TF_TASKS" in os.environ]))
told.with_suffix(".new").rename(told)
while config["task"]["type"] != "chief" or len(list(told.parent.glob("*-0"))) < 3:
    time.sleep(0.02)  # servers and workers serve for ever, and the chief needs them all
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("status", [0, 3])
def test_tf_config(ddlrun: Run, tmp_path: Path, status: int) -> None:
    """Each rank finds itself in a cluster that all see alike; the job ends as its chief does."""
    program = (sys.executable, "-c", TASK, str(tmp_path), str(status))
    result = ddlrun("-H", "localhost:3", "-ps", "1", *program)
    assert result.returncode == status, result.stderr
    assert (result.stderr == "") == (status == 0)
    found = [json.loads(path.read_text()) for path in tmp_path.glob("*-0")]
    assert [left for _, left in found] == [False] * 3
    configs = [config for config, _ in found]
    assert all(config["cluster"] == configs[0]["cluster"] for config in configs)
    tasks = sorted((config["task"]["type"], config["task"]["index"]) for config in configs)
    assert tasks == [("chief", 0), ("ps", 0), ("worker", 0)]


def test_the_users_omp_num_threads_stays(ddlrun: Run) -> None:
    result = ddlrun(sys.executable, "-c", SHOW, "OMP_NUM_THREADS", env={"OMP_NUM_THREADS": "77"})
    assert show(result)[0][0] == {"OMP_NUM_THREADS": "77"}


def test_ranks_interleaved_by_a_rankfile(ddlrun: Run, tmp_path: Path) -> None:
    (tmp_path / "ranks").write_text(
        "rank 0=localhost\nrank 1=127.0.0.1\nrank 2=localhost\nrank 3=127.0.0.1\n"
    )
    (tmp_path / "hosts").write_text("localhost slots=2\n127.0.0.1 slots=2\n")
    result = ddlrun("-hostfile", "hosts", "-rf", "ranks", sys.executable, "-c", SHOW, "LOCAL_RANK")
    assert [value[0]["LOCAL_RANK"] for value in show(result)] == ["0", "0", "1", "1"]
    assert "[3@127.0.0.1]" in result.stdout


def test_cores_of_a_rankfile(ddlrun: Run, tmp_path: Path) -> None:
    """As WML CE's ddlrun writes it, and with no host named beside it."""
    ours = sorted(os.sched_getaffinity(0))
    (tmp_path / "ranks").write_text("rank 0=localhost slot=0:*\nrank 1=localhost slot=0:0\n")
    values = show(ddlrun("-rf", "ranks", sys.executable, "-c", SHOW, "OMP_NUM_THREADS"))
    assert set(values[1][2]) < set(ours) or len(ours) == 1
    assert set(values[1][2]) <= set(values[0][2])
    assert values[1][0]["OMP_NUM_THREADS"] == "1"
    (tmp_path / "ranks").write_text("rank 0=localhost slot=7:0-3\n")
    result = ddlrun("-rf", "ranks", "true")
    assert result.returncode == 2
    assert "ddlrun: slot=7:0-3: this host's sockets have " in result.stderr


def test_ranks_have_cores_of_their_own(ddlrun: Run) -> None:
    ours = sorted(os.sched_getaffinity(0))
    if len(ours) < 2:
        pytest.skip("needs two cores")
    pair = [value[2] for value in show(ddlrun("-np", "2", sys.executable, "-c", SHOW, ""))]
    assert not set(pair[0]) & set(pair[1])
    assert sorted(pair[0] + pair[1]) == ours
    for words in (["-np", str(len(ours) + 1)], ["-np", "2", "-no_bind"]):
        values = show(ddlrun(*words, sys.executable, "-c", SHOW, ""))
        assert all(value[2] == ours for value in values)


def test_dry_run_prints_the_command_and_starts_nothing(ddlrun: Run, tmp_path: Path) -> None:
    words = ["touch", "a b", "$(id)", ":"]
    result = ddlrun("-dry-run", "-H", "localhost:2", "-x", "V=x y", *words)
    assert result.returncode == 0
    assert list(tmp_path.iterdir()) == []
    line = shlex.split(result.stdout)
    assert line[0] == "env"
    assert "V=x y" in line
    assert line[-4:] == ["touch", "a b", "$(id)", "\\:"]
    assert Path(line[line.index("-prepend-pattern") - 1]).name == "mpiexec"
    again = subprocess.run(
        result.stdout, shell=True, capture_output=True, cwd=tmp_path, check=False, timeout=60
    )
    assert again.returncode == 0, again.stderr  # the line is what runs
    assert {path.name for path in tmp_path.iterdir()} == {"a b", "$(id)", ":"}


def test_version_and_help(ddlrun: Run) -> None:
    assert ddlrun("--version").stdout.startswith("ddlrun ")
    text = ddlrun("--help").stdout
    assert "Example: ddlrun -H localhost:4 python train.py" in text


def test_verbose_says_what_it_runs(ddlrun: Run) -> None:
    result = ddlrun("-v", "true")
    assert result.stderr.startswith("env MASTER_ADDR=")


def test_verbose_says_where_the_start_s_time_goes(ddlrun: Run) -> None:
    result = ddlrun("-v", "-np", "2", "true")
    times = r"mpiexec after (\S+) s, the first rank after (\S+) s, all 2 after (\S+) s"
    found = re.search(rf"^ddlrun: started {times}$", result.stderr, re.M)
    assert found, result.stderr
    assert 0 <= float(found[1]) <= float(found[2]) <= float(found[3]) < 60


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("no-such-program", "the program no-such-program is not found on PATH\n"),
        ("./none", "the program ./none is not found\n"),
        ("./folder", "the program ./folder is a folder\n"),
        ("./x.py", "the program ./x.py is not executable\n  Run `ddlrun ... python ./x.py`.\n"),
        ("./x", "the program ./x is not executable\n  Try chmod +x ./x.\n"),
    ],
)
def test_wrong_programs(ddlrun: Run, tmp_path: Path, program: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "x.py").write_text("")
    (tmp_path / "x").write_text("")
    result = ddlrun(program)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"ddlrun: error: {message}"


def test_a_program_that_cannot_start(ddlrun: Run, tmp_path: Path) -> None:
    """Found, executable, and yet: the wrapper says why."""
    (tmp_path / "bad").write_text("#!/no/such/interpreter\n")
    (tmp_path / "bad").chmod(0o755)
    result = ddlrun("./bad")
    assert result.returncode == 127
    assert "cannot start ./bad: No such file or directory" in result.stderr
    assert "ended with exit code 127" in result.stderr


def test_a_command_line_error_has_no_traceback(ddlrun: Run) -> None:
    result = ddlrun("-H", "a b", "true")
    assert result.returncode == 2
    assert result.stderr == (
        "ddlrun: error: -host: 'a b' is not a host name\n"
        "  A host name has letters, digits, '-', '_' and '.'.\n"
    )


def test_another_mpis_mpiexec_is_refused(ddlrun: Run, tmp_path: Path) -> None:
    """A python without mpiexec beside it, and on PATH one that is not MPICH's; then none."""
    python = tmp_path / "python"
    python.symlink_to(Path(sys.executable).resolve())
    other = tmp_path / "bin" / "mpiexec"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'mpiexec (Other MPI) 5.0'\n")
    other.chmod(0o755)
    for path, message in (
        (f"{other.parent}:/usr/bin:/bin", f"{other} is not MPICH's"),
        (str(tmp_path), "MPICH's mpiexec is neither beside this python nor on PATH"),
    ):
        result = subprocess.run(
            [str(python), *DDLRUN[1:], "/bin/true"],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 2
        assert result.stderr.startswith(f"ddlrun: error: {message}\n")


def test_a_reader_that_goes_away(marked: object) -> None:
    line = shlex.join([*DDLRUN, "-np", "2", "yes", marked.mark])  # type: ignore[attr-defined]
    result = subprocess.run(
        ["bash", "-c", f"{line} | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 141
    assert marked.all_gone()  # type: ignore[attr-defined]
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(not shutil.which("script"), reason="needs script(1) for a terminal")
def test_a_job_in_the_background_leaves_the_terminal_alone() -> None:
    line = shlex.join([*DDLRUN, "cat"])
    result = subprocess.run(
        [
            "script",
            "-qec",
            f"bash -ic '{line} & wait $!; echo ended $?; read x; echo got $x'",
            "/dev/null",
        ],
        input="typed\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "ended 0" in result.stdout
    assert "got typed" in result.stdout
