"""Lists and files of hosts: what each of their words means, and which name this machine."""

from pathlib import Path

import pytest
from ddl.launch.errors import LaunchError
from ddl.launch.hosts import Host, is_local, parse_hostfile, parse_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", [("a", None)]),
        ("a:4,b", [("a", 4), ("b", None)]),
        ("node[08-11]", [("node08", None), ("node09", None), ("node10", None), ("node11", None)]),
        ("n[1-2,7]:3", [("n1", 3), ("n2", 3), ("n7", 3)]),
        ("r[1-2]n[1-2].x", [(f"r{r}n{n}.x", None) for r in (1, 2) for n in (1, 2)]),
        ("a,a,b:2,b", [("a", 2), ("b", 3)]),
        ("10.0.0.1:2", [("10.0.0.1", 2)]),
    ],
)
def test_host_lists(text: str, hosts: list[tuple[str, int | None]]) -> None:
    assert parse_hosts(text) == [Host(*host) for host in hosts]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty host name"),
        ("a,,b", "empty host name"),
        ("a:0", "bad number of slots in 'a:0'"),
        ("a:", "bad number of slots in 'a:'"),
        ("a:x", "bad number of slots in 'a:x'"),
        ("n[1-3", "the bracket in 'n[1-3' is not closed"),
        ("n[3-1]", "the range in 'n[3-1]' runs backwards"),
        ("n[a-b]", "bad range in 'n[a-b]'"),
        ("n[1-999999999]", "is more than 100000 hosts"),
        ("n[1-400]m[1-400]", "is more than 100000 hosts"),
        ("-oProxyCommand=x", "'-oProxyCommand=x' is not a host name"),
        ("a;rm", "'a;rm' is not a host name"),
        ("$(x)", "'$(x)' is not a host name"),
        ("me@a", "'me@a' is not a host name"),
        ("a b", "'a b' is not a host name"),
        ("a" * 64, "is not a host name"),
        ("a..b", "'a..b' is not a host name"),
    ],
)
def test_wrong_host_lists(text: str, message: str) -> None:
    with pytest.raises(LaunchError) as error:
        parse_hosts(text)
    assert error.value.message.startswith("-host: ")
    assert message in error.value.message


def test_hostfile(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# all of them\n\nn[1-2] slots=4 max_slots=4  # fast\nlocalhost:2\nlast max-slots=2\n"
    )
    assert parse_hostfile(file) == [
        Host("n1", 4),
        Host("n2", 4),
        Host("localhost", 2),
        Host("last"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb slot=2\n", "{file}, line 2: 'slot=2' is not understood"),
        ("a slots=two\n", "{file}, line 1: bad number of slots in 'slots=two'"),
        ("a slots=4 max_slots=2\n", "{file}, line 1: slots=4 is more than max_slots=2"),
        ("a max_slots=x\n", "{file}, line 1: bad number of slots in 'max_slots=x'"),
        ("a:2 slots=2\n", "{file}, line 1: the slots are given twice"),
        ("\n\na`id`\n", "{file}, line 3: 'a`id`' is not a host name"),
        ("# none\n", "the hostfile {file} names no host"),
        ("\udcff", "the hostfile {file} is not a text file"),
    ],
)
def test_wrong_hostfiles(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(LaunchError) as error:
        parse_hostfile(file)
    assert error.value.message == message.format(file=file)


def test_no_hostfile(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"cannot read the hostfile .*: No such file"):
        parse_hostfile(tmp_path / "none")


def test_which_names_are_this_machine() -> None:
    assert is_local("localhost")
    assert is_local("127.0.0.1")
    assert not is_local("192.0.2.1")  # reserved for documentation (RFC 5737)
    assert not is_local("name.invalid")
