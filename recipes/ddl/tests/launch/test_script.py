"""`ddlrun -script`: the text of batch scripts, and wrong options. No batch system is needed."""

import json
import os
import shlex
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ddl.launch.errors import LaunchError
from ddl.launch.options import parse
from ddl.launch.script.release import module_of, programs_folder
from ddl.launch.script.request import default_name, read_request, read_time
from ddl.launch.script.systems import SYSTEMS
from ddl.launch.script.text import script_text
from ddl.launch.script_options import SCRIPT_VALUES

from conftest import Result

SHELLS = [name for name, system in SYSTEMS.items() if not system.is_manifest]
Ddlrun = Callable[..., Result]


def script(*words: str, environ: dict[str, str] | None = None) -> str:
    return script_text(read_request(parse(["-script", *words])), environ or {})


def directives(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("#SBATCH", "#BSUB", "#PBS"))]


FULL = (
    *("-N", "18", "-gpus", "6", "-cores", "7", "-time", "1-02:30:10", "-queue", "batch"),
    *("-account", "abc123", "-module", "ddl-ce/2026.11"),
)
TRAIN = ("python", "train.py", "--lr", "0.1")


def test_slurm() -> None:
    text = script("slurm", *FULL, "-signal", "300", *TRAIN)
    assert text.startswith("#!/bin/bash -l\n")
    assert directives(text) == [
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=18",
        "#SBATCH --ntasks-per-node=6",
        "#SBATCH --cpus-per-task=7",
        "#SBATCH --gpus-per-node=6",
        "#SBATCH --time=26:30:10",
        "#SBATCH --partition=batch",
        "#SBATCH --account=abc123",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:USR1@300",
    ]
    assert "module load ddl-ce/2026.11 || exit 1\n" in text
    assert text.endswith("\nexec ddlrun -accelerators 6 python train.py --lr 0.1\n")


def test_lsf() -> None:
    text = script("lsf", *FULL, "-signal", "61", *TRAIN)
    assert "It has never run under LSF." in text
    assert directives(text) == [
        "#BSUB -J train",
        "#BSUB -n 756",
        '#BSUB -R "span[ptile=42]"',
        '#BSUB -gpu "num=6"',
        "#BSUB -W 26:31",
        "#BSUB -q batch",
        "#BSUB -P abc123",
        "#BSUB -r",
        "#BSUB -o %J.out",
        "#BSUB -wa USR1",
        "#BSUB -wt 2",
        "#BSUB -Q 75",
    ]


def test_pbs() -> None:
    text = script("pbs", *FULL, *TRAIN)
    assert "It has never run under PBS." in text
    assert directives(text) == [
        "#PBS -N train",
        "#PBS -l select=18:ncpus=42:mpiprocs=6:ngpus=6",
        "#PBS -l place=scatter",
        "#PBS -l walltime=26:30:10",
        "#PBS -q batch",
        "#PBS -A abc123",
        "#PBS -r y",
        "#PBS -j oe",
    ]
    assert text.index('cd "$PBS_O_WORKDIR"') < text.index("module load")


ONE_OF_EACH = {
    **{"N": "3", "gpus": "4", "cores": "5", "time": "30", "signal": "60", "name": "another"},
    **{"queue": "high", "account": "abc123", "module": "none", "image": "registry/other:1"},
    "overlay": "./venv",
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("option", sorted(SCRIPT_VALUES.keys() - {"script", "output"}))
def test_no_option_is_accepted_and_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, option: str
) -> None:
    """Each is refused, or changes the script. A new option needs a value in ONE_OF_EACH."""
    activate = tmp_path / "venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    monkeypatch.chdir(tmp_path)
    refused = SYSTEMS[system].refused
    base = {"N": "2", "time": "40", "module": "ddl-ce/1", "image": "registry/image:1"}
    base = {name: value for name, value in base.items() if name not in refused}
    words, changed = (
        [word for name, value in given.items() for word in (f"-{name}", value)]
        for given in (base, base | {option: ONE_OF_EACH[option]})
    )
    if option in refused:
        with pytest.raises(LaunchError, match=f"-{option} does not go with -script {system}"):
            script(system, *changed, *TRAIN)
    else:
        assert script(system, *changed, *TRAIN) != script(system, *words, *TRAIN)


@pytest.mark.parametrize("system", SHELLS)
def test_only_what_is_asked_for_is_there(system: str) -> None:
    text = script(system, "-N", "2", *TRAIN)
    for word in ("USR1", "gpu", "time=", "-W ", "partition", "account", "@", "None", "["):
        assert word not in text.replace("span[ptile=1]", ""), text
    assert text.endswith("\nexec ddlrun python train.py --lr 0.1\n")


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        (["-accelerators", "4", "-np", "7"], "4"),
        (["-np", "7"], "4"),
        (["-np", "7", "-gpus", "8"], "4"),
        (["-gpus", "8"], "8"),
        (["-gpus", "8", "-accelerators", "2"], "2"),
    ],
)
def test_ranks_of_a_host(words: list[str], ranks: str) -> None:
    text = script("slurm", "-N", "2", *words, "true")
    assert f"#SBATCH --ntasks-per-node={ranks}\n" in text
    assert ("-np" in words) == ("-np 7" in text.splitlines()[-1])


def test_other_options_go_into_the_script() -> None:
    said = ["-tcp", "-mpiarg", "a b", "--timeout=60", "-x", "A=it's", "-v", "--", "-program", "-N"]
    text = script("slurm", "--N=2", *said)
    line = shlex.split(text.splitlines()[-1])
    assert line == ["exec", "ddlrun", *said]
    # And ddlrun reads the same from it, in a job.
    assert parse(line[2:]).command == ["-program", "-N"]


def test_a_probe_goes_into_a_script() -> None:
    text = script("slurm", "-N", "4", "-probe", "links.yaml", "-name", "probe")
    assert text.endswith("\nexec ddlrun -probe links.yaml\n")


WORDS = [
    "",
    "a b",
    "it's",
    "$HOME",
    "`x`",
    "$(x)",
    "new\nline",
    '"',
    "\\",
    "*",
    "ümlaut",
    "-x",
    "#",
]


@pytest.mark.parametrize("system", SHELLS)
def test_the_shell_gives_the_words_back(system: str, tmp_path: Path) -> None:
    shown = tmp_path / "bin" / "ddlrun"
    shown.parent.mkdir()
    shown.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
    shown.chmod(0o755)
    text = script(system, "-N", "1", "-module", "none", "prog", *WORDS)
    path = f'export PATH={shlex.quote(programs_folder())}:"$PATH"\n'
    assert path in text
    done = subprocess.run(
        ["bash", "-c", text.replace(path, "")],
        env={"PATH": f"{shown.parent}:{os.environ['PATH']}", "PBS_O_WORKDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.split("\0")[:-1] == ["prog", *WORDS]


# -- the module -----------------------------------------------------------------------------------


def make_release(tmp_path: Path, **changes: object) -> Path:
    prefix = tmp_path / "envs" / "2026.11-0123"
    (prefix / "conda-meta").mkdir(parents=True)
    origin = {"kind": "release", "env": "ddl-ce", "release": "2026.11", **changes}
    (prefix / "conda-meta" / "ddl-ce.origin").write_text(json.dumps(origin))
    return prefix


def test_the_loaded_module_is_the_one_that_names_our_prefix(tmp_path: Path) -> None:
    prefix = make_release(tmp_path)
    for name, text in (("other", f"{prefix}-older/bin"), ("ours", f'"{prefix}/bin"')):
        (tmp_path / name).write_text(text)
    environ = {
        "LOADEDMODULES": "gcc/13:site/dl-old:site/dl",
        "_LMFILES_": f"/nowhere:{tmp_path}/other:{tmp_path}/ours",
    }
    assert module_of(environ, prefix) == "site/dl"
    (tmp_path / "ours").unlink()
    assert module_of(environ, prefix) == "ddl-ce/2026.11"


def test_a_release_names_its_module(tmp_path: Path) -> None:
    assert module_of({}, make_release(tmp_path)) == "ddl-ce/2026.11"


def test_a_users_copy_has_no_module(tmp_path: Path) -> None:
    assert module_of({}, make_release(tmp_path, kind="clone")) is None
    assert module_of({}, tmp_path) is None


def test_a_release_that_does_not_say_its_name(tmp_path: Path) -> None:
    prefix = make_release(tmp_path, release="1; reboot")
    with pytest.raises(LaunchError) as error:
        module_of({}, prefix)
    assert error.value.message.endswith("ddl-ce.origin does not say which release this is")
    with pytest.raises(LaunchError, match="PATH cannot hold"):
        programs_folder(tmp_path / "a:b")


# -- wrong options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("-N 2 true", "-N is for batch scripts", "-script slurm"),
        ("-submit true", "-submit is for batch scripts", "-script slurm"),
        ("-script sge -N 2 true", "-script sge: there is no such batch system", "slurm, lsf"),
        ("-script slurm true", "-script slurm needs the number of hosts", "-N 2"),
        ("-script slurm -N 0 true", "-N 0: not a whole number from 1", ""),
        ("-script slurm -N 1000000 true", "-N 1000000: more than 100000 hosts", ""),
        ("-script slurm -N 2 -gpus x true", "-gpus x: not a whole number from 1", ""),
        ("-script slurm -N 2 -cores -1 true", "-cores -1: not a whole number from 1", ""),
        ("-script slurm -N 2 -time 1:30 true", "-time 1:30: not a time", "HH:MM:SS"),
        ("-script slurm -N 2 -time 0 true", "-time 0: not a time", ""),
        ("-script slurm -N 2 -signal 60 true", "-signal needs a wall time", "-time"),
        ("-script slurm -N 2 -time 1 -signal 60 true", "-signal 60: not below the wall time", ""),
        ("-script slurm -N 2 -time 9999 -signal 65536 true", "-signal 65536: not below", ""),
        ("-script slurm -N 2 -name a;b true", "-name 'a;b' is not a name", "letters"),
        ("-script slurm -N 2 -queue -q true", "-queue '-q' is not a name", ""),
        ("-script slurm -N 2 -account $x true", "-account '$x' is not a name", ""),
        ("-script slurm -N 2 -module a/`b` true", "-module 'a/`b`' is not a name", ""),
        ("-script slurm -N 2 -image x true", "-image does not go with -script slurm", "mpijob"),
        ("-script pbs -N 2 -time 5 -signal 60 true", "-signal does not go with -script pbs", ""),
        ("-script mpijob -N 2 true", "-script mpijob needs a container image", "-image"),
        ("-script mpijob -N 2 -image x -name A true", "-name 'A' is not a name", "small"),
        ("-script mpijob -N 2 -image x -account a true", "-account does not go with", "namespace"),
        ("-script mpijob -N 2 -image x -module a true", "-module does not go with", "image"),
        ("-script mpijob -N 2 -image x -signal 9 true", "-signal does not go with", "SIGTERM"),
        ("-script trainjob -N 2 -image x -queue a true", "-queue does not go with", ""),
        ("-script slurm -N 2 -H a true", "-script excludes -host, -hostfile and", "-N"),
        ("-script slurm -N 2 -hostfile a true", "-script excludes -host, -hostfile and", "-N"),
        ("-script slurm -N 2 -rf a true", "-script excludes -host, -hostfile and", "-N"),
        ("-script slurm -N 2 -dry-run true", "-script excludes -dry-run", ""),
        ("-script slurm -N 2 -show_topology", "-script excludes -dry-run and -show_topology", ""),
        ("-script slurm -N 2 -np 9 -accelerators 4 true", "-np 9, but 2 hosts with 4 ranks", "-N"),
        ("-script slurm -N 2 a\x1bb", "'a\\x1bb' has a character that no script can hold", ""),
        ("-script slurm -N 2 a\udc80", "'a\\udc80' has a character that no script", ""),
        ("-script slurm -N 2 -N 3 true", "-N is given twice", ""),
        ("-script", "-script needs a value", ""),
        ("-scirpt slurm", "unknown option -scirpt", "Did you mean -script?"),
        ("-script slurm -N 2", "no program given", ""),
    ],
)
def test_wrong_options(words: str, message: str, hint: str) -> None:
    with pytest.raises(LaunchError) as error:
        read_request(parse(words.split(" ")))
    assert error.value.message.startswith(message)
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 5400), ("00:00:01", 1), ("100:00:00", 360000), ("2-1:0:0", 0)]
)
def test_times(text: str, seconds: int) -> None:
    if seconds:
        assert read_time(text) == seconds
    else:
        with pytest.raises(LaunchError):
            read_time(text)


@pytest.mark.parametrize(
    ("command", "name", "pod"),
    [
        (["python", "-u", "/x/My train.py", "y.py"], "My-train", "my-train"),
        (["/opt/bin/run_it", "x"], "run_it", "run-it"),
        (["..."], "ddlrun", "ddl"),
        (["7seas.py"], "7seas", "ddl-7seas"),
        (["x" * 99], "x" * 64, "x" * 32),
    ],
)
def test_names_by_the_program(command: list[str], name: str, pod: str) -> None:
    assert default_name(command, is_pod=False) == name
    assert default_name(command, is_pod=True) == pod


# -- files and submitting -------------------------------------------------------------------------

ASKED = ["-script", "slurm", "-N", "2", "-module", "none"]


def test_a_script_goes_to_a_new_file(ddlrun: Ddlrun, tmp_path: Path) -> None:
    shown = ddlrun(*ASKED, "python", "train.py")
    assert shown.returncode == 0, shown.stderr
    done = ddlrun(*ASKED, "-output", "job.sh", "python", "train.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "job.sh").read_text() == shown.stdout
    assert stat.S_IMODE((tmp_path / "job.sh").stat().st_mode) == 0o600
    again = ddlrun(*ASKED, "-output", "job.sh", "python", "other.py")
    assert again.returncode == 2
    assert again.stderr == ("ddlrun: error: -output job.sh: the file exists\n  Remove it first.\n")
    assert (tmp_path / "job.sh").read_text() == shown.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["job.sh"]


def test_a_file_that_cannot_be_written(ddlrun: Ddlrun, tmp_path: Path) -> None:
    done = ddlrun(*ASKED, "-output", "no/job.sh", "true")
    assert done.returncode == 2
    assert done.stderr == (
        "ddlrun: error: -output no/job.sh: cannot write the file: No such file or directory\n"
    )
