"""What is decided before anything starts: options, hosts, placement. No process is run."""

import json
import socket
from pathlib import Path

import pytest
from ddl.launch import ports
from ddl.launch.errors import LaunchError
from ddl.launch.hosts import Host
from ddl.launch.hydra import HydraLauncher
from ddl.launch.layout import Job, make_job
from ddl.launch.options import parse


def job(*words: str, environ: dict[str, str] | None = None, program: bool = True) -> Job:
    return make_job(parse([*words, *(["true"] if program else [])]), environ or {}, [])


def own_address() -> str:
    """An address of this machine, as others have it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return str(probe.getsockname()[0])


def placement(*words: str) -> list[str]:
    made = job(*words)
    return [made.host_of(rank) for rank in range(made.size)]


# -- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_options_with_one_dash_or_two(dashes: str) -> None:
    options = parse(
        f"{dashes}H a:2 {dashes}np=2 {dashes}dry-run {dashes}x A=1 {dashes}x B python -H x".split()
    )
    assert options.host == "a:2"
    assert options.np == 2
    assert options.dry_run
    assert options.exports == ["A=1", "B"]
    assert options.command == ["python", "-H", "x"]


def test_backends_that_ddl_stands_in_for() -> None:
    made = job("-instead_of", "NCCL,gloo")
    assert made.environment["DDL_INSTEAD_OF"] == "nccl,gloo"
    assert "DDL_INSTEAD_OF" not in job().environment


def test_the_grace_of_the_ranks() -> None:
    assert job().environment["DDLRUN_GRACE"] == "2"
    assert job("-grace", "2").environment["DDLRUN_GRACE"] == "2"
    assert job("-grace", "7.5").environment["DDLRUN_GRACE"] == "7.5"


def test_two_dashes_end_the_options() -> None:
    assert parse(["-np", "1", "--", "-program"]).command == ["-program"]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("-hots a true", "unknown option -hots", "Did you mean -host?"),
        ("--hots=a true", "unknown option --hots=a", "Did you mean -host?"),
        ("-np", "-np needs a value", ""),
        ("-np 0 true", "-np 0: not a whole number from 1", ""),
        ("-np x true", "-np x: not a whole number from 1", ""),
        ("-np ² true", "-np ²: not a whole number from 1", ""),
        ("-np 1 -n 2 true", "-n is given twice", ""),
        ("-accelerators -1 true", "-accelerators -1: not a whole number from 1", ""),
        ("-timeout 0 true", "-timeout 0: not a number of seconds above 0", ""),
        ("-timeout nan true", "-timeout nan: not a number of seconds above 0", ""),
        ("-timeout 5m true", "-timeout 5m: not a number of seconds above 0", ""),
        ("-grace 0 true", "-grace 0: not a number of seconds above 0", ""),
        ("-grace 1 -grace 2 true", "-grace is given twice", ""),
        ("-grace 2 --grace=2 true", "--grace is given twice", ""),
        ("-instead_of mpi true", "-instead_of mpi: ddl cannot stand in for these", "gloo,nccl"),
        ("-dry-run=1 true", "unknown option -dry-run=1", ""),
        ("", "no program given", "Example: ddlrun -H localhost:4 python train.py"),
        ("-v", "no program given", ""),
    ],
)
def test_wrong_options(words: str, message: str, hint: str) -> None:
    with pytest.raises(LaunchError) as error:
        parse(words.split())
    assert error.value.message == message
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-H a -hostfile f", "-host and -hostfile exclude each other"),
        ("-H a:2 -np 3", "-np 3, but the hosts have space for 2 ranks"),
        ("-H a:2 -accelerators 3", "-accelerators 3, but a has 2 slots"),
        ("-H a,b -accelerators 2 -np 5", "-np 5, but the hosts have space for 4 ranks"),
        ("-x 1A=2", "-x 1A=2: '1A' is not a variable's name"),
        ("-x NOT_SET", "-x NOT_SET: this variable is not set"),
        ("-mode q:2", "-mode q:2 is not understood"),
        ("-mode p:2x", "-mode p:2x is not understood"),
        ("-H a:4,b:4 -mode p:4x3", "-mode p:4x3: 4 x 3 is 12, but the job has 8 ranks"),
        ("-mode p:1 -no_ddloptions", "-no_ddloptions excludes -mode, -topology and -ddlarg"),
        ("-H n[1-4] -racks 3", "1 aisles x 3 racks x 1 nodes is 3, but the job runs on 4 hosts"),
        ("-H a:2,b:1 -nodes 2", "-aisles, -racks and -nodes need the same number of ranks"),
        ("-mpiarg 'open", "-mpiarg: No closing quotation"),
    ],
)
def test_options_that_do_not_fit_together(words: str, message: str) -> None:
    with pytest.raises(LaunchError) as error:
        job(*words.split())
    assert error.value.message.startswith(message)


# -- placement ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        ("", "localhost"),
        ("-np 3", "localhost localhost localhost"),
        ("-H a:2,b:2", "a a b b"),
        ("-H a:2,b:2 -np 3", "a a b"),
        ("-H a:2,b:2 -np 2", "a a"),
        ("-H a,b -np 4", "a a b b"),
        ("-H a,b -np 3", "a a b"),
        ("-H a,b,c -np 2", "a b"),
        ("-H a,b -accelerators 2", "a a b b"),
        ("-H a:4,b:4 -accelerators 1", "a b"),
    ],
)
def test_placement(words: str, hosts: str) -> None:
    assert placement(*words.split()) == hosts.split()


def test_hosts_of_a_batch_system() -> None:
    made = make_job(parse(["true"]), {}, [Host("a", 2)])
    assert made.hosts == ("a",)
    assert made.size == 2


def test_accelerators_may_be_more_than_a_batch_systems_tasks() -> None:
    """`#SBATCH --ntasks-per-node=1` is how one process a node is asked for: ddlrun itself."""
    reserved = [Host("a", 1), Host("b", 1)]
    assert make_job(parse(["-accelerators", "4", "true"]), {}, reserved).counts() == [4, 4]
    with pytest.raises(LaunchError, match="-accelerators 4, but a has 1 slots"):
        job("-H", "a:1", "-accelerators", "4")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--mca btl tcp", "MPICH has no MCA parameters"),
        ("-aff off", "ddlrun binds each rank"),
    ],
)
def test_arguments_of_other_mpis(word: str, hint: str) -> None:
    with pytest.raises(LaunchError) as error:
        job("-mpiarg", word)
    assert error.value.message == f"-mpiarg {word.split()[0]} is another MPI's: ours is MPICH"
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("words", "mpiexec_s", "added"),
    [
        # As in public scripts of Satori, of Summit, and of others who had WML CE.
        (["--mpiarg", "-x EGO_TOP", "-v", "-s"], [], {"EGO_TOP": "/opt/ego"}),
        (["--accelerators", "4", "--mpiarg", "-pami_noib"], [], {"UCX_TLS": "tcp,sm,self"}),
        (["-t", "--accelerators", "4", "-m", "b"], [], {"UCX_TLS": "tcp,sm,self"}),
        (["--mpiarg", "-gpu --disable_gpu_hooks -x A=1 -l"], ["-l"], {"A": "1"}),
        (["-x", "MASTER_ADDR=a", "-x", "MASTER_PORT=1234"], [], {"MASTER_PORT": "1234"}),
    ],
)
def test_public_command_lines(
    words: list[str], mpiexec_s: list[str], added: dict[str, str]
) -> None:
    made = job(*words, environ={"EGO_TOP": "/opt/ego"})
    assert list(made.mpi_arguments) == mpiexec_s
    assert added.items() <= made.environment.items()
    assert added.keys() <= set(made.added)


def test_an_argument_of_another_mpi_without_its_value() -> None:
    with pytest.raises(LaunchError, match="-mpiarg -x needs a value"):
        job("-mpiarg", "-x")


def test_a_mode_that_is_only_a_letter() -> None:
    """As in WML CE's examples: `-m b`."""
    assert job("-m", "b", "-H", "a:4,b:4").environment["DDL_OPTIONS"] == ""
    with pytest.raises(LaunchError, match="-mode q is not understood"):
        job("-m", "q")


def test_ports_that_are_all_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
        with pytest.raises(LaunchError, match=f"no port from {port} to {port} is free"):
            ports.free_port(is_local=True)
    with pytest.raises(LaunchError, match="no port"):
        ports.free_port(is_local=False, taken=[port])


# -- environment --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", ""),
        ("-H a:4,b:4", ""),
        ("-H a:4,b:4 -nodes 2", "-mode p:4x2"),
        ("-H a:2,b:1", ""),
        ("-H n[1-8]:6 -racks 2 -aisles 2", "-mode p:6x2x2x2"),
        ("-H n[1-4]:6 -racks 2", "-mode p:6x2x2"),
        ("-H a:4,b:4 -mode r:8", "-mode r:8"),
        ("-H a:4,b:4 -m c:2x2x2 -ddlarg -dbg_level=1", "-mode c:2x2x2 -dbg_level=1"),
    ],
)
def test_ddl_options(words: str, options: str) -> None:
    assert job(*words.split()).environment["DDL_OPTIONS"] == options


def test_a_probe_is_a_program_of_one_rank_a_host(tmp_path: Path) -> None:
    made = job("-H", "a:4,b:4", "-probe", str(tmp_path / "t.yaml"), program=False)
    assert made.command[1:] == ("-P", "-m", "ddl.probe", str(tmp_path / "t.yaml"))
    assert made.counts() == [1, 1]
    with pytest.raises(LaunchError, match="-probe takes no program, but 'true' is given"):
        job("-probe", "t.yaml")
    with pytest.raises(LaunchError, match="-probe excludes"):
        job("-probe", "t.yaml", "-np", "3", program=False)


def test_a_topology_file_goes_to_the_library(tmp_path: Path) -> None:
    file = tmp_path / "racks.yaml"
    with pytest.raises(LaunchError, match="there is no such file"):
        job("-topology", str(file))
    file.touch()
    options = job("-H", "a:2,b:1", "-topology", str(file)).environment["DDL_OPTIONS"]
    assert options == f"-topology {file}"
    blank = tmp_path / "two words.yaml"
    blank.touch()
    with pytest.raises(LaunchError, match="cannot hold a path with blanks"):
        job("-topology", str(blank))


def test_the_users_own_ddl_options_stay() -> None:
    own = {"DDL_OPTIONS": "-mode r:1"}
    assert job(environ=own).environment["DDL_OPTIONS"] == "-mode r:1"
    assert job("-mode", "p:1", environ=own).environment["DDL_OPTIONS"] == "-mode p:1"
    assert "DDL_OPTIONS" not in job("-no_ddloptions").environment


def test_exports() -> None:
    made = job("-x", "A=1 = 2", "-x", "B", environ={"B": "b"})
    assert made.environment["A"] == "1 = 2"
    assert made.environment["B"] == "b"
    assert {"A", "B"} <= set(made.added)


def test_an_outer_mpi_run_is_forgotten() -> None:
    made = job(environ={"PMI_RANK": "7", "PMI_FD": "9", "MPI_LOCALRANKID": "1", "HOME": "/h"})
    assert made.environment["HOME"] == "/h"
    assert not [name for name in made.environment if name.startswith(("PMI_", "MPI_"))]


def test_rendezvous_address() -> None:
    assert job("-H", "localhost:2").environment["MASTER_ADDR"] == "127.0.0.1"
    far = job("-H", "far.invalid:1,localhost:1").environment
    assert far["MASTER_ADDR"] == "far.invalid"
    near = job("-H", "localhost:1,far.invalid:1").environment
    assert near["MASTER_ADDR"] == socket.gethostname()
    assert job("-x", "MASTER_PORT=5").environment["MASTER_PORT"] == "5"


@pytest.mark.parametrize("own", [socket.gethostname(), own_address()])
def test_the_first_rank_is_reached_by_the_users_words(own: str) -> None:
    """Others may know a full name, or an address, and not the short name."""
    words = ("-H", f"{own}:1,far.invalid:1")
    assert job(*words).environment["MASTER_ADDR"] == own
    cluster = json.loads(job(*words, "-tf_config").environment["DDLRUN_TF_CLUSTER"])
    assert [one.rpartition(":")[0] for one in cluster["worker"]] == [own, "far.invalid"]
    command = HydraLauncher(parse([*words, "true"])).command(job(*words))
    assert command[command.index("-localhost") + 1] == own


# -- TF_CONFIG ----------------------------------------------------------------------------------


def test_every_rank_is_a_worker_for_tensorflow() -> None:
    made = job("-tf_config", "-H", "localhost:3").environment
    assert made["DDLRUN_TF_TASKS"] == "worker:0,worker:1,worker:2"
    addresses = json.loads(made["DDLRUN_TF_CLUSTER"])["worker"]
    assert len(set(addresses)) == 3
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_parameter_servers_the_chief_and_workers() -> None:
    made = job("-ps", "2", "-H", "a:3,b:3").environment
    assert made["DDLRUN_TF_TASKS"] == "ps:0,ps:1,chief:0,worker:0,worker:1,worker:2"
    cluster = json.loads(made["DDLRUN_TF_CLUSTER"])
    hosts = {kind: [one.partition(":")[0] for one in given] for kind, given in cluster.items()}
    assert hosts == {"ps": ["a", "a"], "chief": ["a"], "worker": ["b", "b", "b"]}


def test_a_job_too_small_for_its_parameter_servers() -> None:
    with pytest.raises(LaunchError) as error:
        job("-ps", "2", "-H", "localhost:3")
    assert str(error.value) == "-ps 2, but the job has 3 ranks"
    assert error.value.hint == "A chief and at least one worker are needed besides: -np 4."


def test_without_being_asked_there_is_no_tf_config() -> None:
    assert not [name for name in job("-H", "localhost:2").environment if "TF_" in name]
