"""A training as a job of Slurm in the lab: interrupted in several ways, and started again."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.lab.namespaces import LabError, wait_until
from bench.lab.slurm import Slurm

WORKER = Path(__file__).parent / "workers" / "requeue.py"
SAVE_EVERY = 3
"""Steps between the worker's checkpoints."""
STATE_TIMEOUT_S = 90.0
"""Seconds for the job to end, and to begin again."""
FOREVER = 10**9

WAYS = ("USR1", "requeue", "kill a rank", "kill all", "node down")
GONE = ("PENDING", "FAILED", "NODE_FAIL", "CANCELLED", "COMPLETED")
"""States of a job of which nothing runs any more; COMPLETING is none."""


@dataclass(frozen=True)
class Cycle:
    """One interruption.

    Attributes:
        way: what was done to the job.
        moment: seconds after Slurm had started it.
        made: the last step that a rank has made.
        saved: steps of the newest complete checkpoint when the job was gone.
        resumed: steps from which the job went on.
        half: checkpoints that were half-written.
        damaged: checkpoints under their final name whose files are not as their manifest says.
        trained: the job was training when it was interrupted.
        requeued: the job asked Slurm itself to start it again, or Slurm did.
        seconds: from the interruption until the job ran again.
    """

    way: str
    moment: float
    made: int
    saved: int
    resumed: int
    half: int
    damaged: int
    trained: bool
    requeued: bool
    seconds: float

    @property
    def lost(self) -> int:
        """Steps that are made again."""
        return max(0, self.made - self.resumed)

    @property
    def announced(self) -> bool:
        """The ranks were training, and had a signal and time to save."""
        return self.way == "USR1" and self.trained and self.requeued


class Training:
    """A job that trains until its number of steps is known, which `finish` says.

    Args:
        prefix: an environment with ddl.
        name: of its folder.
        pause: seconds of each step.
        total: steps.
        options: for sbatch.
    """

    def __init__(
        self,
        slurm: Slurm,
        prefix: Path,
        name: str,
        pause: float,
        total: int = FOREVER,
        options: tuple[str, ...] = ("-N2", "--requeue"),
    ) -> None:
        self._slurm, self.folder = slurm, slurm.folder / name
        self.folder.mkdir()
        (self.folder / "total").write_text(str(total))
        self._at_work = 0  # starts, when the job was last seen to be gone
        script = (
            "#!/bin/bash\n#SBATCH --open-mode=append\n"
            f"export PATH={prefix}/bin:$PATH\n"
            f"exec ddlrun python {WORKER} {self.folder} {pause}\n"
        )
        self.number = slurm.submit(script, *options, "-o", str(self.folder / "out"))

    def state(self) -> str:
        """Slurm's word for the job's state."""
        return self._slurm.job(self.number).get("JobState", "")

    def starts(self) -> list[int]:
        """Steps that were done at each start."""
        file = self.folder / "starts"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def made(self) -> int:
        """The last step that any rank has made since the job was submitted."""
        found = [0]
        for file in self.folder.glob("progress.*"):
            found += [int(line) for line in file.read_text().split()[-1:]]
        return max(found)

    def weights(self) -> set[bytes]:
        """The weights at the end, once if they are the same on all ranks."""
        return {file.read_bytes() for file in self.folder.glob("weights.*")}

    def programs(self) -> dict[int, list[str]]:
        """The words of the ranks' processes, by their numbers."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = path.read_bytes().decode(errors="replace").split("\0")
                if str(self.folder) in words:
                    found[int(path.parent.name)] = words
        return found

    def is_gone(self) -> bool:
        """Whether nothing of the job runs: its ranks may end after Slurm has called it PENDING."""
        return not self.programs() and self.state() in GONE

    def complete(self) -> tuple[int, int]:
        """The steps of the newest complete checkpoint, 0 without one, and how many are damaged.

        Judged here by the files alone, not by the library.
        """
        newest = damaged = 0
        for path in sorted((self.folder / "saved").glob("step-*")):
            if _is_complete(path):
                newest = int(path.name.partition("-")[2])
            else:
                damaged += 1
        return newest, damaged

    def interrupt(self, way: str, moment: float) -> Cycle:
        """Interrupt the job, look at what is left, and have it run again.

        Args:
            moment: seconds to wait before, from the start of the job.
        """
        self._until(lambda: self.state() == "RUNNING", "the job's start")
        time.sleep(moment)
        began, trained = time.monotonic(), self._at_work < len(self.starts())
        self._act(way)
        self._until(self.is_gone, "the job's end")
        made, (saved, damaged) = self.made(), self.complete()
        half = len(list((self.folder / "saved").glob(".step-*")))
        begun = self._at_work = len(self.starts())
        requeued = self.state() == "PENDING"
        if not requeued:
            self._order("scontrol", "requeue", str(self.number))
        self._hurry()
        self._until(lambda: len(self.starts()) > begun, "the job's next start")
        seconds = time.monotonic() - began
        resumed = self.starts()[-1]
        return Cycle(
            *(way, moment, made, saved, resumed, half, damaged, trained, requeued, seconds)
        )

    def finish(self, steps: int) -> int:
        """Have it end some steps after its last checkpoint; the whole number of steps.

        Raises:
            LabError: it does not end well.
        """
        self._order("scancel", "--batch", "--signal=USR1", str(self.number))
        self._until(self.is_gone, "the job's end")
        total = self.complete()[0] + steps
        (self.folder / "total").write_text(str(total))
        if self.state() != "PENDING":
            self._order("scontrol", "requeue", str(self.number))
        self._hurry()
        state = self._slurm.wait(self.number, STATE_TIMEOUT_S)["JobState"]
        if state != "COMPLETED":
            raise LabError(f"the job has ended as {state}: {(self.folder / 'out').read_text()}")
        return total

    def _act(self, way: str) -> None:
        number = str(self.number)
        if way == "USR1":  # as --signal=B:USR1@SECONDS does
            self._order("scancel", "--batch", "--signal=USR1", number)
        elif way == "requeue":
            self._order("scontrol", "requeue", number)
        elif way == "node down":
            host = random.choice(self._hosts())
            self._order("scontrol", "update", f"NodeName={host}", "State=DOWN", "Reason=lost")
            self._kill(len(self.programs()))
            self._order("scontrol", "update", f"NodeName={host}", "State=RESUME")
        else:
            self._kill(1 if way == "kill a rank" else len(self.programs()))

    def _hosts(self) -> list[str]:
        listed = self._slurm.job(self.number)["NodeList"]
        said = self._slurm.run("scontrol", "show", "hostnames", listed).stdout.split()
        if not said:
            raise LabError(f"the job is on no host: {listed}")
        return said

    def _kill(self, most: int) -> None:
        """Kill ranks: those whose program is python, not the launcher's parts."""
        ranks = [
            pid
            for pid, words in self.programs().items()
            if len(words) > 1 and words[1] == str(WORKER)
        ]
        random.shuffle(ranks)
        for pid in ranks[:most]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not ranks:  # it is still starting
            self._order("scancel", "--batch", "--signal=KILL", str(self.number))

    def _order(self, *command: str) -> None:
        done = self._slurm.run(*command)
        # The last is said of a job that Slurm itself has just ended, too.
        late = (
            *("already completing", "Job/step already", "presently", "Invalid node state"),
            "Invalid job id",
        )
        if done.returncode and not any(word in done.stderr for word in late):
            raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")

    def _hurry(self) -> None:
        """Slurm lets a requeued job wait for two minutes; we let it wait for two seconds.

        A slurmd does not launch a job in the second in which it has ended it.
        """
        time.sleep(2)
        end = time.monotonic() + STATE_TIMEOUT_S
        while self.state() not in ("RUNNING", "COMPLETED"):
            self._slurm.run("scontrol", "update", f"JobId={self.number}", "StartTime=now")
            if time.monotonic() > end:
                raise LabError(f"the job does not begin again: {self._slurm.job(self.number)}")
            time.sleep(0.3)

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        if not wait_until(is_so, STATE_TIMEOUT_S, 0.1):
            out = self.folder / "out"
            said = out.read_text()[-2000:] if out.exists() else ""
            raise LabError(f"{what}: not after {STATE_TIMEOUT_S:g} s; {self.state()}; {said}")


def _is_complete(path: Path) -> bool:
    try:
        manifest = json.loads((path / "manifest.json").read_text())["manifest"]
        return all(
            hashlib.sha256((path / name).read_bytes()).hexdigest() == entry["sha256"]
            for name, entry in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return False
