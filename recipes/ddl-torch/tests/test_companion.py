"""Ranks that are killed, stopped and started again: the others go on, and nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.distributed as dist
from companions import (
    HOSTS,
    Rank,
    ask_all,
    descendants,
    is_alive,
    shared_files,
    wait_until,
)
from ddl_torch.companion import watch
from hosts import Hosts, may_make_hosts

Begin = Callable[..., list[Rank]]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts ranks, and sees at the end that nothing of them is left."""
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    begun: list[Rank] = []

    def some(count: int, seconds: float = 120, **environment: str) -> list[Rank]:
        address = f"localhost:{server.port}"
        ranks = [Rank(address, seconds, environment) for _ in range(count)]
        begun.extend(ranks)
        assert [rank.hear() for rank in ranks] == ["here"] * count
        return ranks

    yield some
    companions = [child for rank in begun for child in descendants(rank.process.pid)]
    files = shared_files(companions)
    for rank in begun:
        rank.process.kill()
        rank.process.wait()
    wait_until(lambda: not any(is_alive(one) for one in companions))
    # A process that a first member of this host has begun removes them when the others are gone.
    wait_until(lambda: not any(file.exists() for file in files))


@pytest.mark.parametrize("environment", [{}, HOSTS], ids=["one host", "hosts"])
def test_the_others_go_on_after_a_kill_and_a_new_rank_joins(
    begin: Begin, environment: dict[str, str]
) -> None:
    ranks = begin(3, **environment)
    assert ask_all(ranks, "meet first # %") == ["3 met"] * 3
    assert ask_all(ranks, "add # 1000") == ["3 6 9"] * 3
    for rank in ranks:
        rank.tell("for_ever")
    time.sleep(0.5)
    companions = descendants(ranks[1].process.pid)
    files = shared_files(companions)
    ranks[1].process.kill()
    survivors = [ranks[0], ranks[2]]
    assert all(rank.hear().startswith("CompanionError: ") for rank in survivors)
    assert all("None" not in word for word in ask_all(survivors, "failed"))
    assert ask_all(survivors, "meet second # %") == ["2 met"] * 2
    assert ask_all(survivors, "add # 1000") == ["1 3 5"] * 2
    assert ask_all(survivors, "failed") == ["None"] * 2
    wait_until(lambda: not any(is_alive(one) for one in companions))
    again = [*survivors, *begin(1, **environment)]
    assert ask_all(again, "meet third # %") == ["3 met"] * 3
    assert ask_all(again, "add # 1000000") == ["3 6 9"] * 3
    assert ask_all(again, "end") == ["ended"] * 3
    wait_until(lambda: not any(file.exists() for file in files))


def test_the_others_go_on_without_a_stopped_rank(begin: Begin) -> None:
    """Nothing breaks when a rank is stopped, so the timeout finds it. Later it may come back."""
    ranks = begin(3, seconds=15)
    met = ask_all(ranks, "meet first # %")
    for attempt in range(5):  # a busy machine takes longer than that to begin
        if met == ["3 met"] * 3:
            break
        met = ask_all(ranks, f"meet again{attempt} # %")
    assert met == ["3 met"] * 3
    os.kill(ranks[0].process.pid, signal.SIGSTOP)
    survivors = ranks[1:]
    for answer in ask_all(survivors, "add # 10"):
        assert "rank 0 (host " in answer, answer
        assert "did not arrive within 15 s" in answer, answer
    assert ask_all(survivors, "meet second # %") == ["2 met"] * 2
    assert ask_all(survivors, "add # 10") == ["1 3 5"] * 2
    os.kill(ranks[0].process.pid, signal.SIGCONT)
    assert ranks[0].ask("add 0 10").startswith("CompanionError: ")
    assert ask_all(ranks, "meet third # %") == ["3 met"] * 3
    assert ask_all(ranks, "add # 10") == ["3 6 9"] * 3


def test_a_companion_that_is_killed_is_made_anew(begin: Begin) -> None:
    ranks = begin(2)
    assert ask_all(ranks, "meet first # %") == ["2 met"] * 2
    companions = descendants(ranks[1].process.pid)
    os.kill(int(ranks[1].ask("companion")), signal.SIGKILL)
    wait_until(lambda: not any(is_alive(one) for one in companions))  # its member ends with it
    answers = ask_all(ranks, "add # 10")
    assert answers[0].startswith("CompanionError: ddl: rank 1 (host ")
    assert answers[1] == "CompanionError: the process that communicates for this rank has ended"
    assert ask_all(ranks, "meet second # %") == ["2 met"] * 2
    assert ask_all(ranks, "add # 10") == ["1 3 5"] * 2


def test_a_wrong_call_is_refused_and_the_group_goes_on(begin: Begin) -> None:
    (rank,) = begin(1)
    assert rank.ask("add 1 10") == (
        "CompanionError: allreduce: the group has no ranks yet; call configure first"
    )
    assert rank.ask("meet first 0 1") == "1 met"
    refusal = rank.ask("wrong")
    assert refusal.startswith(
        "ValueError: ddl: all_to_all_single: the split sizes must be 1 numbers"
    )
    assert rank.ask("add 1 10") == "1 2 3"


def test_refused_calls_keep_no_memory(begin: Begin) -> None:
    (rank,) = begin(1)
    assert rank.ask("meet first 0 1") == "1 met"
    rank.ask("wrong")
    before = rank.ask("buffers")
    for _ in range(5):
        assert rank.ask("wrong").startswith("ValueError: ")
    assert rank.ask("buffers") == before


def test_signals_to_the_rank_do_not_end_its_companion(begin: Begin) -> None:
    """Launchers signal a group of processes: here the rank would save, and go on."""
    ranks = begin(2)
    for rank in ranks:  # they still import torch
        os.kill(int(rank.ask("companion")), signal.SIGTERM)
    assert ask_all(ranks, "meet first # %") == ["2 met"] * 2
    for rank in ranks:
        for one in descendants(rank.process.pid):
            for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
                os.kill(one, number)
    assert ask_all(ranks, "add # 1000") == ["1 3 5"] * 2


def test_a_callback_may_wait_for_another_operation(begin: Begin) -> None:
    ranks = begin(2)
    assert ask_all(ranks, "meet first # %") == ["2 met"] * 2
    assert ask_all(ranks, "chain") == ["4.0"] * 2


def test_tensors_under_way_keep_no_descriptors(begin: Begin) -> None:
    (rank,) = begin(1)
    assert rank.ask("meet first 0 1") == "1 met"
    assert rank.ask("many 50") == "0"


def test_without_a_descriptor_the_group_fails_and_is_made_anew(begin: Begin) -> None:
    (rank,) = begin(1)
    assert rank.ask("meet first 0 1") == "1 met"
    said = rank.ask("starved")
    assert said == "CompanionError: allreduce: no memory to share: Too many open files"
    assert rank.ask("failed").startswith("allreduce: no memory to share")
    assert rank.ask("meet second 0 1") == "1 met"
    assert rank.ask("add 1 10") == "1 2 3"


def test_a_companion_ends_though_a_forked_process_lives_on(begin: Begin) -> None:
    """A worker of a DataLoader has our end of the socket, too."""
    (rank,) = begin(1)
    assert rank.ask("meet first 0 1") == "1 met"
    companion = int(rank.ask("companion"))
    child = int(rank.ask("leave"))
    assert is_alive(child)
    assert not is_alive(companion)
    os.kill(child, signal.SIGKILL)


def test_ranks_that_do_not_come_are_named(begin: Begin) -> None:
    (rank,) = begin(1, seconds=1)
    assert rank.ask("meet first 0 2") == (
        "CompanionError: backend ddl: rank 0 has timed out after 1 s: rank 1 did not come"
    )


STORE = """
import torch.distributed as dist
store = dist.TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
input()
"""


@pytest.fixture
def ranks_of_hosts() -> Iterator[tuple[Hosts, list[Rank]]]:
    """Three hosts with a rank on each, whose timeout is much longer than a test lasts."""
    begun: list[subprocess.Popen[str]] = []
    with Hosts(3) as hosts:
        words = [*hosts.on(None), sys.executable, "-c", STORE]
        begun.append(
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert begun[0].stdout
        address = f"{hosts.hub_address}:{begun[0].stdout.readline().strip()}"
        ranks = [Rank(address, 300, {}, hosts.on(number)) for number in range(3)]
        begun += [rank.process for rank in ranks]
        assert [rank.hear() for rank in ranks] == ["here"] * 3
        yield hosts, ranks
        for process in begun:
            process.kill()
            process.communicate()


@pytest.mark.skipif(not may_make_hosts(), reason="needs namespaces (root) and ip")
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("end", ["kill", "cut"])
def test_other_hosts_notice_an_end_without_the_timeout(
    ranks_of_hosts: tuple[Hosts, list[Rank]], victim: int, end: str
) -> None:
    hosts, ranks = ranks_of_hosts
    assert ask_all(ranks, "meet first # %") == ["3 met"] * 3
    assert ask_all(ranks, "add # 1000") == ["3 6 9"] * 3
    survivors = [rank for number, rank in enumerate(ranks) if number != victim]
    for rank in survivors:
        rank.tell("add 1 10")  # nothing breaks in MPI: the lost rank is in no call
    if end == "kill":
        ranks[victim].process.kill()
    else:
        hosts.cut(victim)
    said = "ended, or cannot be reached any more"
    lost = f"CompanionError: ddl: rank {victim} (host host{victim}) has {said}"
    assert [rank.hear() for rank in survivors] == [lost] * 2
    assert ask_all(survivors, "meet second # %") == ["2 met"] * 2
    assert ask_all(survivors, "add # 1000") == ["1 3 5"] * 2


@pytest.mark.skipif(not may_make_hosts(), reason="needs namespaces (root) and ip")
def test_a_rank_that_has_left_is_missed_by_the_next_call(
    ranks_of_hosts: tuple[Hosts, list[Rank]],
) -> None:
    """Not by those that have had all that they asked for."""
    _, ranks = ranks_of_hosts
    assert ask_all(ranks, "meet first # %") == ["3 met"] * 3
    ranks[1].process.kill()
    time.sleep(2)
    assert ask_all(ranks[::2], "failed") == ["None"] * 2
    for answer in ask_all(ranks[::2], "add # 10"):
        assert answer.startswith("CompanionError: ddl: rank 1 (host host1) has ended")


@pytest.mark.parametrize("answer", [b"", b"x" * 200])
def test_strangers_get_into_no_group(answer: bytes) -> None:
    """Nor does what listens where rank 0 should."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rwb") as file:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionAbortedError):
            watch._let_in(file, b"key")
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rwb") as file:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionAbortedError):
            watch._come_in(file, b"key", 1)


def test_both_sides_need_the_same_key() -> None:
    for key, is_known in ((b"key", True), (b"other", False)):
        ours, theirs = socket.socketpair()
        with ours, theirs, ours.makefile("rwb") as file, theirs.makefile("rwb") as other:
            came: list[bool] = []

            def come(file: Any = other, key: bytes = key, came: list[bool] = came) -> None:
                try:
                    watch._come_in(file, key, 7)
                except OSError:
                    came.append(False)
                else:
                    came.append(True)

            thread = threading.Thread(target=come)
            thread.start()
            if is_known:
                assert watch._let_in(file, b"key") == 7
            else:
                with pytest.raises(ConnectionAbortedError):
                    watch._let_in(file, b"key")
                ours.shutdown(socket.SHUT_RDWR)
            thread.join()
            assert came == [is_known]
