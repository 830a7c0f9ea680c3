"""The collectives on real ranks: on one host, and over pretended ones, equally filled or not."""

from __future__ import annotations

import importlib.util
import re
import socket
from pathlib import Path

import pytest

from conftest import PROGRAMS, Launch

# (ranks, pretended hosts; 0: the real one). Hosts take ranks in turn, so they are interleaved.
LAYOUTS = [(1, 0), (2, 0), (3, 0), (4, 0), (2, 2), (3, 2), (4, 3)]
SMALL_CHUNK = 1024

layouts = pytest.mark.parametrize(("n", "hosts"), LAYOUTS)


@layouts
def test_reductions_are_exact(passes: Launch, n: int, hosts: int) -> None:
    passes("reductions", "exact", n=n, hosts=hosts, chunk=SMALL_CHUNK)


# Each has all tests of one collective: see docs/howto/collective.md.
ONE_EACH = sorted(path.stem for path in PROGRAMS.glob("collective_*.py"))


@layouts
@pytest.mark.parametrize("program", ONE_EACH)
def test_one_collective(passes: Launch, program: str, n: int, hosts: int) -> None:
    passes(program, n=n, hosts=hosts, chunk=SMALL_CHUNK)


@pytest.mark.parametrize("program", ONE_EACH)
def test_one_collective_with_options(passes: Launch, tmp_path: Path, program: str) -> None:
    passes(program, n=4, hosts=3, env={"DDL_OPTIONS": "-deterministic 1"})
    passes(program, n=4, hosts=3, chunk=SMALL_CHUNK, env=topology(tmp_path, RACKS))
    passes(program, n=6, hosts=2, chunk=SMALL_CHUNK, env={"DDL_FAKE_SOCKETS": "2"})
    for schedule in ("halving", "ring", "tree"):
        options = {"DDL_OPTIONS": f"-schedule {schedule}"}
        passes(program, n=4, hosts=4, chunk=SMALL_CHUNK, env=options)


@layouts
def test_sums_are_rounded_once_per_level_in_order(passes: Launch, n: int, hosts: int) -> None:
    # Chunks in which every host has a part of its own.
    passes("reductions", "order", n=n, hosts=hosts, chunk=8 * SMALL_CHUNK)


# (ranks, pretended hosts, pretended sockets of each): as many ranks on each socket, and not.
@pytest.mark.parametrize(("n", "hosts", "sockets"), [(4, 0, 2), (5, 0, 2), (6, 2, 2)])
def test_sockets_are_summed_first(passes: Launch, n: int, hosts: int, sockets: int) -> None:
    on_sockets = {"DDL_FAKE_SOCKETS": str(sockets)}
    passes("reductions", "exact", n=n, hosts=hosts, chunk=SMALL_CHUNK, env=on_sockets)
    passes("reductions", "order", n=n, hosts=hosts, chunk=8 * SMALL_CHUNK, env=on_sockets)
    passes("movement", n=n, hosts=hosts, chunk=SMALL_CHUNK, env=on_sockets)


# With whole chunks: copies of less than 1 KiB go through the caches anyway.
@pytest.mark.parametrize("chunk", [0, SMALL_CHUNK])
@pytest.mark.parametrize("n", [2, 5])
def test_far_processors_write_past_their_caches(passes: Launch, n: int, chunk: int) -> None:
    for program in ("exact", "order"):
        passes("reductions", program, n=n, chunk=chunk, env={"DDL_FAKE_FAR": "1"})


def topology(folder: Path, text: str) -> dict[str, str]:
    """Options with a topology file of pretended hosts: `@0` is the first of them."""
    file = folder / "topology.yaml"
    file.write_text(text.replace("@", f"{socket.gethostname()}/"))
    return {"DDL_OPTIONS": f"-topology {file}"}


# Racks of one and two hosts, known and unknown links, and a host that the job does not use.
RACKS = """
children:
- bandwidth: 1
  children: [{host: "@2", bandwidth: 4}, {host: "@0", bandwidth: 1}]
- bandwidth: 2
  latency: 3
  children: [{host: "@1"}]
- children: [{host: "@7"}]
"""


def test_sockets_of_a_topology_file_come_first(passes: Launch, tmp_path: Path) -> None:
    text = 'children: [{host: "@0", sockets: 2}, {host: "@1", sockets: 1}]'
    options = topology(tmp_path, text)["DDL_OPTIONS"] + " -dbg_level 1"
    env = {"DDL_OPTIONS": options, "DDL_FAKE_SOCKETS": "3"}
    told = passes("reductions", "exact", n=6, hosts=2, chunk=SMALL_CHUNK, env=env).stderr
    by_socket = r" \(rank@socket\), summed by socket"
    assert re.search(rf"/0: ranks 0@0 2@0 4@1{by_socket}$", told, re.M), told
    assert re.search(r"/1: ranks 1@0 3@0 5@0$", told, re.M), told


@pytest.mark.parametrize(("n", "hosts"), [(3, 3), (4, 3), (2, 2)])
def test_collectives_follow_a_topology(passes: Launch, tmp_path: Path, n: int, hosts: int) -> None:
    passes(
        "reductions",
        "exact",
        n=n,
        hosts=hosts,
        chunk=SMALL_CHUNK,
        env=topology(tmp_path, RACKS),
    )
    passes("movement", n=n, hosts=hosts, chunk=SMALL_CHUNK, env=topology(tmp_path, RACKS))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("children: [{host: a}]", "host '.*/0' of this job is not in the file"),
        ("children:\n- rack: 3\n", "topology.yaml:2: unknown key 'rack'"),
        ("", "topology.yaml: the file is empty"),
        (None, "rank 0 cannot read this file"),
    ],
)
def test_a_wrong_topology_is_an_error_on_every_rank(
    launch: Launch, tmp_path: Path, text: str | None, message: str
) -> None:
    options = topology(tmp_path, text or "")
    if text is None:
        (tmp_path / "topology.yaml").unlink()
    result = launch("movement", n=2, hosts=2, chunk=SMALL_CHUNK, env=options)
    assert result.returncode != 0
    assert len(re.findall(message, result.stderr)) >= 2, result.stderr


def test_deterministic_sums_know_no_topology(
    launch: Launch, passes: Launch, tmp_path: Path
) -> None:
    racks = topology(tmp_path, RACKS)["DDL_OPTIONS"]
    always = {"DDL_OPTIONS": "-deterministic 1"}
    digests = {
        passes("digest", n=4, hosts=hosts, env=env).stdout
        for hosts, env in [
            *((hosts, always) for hosts in (0, 2, 3, 4)),
            (3, {"DDL_OPTIONS": f"-deterministic 1 {racks}"}),
            (0, always | {"DDL_FAKE_SOCKETS": "2"}),
        ]
    }
    assert len(digests) == 1
    # Without it, the hosts' partial sums are rounded: blocks and vectors are cut differently too.
    loose = launch("digest", n=4, hosts=3)
    assert loose.stdout not in digests


def test_a_mode_with_racks(passes: Launch) -> None:
    passes(
        "reductions",
        "exact",
        n=4,
        hosts=4,
        chunk=SMALL_CHUNK,
        env={"DDL_OPTIONS": "-mode p:1x2x2"},
    )


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="bfloat16 comes with torch")
@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (4, 0), (4, 3)])
def test_bfloat16(passes: Launch, n: int, hosts: int) -> None:
    passes("reductions", "bfloat16", n=n, hosts=hosts, chunk=SMALL_CHUNK)


@layouts
def test_every_byte_arrives(passes: Launch, n: int, hosts: int) -> None:
    passes("movement", n=n, hosts=hosts, chunk=SMALL_CHUNK)


@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (4, 2)])
def test_default_chunks(passes: Launch, n: int, hosts: int) -> None:
    passes("reductions", "exact", n=n, hosts=hosts)
    passes("movement", n=n, hosts=hosts)


@pytest.mark.parametrize(("n", "hosts"), [(1, 0), (2, 0), (4, 0), (4, 3)])
def test_direct_exchanges(passes: Launch, n: int, hosts: int) -> None:
    passes("exchange", n=n, hosts=hosts)


@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (4, 0), (2, 2), (4, 3), (4, 4)])
def test_disagreement_is_an_error_everywhere(passes: Launch, n: int, hosts: int) -> None:
    passes("disagree", n=n, hosts=hosts)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [0, 2])
def test_more_elements_than_32_bits_count(passes: Launch, hosts: int) -> None:
    """Takes 9 GB of memory."""
    passes("huge", n=2, hosts=hosts)


def test_hosts_that_know_their_place(passes: Launch) -> None:
    verbose = {"DDL_OPTIONS": "-dbg_level 1"}
    result = passes("places", "x/r1", "x/r0", "x/r1", "x", n=4, hosts=4, env=verbose)
    tree = [line.split("ddl] ")[-1].split("/")[-1].strip() for line in result.stderr.splitlines()]
    text = " ".join(tree)
    assert "r1 0 2 1 3" in text or "r1 0 2 3 1" in text, result.stderr


def test_a_wrong_place_is_an_error_on_every_rank(launch: Launch) -> None:
    result = launch("places", "r1", "r//0", "r1", n=3, hosts=3)
    assert result.returncode != 0
    assert len(re.findall(r"host \S+/1 says that its place is 'r//0'", result.stderr)) >= 3
