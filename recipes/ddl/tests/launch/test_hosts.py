"""Lists and files of hosts: what each of their words means, and which name this machine."""

import subprocess
import sys
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
        ("a,a,b,c:3", [("a", 2), ("b", 1), ("c", 3)]),
        ("10.0.0.1:2", [("10.0.0.1", 2)]),
        ("localhost:2,", [("localhost", 2)]),
        ("::1", [("localhost", None)]),
        ("[::1]:2,a", [("localhost", 2), ("a", None)]),
        ("[0:0::1],::1", [("localhost", 2)]),
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
        (",", "empty host name"),
        ("[::1]:x", "bad number of slots in '[::1]:x'"),
        ("2001:db8::5:1", "'2001:db8::5:1' may be an address, or another with slots"),
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


def test_an_address_without_a_name() -> None:
    """2001:db8::/32 is for documentation (RFC 3849)."""
    with pytest.raises(LaunchError, match="-host: 2001:db8::7 has no name") as error:
        parse_hosts("[2001:db8::7]:2")
    assert "/etc/hosts" in error.value.hint


def test_words_of_a_hostfile_that_mean_one_thing(tmp_path: Path) -> None:
    """A byte-order mark, ends of lines of Windows, commas at the end, and IPv6."""
    file = tmp_path / "hosts"
    file.write_bytes(b"\xef\xbb\xbfh1,\r\nlocalhost:2,\r\nh2, slots=3\r\n")
    assert parse_hostfile(file) == [Host("h1"), Host("localhost", 2), Host("h2", 3)]
    file.write_text("::1 slots=2\n")
    assert parse_hostfile(file) == [Host("localhost", 2)]


def test_no_hostfile(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"cannot read the hostfile .*: No such file"):
        parse_hostfile(tmp_path / "none")


def test_which_names_are_this_machine() -> None:
    assert is_local("localhost")
    assert is_local("127.0.0.1")
    assert is_local("127.0.0.2")
    assert is_local("::1")
    assert not is_local("2001:db8::1")  # RFC 3849
    assert not is_local("192.0.2.1")  # reserved for documentation (RFC 5737)
    assert not is_local("name.invalid")


NAMESPACE = """
for version in 4 6; do echo 1 >/proc/sys/net/ipv$version/ip_nonlocal_bind; done
ip link set lo up
ip link add one type veth peer name two
ip addr add 10.7.7.1/24 dev one
ip addr add 10.7.7.2/24 dev one
ip addr add fd00:7::1/64 dev one nodad
ip link set one up
ip link set two up
ip route add default dev one
exec "$0" -c "$1"
"""
ASK = """
from ddl.launch.hosts import is_local
names = ["localhost", "10.7.7.1", "10.7.7.2", "fd00:7::1", "10.7.7.9", "10.9.9.9", "fd00:7::9"]
print(*(name for name in names if is_local(name)))
"""


def may_unshare() -> bool:
    command = ["unshare", "-n", "sh", "-c", "ip link add one type veth peer name two"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not may_unshare(), reason="needs namespaces (root), unshare and ip")
def test_a_strange_address_is_not_ours_though_it_can_be_bound() -> None:
    command = ["unshare", "-n", "sh", "-ec", NAMESPACE, sys.executable, ASK]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.stdout == "localhost 10.7.7.1 10.7.7.2 fd00:7::1\n", said.stderr
