"""Hosts on networks of their own: the address of mpiexec that all of them are told.

Each host is a network namespace, and only the way into it is not ssh's.
"""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from test_hosts import may_unshare

from conftest import DDLRUN, Result

pytestmark = pytest.mark.skipif(not may_unshare(), reason="needs namespaces (root) and ip")

# Host n has the address 10.7.n.2, and ours there is 10.7.n.1.
HOSTS = """
ip link set lo up
for n in 1 2; do
    unshare -n sleep 300 </dev/null >/dev/null 2>&1 &
    pid=$!; echo $pid >"$FOLDER/10.7.$n.2"; pids="$pids $pid"
    until nsenter -t $pid -n ip link 2>/dev/null | grep -q lo &&
        [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
    ip link add to$n type veth peer name eth0 netns $pid
    ip addr add 10.7.$n.1/24 dev to$n
    ip link set to$n up
    inside="nsenter -t $pid -n ip"
    $inside link set lo up; $inside addr add 10.7.$n.2/24 dev eth0; $inside link set eth0 up
done
trap 'kill $pids' EXIT
route() { nsenter -t $(cat "$FOLDER/10.7.$1.2") -n ip route add default via 10.7.$1.1; }
"""
SSH = """#!/bin/sh
while :; do
    case $1 in
        -o) shift 2;;
        -*) shift;;
        *) break;;
    esac
done
host=$1; shift
[ "$1" != -- ] || shift
exec nsenter -t $(cat {folder}/$host) -n sh -c "$*"
"""

ToHosts = Callable[..., Result]


@pytest.fixture
def between(tmp_path: Path) -> ToHosts:
    """Runs ddlrun beside the two hosts, with the routes that `routes` makes."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH.format(folder=tmp_path))
    ssh.chmod(0o755)

    def run(*words: str, hosts: str = "10.7.1.2:1,10.7.2.2:1", routes: str = "") -> Result:
        ddlrun = shlex.join([*DDLRUN, "-H", hosts, *words])
        script = f"FOLDER={tmp_path}; PATH={ssh.parent}:$PATH\n{HOSTS}\n{routes}\n{ddlrun}"
        return subprocess.run(
            ["unshare", "-n", "bash", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run


SAY = ("sh", "-c", "echo $RANK")


@pytest.mark.parametrize(("host", "own"), [("1", "10.7.2.1"), ("2", "10.7.1.1")])
def test_hosts_are_told_the_address_that_all_reach(between: ToHosts, host: str, own: str) -> None:
    """One alone has a route to the other's network."""
    result = between("-v", *SAY, routes=f"route {host}")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["[0@10.7.1.2] 0", "[1@10.7.2.2] 1"]
    assert f" -localhost {own} " in result.stderr


def test_hosts_that_reach_no_common_address(between: ToHosts) -> None:
    result = between(*SAY)
    assert result.returncode == 2
    assert result.stderr.startswith(
        "ddlrun: error: no address of this host is reached by all hosts: "
        "10.7.1.2 reaches 10.7.1.1; 10.7.2.2 reaches 10.7.2.1\n"
    )
    assert "-mpiarg '-localhost ADDRESS'" in result.stderr


@pytest.mark.parametrize("words", ["-localhost 10.7.2.1", "--localhost=10.7.2.1"])
def test_the_address_is_the_users_choice(between: ToHosts, words: str) -> None:
    result = between("-v", "-mpiarg", words, *SAY, routes="route 1")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("-localhost") == 1


def test_the_interface_is_the_users_choice(between: ToHosts) -> None:
    result = between("-mpiarg", "-iface to2", *SAY, routes="route 1")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("words", ["-localhost 10.7.2.1", "-iface to2"])
def test_nor_is_it_given_twice_where_this_host_has_ranks(between: ToHosts, words: str) -> None:
    result = between("-mpiarg", words, "-dry-run", *SAY, hosts="10.7.1.1:1,10.7.1.2:1")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("-localhost") == 1
