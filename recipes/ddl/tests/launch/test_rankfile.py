"""Files that place each rank on a host, and on cores of it."""

from pathlib import Path

import pytest
from ddl.launch.errors import LaunchError
from test_words import job, placement


def test_rankfile(tmp_path: Path) -> None:
    file = tmp_path / "ranks"
    file.write_text("# interleaved\nrank 0=a\nrank 1 = b\nrank 3=b\nrank 2=a\n")
    assert placement("-H", "a,b,c", "-rf", str(file)) == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rank 0=a\n0=b\n", "{file}, line 2: '0=b' is not understood"),
        ("rank 0=a slot=x\n", "{file}, line 1: slot=x is not understood"),
        ("rank 0=a slot=0:1;reboot\n", "{file}, line 1: slot=0:1;reboot is not understood"),
        ("rank 0=a slot=1-0\n", "{file}, line 1: slot=1-0: 1-0 runs backwards"),
        ("rank 0=a slot=0:0-1,0:7-6\n", "{file}, line 1: slot=0:0-1,0:7-6: 7-6 runs backwards"),
        ("rank 0=a core=1\n", "{file}, line 1: 'rank 0=a core=1' is not understood"),
        ("rank 0=c\n", "{file}, line 1: host c is not among the hosts given: a, b"),
        ("rank 0=a\nrank 0=b\n", "{file}, line 2: rank 0 is placed twice"),
        ("rank 0=a\nrank 2=b\n", "the rankfile {file} does not place rank 1"),
        ("", "the rankfile {file} does not place rank 0"),
        ("rank 0=a\nrank 1=a\n", "-np 3, but the rankfile {file} has 2 ranks"),
        (None, "cannot read the rankfile {file}: No such file or directory"),
    ],
)
def test_wrong_rankfiles(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "ranks"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LaunchError) as error:
        job("-H", "a,b", "-np", "3", "-rankfile", str(file))
    assert error.value.message == message.format(file=file)


def test_rankfiles_of_open_mpi_and_wml_ce(tmp_path: Path) -> None:
    """With cores, and without hosts beside it."""
    file = tmp_path / "ranks"
    file.write_text("rank 0=a slot=0:0-7\nRank 1=b slots=1:*\nrank 2=a\n")
    made = job("-rf", str(file))
    assert [made.host_of(rank) for rank in range(3)] == ["a", "b", "a"]
    assert made.environment["DDLRUN_SLOTS"] == "0:0-7;1:*;"
    file.write_text("rank 0=a\n")
    assert "DDLRUN_SLOTS" not in job("-rf", str(file)).environment
