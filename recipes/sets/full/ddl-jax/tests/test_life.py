"""How JAX comes to ddl, whoever starts it, and how a job ends when something is wrong."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rank_cases import Run

from conftest import HERE

TEN_LINES = (HERE / "ten_lines.py").read_text()
COUNT = "\nfrom ddl_jax import collectives\nprint('by ddl', collectives())\n"
HAS_DDL = "\nprint('by ddl', 'ddl_jax._programs' in __import__('sys').modules)\n"
FIRST = {"DDL_TIMEOUT": "8"}
#: It begins with a program that is under way for a while, and whose result nobody holds.
DROPPED = f"""{TEN_LINES.partition("total =")[0]}
import jax.numpy as jnp
def slow(x):
    y = jax.lax.fori_loop(0, 400_000, lambda _, y: jnp.sin(y) + 1, x)
    return jax.lax.psum(y * 0 + 1, "ranks")  # the bare y would have the call wait
def run(mesh):
    ones = np.ones((len(mesh.devices), 400), np.float32)
    x = jax.make_array_from_callback(ones.shape, NamedSharding(mesh, P("ranks")), lambda i: ones[i])
    jax.jit(jax.shard_map(slow, mesh=mesh, in_specs=P("ranks"), out_specs=P()))(x)
run(mesh)
"""


def test_an_unedited_program_reduces_by_ddl(ddlrun: Run) -> None:
    result = ddlrun(2, code=TEN_LINES + COUNT)
    assert result.returncode == 0, result.stderr
    for rank in (0, 1):
        assert f"total 2 of {rank}" in result.stdout
    assert result.stdout.count("by ddl 1") == 2, result.stdout


def test_mpiexec_starts_it_too() -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec), "-n", "2", sys.executable, "-c", TEN_LINES + COUNT]
    environ = {name: value for name, value in os.environ.items() if name != "DDL_OPTIONS"}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environ
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("by ddl 1") == 2, result.stdout


def test_the_coordinator_of_one_host_listens_on_loopback_alone(ddlrun: Run) -> None:
    listeners = (
        "\nif jax.process_index() == 0:\n"
        "  from pathlib import Path\n"
        "  import os\n"
        "  sockets = {os.readlink(f) for f in Path('/proc/self/fd').iterdir() if f.exists()"
        " or f.is_symlink()}\n"
        "  for name in ('tcp', 'tcp6'):\n"
        "    for line in Path('/proc/net/' + name).read_text().splitlines()[1:]:\n"
        "      words = line.split()\n"
        "      if words[3] == '0A' and f'socket:[{words[9]}]' in sockets:\n"
        "        print('listens', words[1].split(':')[0])\n"
    )
    result = ddlrun(2, code=TEN_LINES + listeners)
    assert result.returncode == 0, result.stderr
    places = [line.split()[-1] for line in result.stdout.splitlines() if "listens" in line]
    assert places, result.stdout
    assert all(place.endswith("0100007F") for place in places), places


#: Rank 0's service listens late, and a client that is made before would be refused.
LATE_SERVICE = """
import socket, time
from jaxlib import _jax
make_service, make_client = (getattr(_jax, f"get_distributed_runtime_{name}")
                             for name in ("service", "client"))
def service(*args, **words):
    time.sleep(0.5)
    return make_service(*args, **words)
def client(address, *args, **words):
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()
    print("it listens")
    return make_client(address, *args, **words)
_jax.get_distributed_runtime_service, _jax.get_distributed_runtime_client = service, client
"""
AGAIN = """
try:
    jax.distributed.initialize()
except RuntimeError as error:
    print("again:", error)
"""


def test_no_rank_asks_for_the_coordinator_before_it_listens(ddlrun: Run) -> None:
    """gRPC would try again after a second; a second call is an error on all ranks, at once."""
    gloo = {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}  # for ddl's, jax must come before jaxlib
    call = "jax.distributed.initialize()\n"
    code = LATE_SERVICE + TEN_LINES.replace(call, call + AGAIN)
    result = ddlrun(2, code=code, env=FIRST | gloo)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("it listens") == 2, result.stdout
    assert result.stdout.count("should only be called once") == 2, result.stdout


@pytest.mark.parametrize(
    "variables",
    [
        {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"},
        {"MPITRAMPOLINE_LIB": "libddl.so.0"},
    ],
)
def test_the_user_s_choice_stays(ddlrun: Run, variables: dict[str, str]) -> None:
    if "MPITRAMPOLINE_LIB" in variables:
        code = "import os, ddl_jax._hook as h; h.set_variables(os.environ); "
        code += "print('choice', os.environ.get('JAX_CPU_COLLECTIVES_IMPLEMENTATION'))"
        result = ddlrun(1, code=code, env=variables)
        assert "choice None" in result.stdout, result.stderr
        return
    result = ddlrun(2, code=TEN_LINES + HAS_DDL, env=variables)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("total 2 of") == 2, result.stdout


def test_a_jaxlib_that_is_not_ours_keeps_its_own_collectives(ddlrun: Run) -> None:
    other = "import ddl_jax._hook\nddl_jax._hook.JAXLIB = ('9.9.',)\n"
    result = ddlrun(2, code=other + TEN_LINES)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("total 2 of") == 2, result.stdout
    assert result.stderr.count("ddl-jax is for jaxlib 9.9.x") == 1, result.stderr


def test_a_child_of_a_rank_is_no_rank(ddlrun: Run) -> None:
    child = "import jax, sys; print('ours', 'ddl_jax._job' in sys.modules, jax.device_count())"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    result = ddlrun(2, code=code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("ours False 1") == 2, result.stdout


def test_several_devices_are_refused_by_a_sentence(ddlrun: Run) -> None:
    code = TEN_LINES.replace("jax.process_count(), 1000", "jax.device_count(), 1000")
    result = ddlrun(2, code=code, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"})
    assert result.returncode != 0
    assert "one device per process" in result.stderr, result.stderr


def test_other_processes_than_ranks_are_refused(ddlrun: Run) -> None:
    code = (
        "import jax, os\n"
        "jax.distributed.initialize(f'127.0.0.1:{23000 + os.getpid() % 5000}', 1, 0)\n"
        "jax.devices()\n"
    )
    result = ddlrun(2, code=code)
    assert result.returncode != 0
    assert "has 1 processes, but the job has 2 ranks" in result.stderr, result.stderr


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("killed", "rank 1 on localhost was killed by SIGKILL"),
        ("raises", "KeyError: 'mine'"),
        ("sleeps", "did not arrive within 8 s"),
        ("leaves", "did not arrive within 8 s"),
        ("differs", "the ranks did not make the same call"),
    ],
)
def test_a_rank_that_is_lost_ends_the_others(ddlrun: Run, way: str, words: str) -> None:
    result = ddlrun(3, "faults.py", way, env=FIRST)
    assert result.returncode != 0
    assert words in result.stderr, result.stderr
    assert "rank 1" in result.stderr


def test_a_permute_waits_no_longer_than_the_timeout(ddlrun: Run) -> None:
    result = ddlrun(3, "faults.py", "sleeps", "shift", env=FIRST)
    assert result.returncode != 0
    assert "collective permute: rank 1 on host" in result.stderr, result.stderr
    assert "did not send within 8 s" in result.stderr, result.stderr


def test_the_end_waits_for_programs_whose_results_nobody_holds(ddlrun: Run) -> None:
    result = ddlrun(2, code=DROPPED)
    assert result.returncode == 0, result.stderr


def test_a_mesh_of_some_ranks_waits_for_programs_whose_results_nobody_holds(ddlrun: Run) -> None:
    """They ask for their communicators late, and these are of other ranks."""
    some = "if jax.process_index() < 2: run(Mesh(jax.devices()[:2], 'ranks'))\n"
    result = ddlrun(3, code=DROPPED + some)
    assert result.returncode == 0, result.stderr


def test_a_program_of_some_ranks_is_told_of_again_after_a_first_run_that_fails(
    ddlrun: Run,
) -> None:
    """It has asked for no communicator yet: its next run does."""
    some = """
if jax.process_index() < 2:
    mesh = Mesh(jax.devices()[:2], "ranks")
    add = lambda x: jax.lax.psum(x, "ranks")
    total = jax.jit(jax.shard_map(add, mesh=mesh, in_specs=P("ranks"), out_specs=P()))
    def ones(): return jax.make_array_from_callback(
        (2, 8), NamedSharding(mesh, P("ranks")), lambda i: np.ones((1, 8), np.float32))
    gone = ones()
    gone.delete()
    try:
        total(gone)
    except RuntimeError as error:
        print("failed:", error)
    print("then", int(total(ones()).addressable_data(0)[0, 0]))
"""
    result = ddlrun(3, code=TEN_LINES + some, env=FIRST)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("deleted") == result.stdout.count("then 2") == 2, result.stdout


@pytest.mark.parametrize(
    ("kind", "saved_by", "loaded_by", "answer"),
    [
        ("all", 2, 2, "result 6.0"),
        ("all", 2, 3, "refused: FAILED_PRECONDITION: ddl.jax: the program was compiled in another"),
        ("some", 3, 3, "for a group of 2 ranks that is not there in this one (0 ranks)"),
    ],
)
def test_a_compiled_program_of_another_job(
    ddlrun: Run, tmp_path: Path, kind: str, saved_by: int, loaded_by: int, answer: str
) -> None:
    file = str(tmp_path / "program")
    for ranks, way in ((saved_by, "save"), (loaded_by, "load")):
        result = ddlrun(ranks, "executables.py", way, file, kind, env=FIRST)
        assert result.returncode == 0, result.stderr
    assert result.stdout.count(answer) == (2 if kind == "some" else loaded_by), result.stdout


def test_torch_and_jax_share_a_process(ddlrun: Run) -> None:
    pytest.importorskip("torch")
    torch = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('ddl')\n"
        "t = torch.ones(3); dist.all_reduce(t); print('torch', int(t[0]))\n"
    )
    last = "\nt = torch.ones(3); dist.all_reduce(t); dist.destroy_process_group()\n"
    result = ddlrun(2, code=torch + TEN_LINES + COUNT + last)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("by ddl 1") == result.stdout.count("torch 2") == 2, result.stdout


@pytest.mark.parametrize("level", ["multiple", "single"])
@pytest.mark.parametrize("end", ["", "\nMPI.Finalize()\n"])
def test_mpi4py_may_start_mpi_and_end_it(ddlrun: Run, end: str, level: str) -> None:
    """Also for one thread, and before XLA frees its communicators."""
    pytest.importorskip("mpi4py")
    first = f"import mpi4py\nmpi4py.rc.thread_level = {level!r}\nfrom mpi4py import MPI\n"
    first += "assert MPI.COMM_WORLD.allreduce(1) == 2\n"
    result = ddlrun(2, code=first + TEN_LINES + COUNT + end)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("by ddl 1") == 2, result.stderr
    assert "finaliz" not in result.stderr.lower(), result.stderr
    assert "Traceback" not in result.stderr, result.stderr


#: As where Python starts without its `site`: nothing of ours stands before `import jax`.
UNPREPARED = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if type(one).__module__ != "ddl_jax._hook"]
"""
LATE = """
import os, jax
jax.config.update("jax_cpu_collectives_implementation", "mpi")
import ddl_jax._hook
os.environ["MPITRAMPOLINE_LIB"] = ddl_jax._hook.library()
size, rank = (int(os.environ[name]) for name in ("PMI_SIZE", "PMI_RANK"))
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", size, rank)
jax.devices()
"""


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (TEN_LINES, "coordinator_address should be defined"),
        (LATE, "The environment variable MPITRAMPOLINE_LIB is not set"),
    ],
)
def test_jax_imported_before_the_job_s_variables_ends_by_a_sentence(
    ddlrun: Run, code: str, sentence: str
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    result = ddlrun(2, str(port), code=UNPREPARED + code, env=FIRST)
    assert result.returncode not in (0, 124), result.stderr
    assert sentence in result.stderr, result.stderr


OTHER_FUNCTIONS = """
import ddl.jax as dj, jax, jax.numpy as jnp
of_rank = {0: dj.allreduce, 1: dj.allgather}
print(jax.jit(of_rank[dj.rank()])(jnp.ones(8)))
"""


def test_programs_with_other_functions_are_told_of(ddlrun: Run) -> None:
    result = ddlrun(2, code=OTHER_FUNCTIONS, env=FIRST)
    assert result.returncode != 0
    words = (
        r"rank 0 \(host .*\) called allreduce\(.*, sum\), but rank 1 \(host .*\) called allgather"
    )
    assert re.search(words, result.stderr), result.stderr


def test_waiting_for_effects_starts_no_client(ddlrun: Run) -> None:
    """JAX would refuse to initialize the job afterwards."""
    early = "import ddl.jax, jax\njax.effects_barrier()\n"
    result = ddlrun(2, code=early + TEN_LINES)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("total 2 of") == 2, result.stdout


SUSPENDED = """
import os, signal, time
size, rank = jax.process_count(), jax.process_index()
def shift():
    whole = np.ones((size, 4), np.float32)
    x = jax.make_array_from_callback(
        whole.shape, NamedSharding(mesh, P("ranks")), lambda index: whole[index])
    turn = lambda y: jax.lax.ppermute(y, "ranks", [(0, 1), (1, 0)])
    mapped = jax.shard_map(turn, mesh=mesh, in_specs=P("ranks"), out_specs=P("ranks"))
    return jax.block_until_ready(jax.jit(mapped)(x))
shift()
if rank == 1:
    other = int(open(sys.argv[1]).read())
    time.sleep(1)
    os.kill(other, signal.SIGSTOP)
    time.sleep(7)
    os.kill(other, signal.SIGCONT)
    time.sleep(1)
shift()
print("shifted")
"""


def test_time_asleep_is_not_time_waited(tmp_path: Path) -> None:
    """As of a job that Slurm suspends, for longer than its timeout."""
    file = tmp_path / "rank0"
    file.write_text("")
    name = "import os, sys\nif os.environ['PMI_RANK'] == '0':\n"
    name += "    open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec), "-n", "2", sys.executable, "-c", name + TEN_LINES + SUSPENDED]
    environ = {name: value for name, value in os.environ.items() if name != "DDL_OPTIONS"}
    result = subprocess.run(
        [*command, str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**environ, "DDL_TIMEOUT": "5"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("shifted") == 2, result.stdout
