"""Any text gives a result or one clear error, from every parser that reads what others wrote."""

import os
from pathlib import Path

import pytest
from ddl.launch.batch import reserved_hosts
from ddl.launch.errors import LaunchError
from ddl.launch.hosts import MAX_HOSTS, Host, expand, parse_hostfile, parse_hosts
from ddl.launch.layout import make_job, read_mode
from ddl.launch.options import FLAGS, VALUES, parse
from ddl.launch.rankfile import read_rankfile

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

# Mostly what means something to the parsers; sometimes anything that a file or variable can hold.
MEANING = st.text("ab01,:[]-x=#.@ \t\n²\x0b\x85\u2028_bnrmcp", max_size=40)
ANYTHING = st.text(max_size=40)
TEXT = MEANING | ANYTHING
quickly = hypothesis.settings(max_examples=100, deadline=None)


def is_clear(error: LaunchError, of: str = " ") -> None:
    """A sentence, that says what it speaks of."""
    assert " " in error.message
    assert of in error.message


def are_hosts(hosts: list[Host]) -> None:
    names = [host.name for host in hosts]
    assert hosts
    assert len(names) == len(set(names)) <= MAX_HOSTS
    assert all(host.slots is None or host.slots >= 1 for host in hosts)
    # Nothing that a shell, ssh or mpiexec would take for more than a name.
    for name in names:
        assert name.isascii()
        assert name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        assert not name.startswith(("-", "."))


@quickly
@hypothesis.given(TEXT)
@hypothesis.example("n[1-²]")
@hypothesis.example("n[" + "9" * 5000 + "]")
@hypothesis.example("n:" + "9" * 5000)
@hypothesis.example("n[1-99999]m[1-99999]")
@hypothesis.example("n[1-50000],m[1-50001]")
def test_host_lists(text: str) -> None:
    try:
        hosts = parse_hosts(text)
    except LaunchError as error:
        is_clear(error)
    else:
        are_hosts(hosts)


@quickly
@hypothesis.given(st.integers(0, 10**6), st.integers(0, 300), st.integers(0, 8))
def test_ranges_have_all_their_numbers(first: int, more: int, width: int) -> None:
    begin = str(first).zfill(width)
    names = expand(f"n[{begin}-{first + more}].x", "here")
    assert len(names) == more + 1
    numbers = [name.removeprefix("n").removesuffix(".x") for name in names]
    assert [int(number) for number in numbers] == list(range(first, first + more + 1))
    assert numbers[0] == begin


@quickly
@hypothesis.example(b"2001:db8::7\n")
@hypothesis.given(data=st.binary(max_size=60) | TEXT.map(lambda text: text.encode(errors="ignore")))
def test_hostfiles(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "hosts"
    file.write_bytes(data)
    try:
        hosts = parse_hostfile(file)
    except LaunchError as error:
        is_clear(error, of=str(file))
    else:
        are_hosts(hosts)


LINES = st.lists(st.sampled_from(["rank 0=a", "rank 1=b", "rank 2 = a", "#", "rank 1=a"]) | TEXT)


@quickly
@hypothesis.given(lines=LINES)
@hypothesis.example(lines=["rank " + "9" * 5000 + "=a"])
@hypothesis.example(lines=["rank ²=a"])
@hypothesis.example(lines=["rank 99999999999=a"])
def test_rankfiles(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    file = tmp_path_factory.getbasetemp() / "ranks"
    file.write_bytes("\n".join(lines).encode(errors="ignore"))
    try:
        names, placement, _ = read_rankfile(file, ["a", "b"])
    except LaunchError as error:
        is_clear(error)
    else:
        assert set(names) <= {"a", "b"}
        assert sorted(set(placement)) == list(range(len(names)))


@quickly
@hypothesis.given(TEXT | st.from_regex(r"[bnrmcpz]:\d{0,9}(x\d{0,9}){0,5}", fullmatch=True))
@hypothesis.example("p:0")
@hypothesis.example("p:1x2x3x4x5")
@hypothesis.example("p:" + "9" * 5000)
@hypothesis.example("p:99999999")
@hypothesis.example("p:²")
@hypothesis.example("p:2\n")
def test_modes(text: str) -> None:
    """What is taken here is taken by the library: a letter, and one to four sizes from 1."""
    try:
        sizes = read_mode(text)
    except LaunchError as error:
        is_clear(error)
    else:
        assert len(sizes) <= 4
        assert all(1 <= size <= 1 << 24 for size in sizes)
        assert text == (f"{text[0]}:{text[2:]}" if sizes else text[0])


WORDS = st.lists(
    st.sampled_from([f"-{name}" for name in (*VALUES, *FLAGS)])
    | st.sampled_from(["a:2,b:2", "4", "p:2x2", "true", "--", "A=1"])
    | TEXT,
    max_size=8,
)


@quickly
@hypothesis.given(WORDS)
@hypothesis.example(["-np", "9" * 5000, "true"])
def test_command_lines(words: list[str]) -> None:
    try:
        options = parse(words)
        if options.command and not options.probe:
            options.topology = options.hostfile = options.rankfile = None
            options.host = "192.0.2.[1-4]:2"  # addresses: names would be asked for, slowly
            job = make_job(options, {}, [])
            assert job.size >= 1
    except LaunchError as error:
        is_clear(error)


VARIABLES = (
    *("LSB_JOBID", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE", "SLURM_JOB_NODELIST", "SLURM_NTASKS"),
    *("SLURM_TASKS_PER_NODE", "PBS_NODEFILE", "HYDRA_HOST_FILE", "NUM_LEARNERS"),
    *("LEARNER_NAME_PREFIX", "OAR_NODEFILE"),
)


@quickly
@hypothesis.given(st.dictionaries(st.sampled_from(VARIABLES), TEXT))
@hypothesis.example({"LEARNER_NAME_PREFIX": "l", "NUM_LEARNERS": "9" * 5000})
@hypothesis.example(
    {"SLURM_JOB_NODELIST": "a", "SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "1(x999999999)"}
)
@hypothesis.example(
    {"SLURM_JOB_NODELIST": "a", "SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "9" * 5000}
)
@hypothesis.example({"PBS_NODEFILE": "a\0b"})
@hypothesis.example({"PBS_NODEFILE": os.sep})
def test_batch_systems(environ: dict[str, str]) -> None:
    try:
        hosts = reserved_hosts(environ)
    except LaunchError as error:
        is_clear(error)
    else:
        if hosts:
            are_hosts(hosts)


def test_a_folder_is_no_hostfile(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cannot read the hostfile"):
        parse_hostfile(tmp_path)
