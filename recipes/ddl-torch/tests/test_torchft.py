"""ddl in torchft: its own tests are the judge, then replicas are killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

groups: Any = pytest.importorskip(
    "torchft.process_group_test", reason="torchft is not here: pip install torchft parameterized"
)
life: Any = pytest.importorskip("torchft.manager_integ_test")

import torch.distributed as dist  # noqa: E402
from ddl_torch.torchft import DistributedDataParallel, ProcessGroupDDL  # noqa: E402
from torchft.coordination import LighthouseServer  # noqa: E402

REPLICA = Path(__file__).with_name("torchft_replica.py")
COLLECTIVES = sorted(groups._COLLECTIVE_TO_FUNC)
#: Of the manager's tests those on CPUs, which take torchft's group over Gloo.
LIVES = sorted(
    name
    for name in dir(life.ManagerIntegTest)
    if name.startswith("test_")
    and callable(getattr(life.ManagerIntegTest, name))
    and "torchcomms" not in name
    and "manager_allreduce" not in name
)
#: Each of torchft's tests knows the errors of Gloo and NCCL alone.
OUR_WORDS = "has died|has ended|gave up|aborted|did not arrive|no answer within|unusable"


class Several(groups.MultiPgBaseTest):  # type: ignore[misc] # torchft's are Any here
    WORLD_SIZE = 3

    @classmethod
    def _create_pg(cls, backend: str) -> ProcessGroupDDL:
        return ProcessGroupDDL(timeout=timedelta(seconds=60))

    def assertRaisesRegex(self, kind: Any, words: str, *more: Any) -> Any:
        return super().assertRaisesRegex(kind, f"{words}|{OUR_WORDS}", *more)  # noqa: PT027

    def test_collectives(self) -> None:
        for name in COLLECTIVES:
            with self.subTest(name):
                self._run_parallel(name)

    def test_the_others_go_on_after_each(self) -> None:
        # Rank 2 has no part in send/recv, and is lost before the others have had theirs.
        for name in set(COLLECTIVES) - {"send/recv"}:
            with self.subTest(name):
                self._run_with_resiliency(name)


def test_all_calls_of_one_rank() -> None:
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupDDL()
    for name in ("first", "second"):
        group.configure(f"localhost:{server.port}/{name}", "0", 0, 1)
        assert len(groups._test_pg(group)) == 10
    group.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVES)
def test_torchfts_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "ProcessGroupGloo", ProcessGroupDDL)
    monkeypatch.setattr(life, "DistributedDataParallel", DistributedDataParallel)
    result = unittest.TestResult()
    life.ManagerIntegTest(name).run(result)
    assert not result.failures + result.errors, result.failures + result.errors


class Replica:
    """A process of `torchft_replica.py`."""

    def __init__(self, name: int, lighthouse: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(REPLICA), str(name)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TORCHFT_LIGHTHOUSE": lighthouse},
        )

    def steps(self) -> Iterator[tuple[int, int, str]]:
        """Each one's number, how many replicas made it, and the weights after it."""
        assert self.process.stdout
        for line in self.process.stdout:
            step, replicas, weights = line.split()
            yield int(step), int(replicas), weights

    def wait_for(self, replicas: int) -> int:
        """The first step to come with that many replicas."""
        for step, count, _ in self.steps():
            if count == replicas:
                return step
        raise AssertionError("the replica has ended")


def test_a_training_goes_on_when_a_replica_is_killed_and_comes_back() -> None:
    house = LighthouseServer(
        bind="[::]:0", min_replicas=1, join_timeout_ms=1000, heartbeat_timeout_ms=5000
    )
    replicas = [Replica(name, house.address()) for name in range(3)]
    try:
        for replica in replicas:
            replica.wait_for(3)
        replicas[1].process.kill()
        last = replicas[0].wait_for(2)
        replicas[1] = Replica(1, house.address())
        # With the others' state, not from the beginning.
        assert all(replica.wait_for(3) > last for replica in replicas)
        some = [
            {step: weights for step, _, weights in islice(replica.steps(), 20)}
            for replica in replicas
        ]
        common = set.intersection(*(set(steps) for steps in some))
        assert common
        for step in common:
            assert len({steps[step] for steps in some}) == 1, step
    finally:
        for replica in replicas:
            replica.process.kill()
            replica.process.wait()
        house.shutdown()
