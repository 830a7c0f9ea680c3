"""The scheduler: runs a plan's steps in parallel, within a budget of CPUs and memory."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from ddlce.builder import worker
from ddlce.builder.costs import own_costs, to_the_end
from ddlce.builder.failure import Failure
from ddlce.builder.inputs import source_paths
from ddlce.builder.job import Event, Job
from ddlce.engine.variants import VARIANTS
from ddlce.errors import MachineError
from ddlce.files import explain_os_errors
from ddlce.filesystem import require
from ddlce.locks import locked
from ddlce.plan import Plan, Step, is_built
from ddlce.runner import runner_of
from ddlce.settings import Settings
from ddlce.store import Store

#: Gigabytes that a build may take, unless its recipe's `extra.build-memory-gb` says otherwise.
DEFAULT_MEMORY_GB = 1.5

#: Free space below which no build is started, in bytes.
MIN_FREE = 2 << 30


@dataclass
class Running:
    """A step that is being built."""

    step: Step
    log: Path
    locks: contextlib.ExitStack
    started: float = field(default_factory=time.monotonic)
    process: subprocess.Popen[bytes] | None = None
    event: Event = field(default_factory=lambda: Event(phase="prepare"))
    buffer: bytes = b""

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        return time.monotonic() - self.started


@dataclass(frozen=True)
class Summary:
    """What a run did: seconds per built recipe, failures, and what was skipped for them."""

    built: dict[str, float]
    failures: list[Failure]
    skipped: list[str]


#: Called after every event and about once a second: (running, finished, total).
Watch = Callable[[list[Running], dict[str, float], int], None]


class Scheduler:
    """Builds what a plan says.

    Args:
        plan: the steps; those marked for reuse are not touched.
        jobs: how many recipes may build at once.
        keep_going: after a failure, go on with what does not depend on it.
    """

    def __init__(
        self, settings: Settings, plan: Plan, jobs: int, keep_going: bool, watch: Watch
    ) -> None:
        self.settings, self.plan, self.jobs, self.keep_going = settings, plan, jobs, keep_going
        self.watch = watch
        self.store = Store(settings.store)
        self.todo = {step.name: step for step in plan.to_build}
        self.total = len(self.todo)
        self.cost = to_the_end(plan, own_costs(settings, plan))
        self.running: dict[str, Running] = {}
        self.built: dict[str, float] = {}
        self.failures: list[Failure] = []
        self.selector = selectors.DefaultSelector()

    def run(self) -> Summary:
        """Build everything; ends the workers whatever happens.

        Raises:
            MachineError: the cache cannot be written, has no space left, or is on a file system
                that runs no programs or has no locks.
        """
        with explain_os_errors(self.settings.cache):
            self.settings.work.mkdir(parents=True, exist_ok=True)
        require(self.settings.cache, "DDLCE_CACHE")
        try:
            while self.todo or self.running:
                held = False
                if not (self.failures and not self.keep_going):
                    held = self._start_ready()
                if self.running:
                    self._wait()
                elif held:
                    time.sleep(1)  # all that is ready is being built by another builder
                elif not self._ready():
                    break
                self.watch([*self.running.values()], self.built, self.total)
        finally:
            for running in self.running.values():
                self._kill(running)
        return Summary(self.built, self.failures, sorted(self.todo))

    def _ready(self) -> list[Step]:
        if self.failures and not self.keep_going:
            return []
        # All below, not `after` alone: a package between may be there already, and run with one
        # that is not.
        below = ((step, self.plan.sandbox(step.name)) for step in self.todo.values())
        ready = [step for step, names in below if not any(map(self._unbuilt, names))]
        return sorted(ready, key=lambda s: -self.cost[s.name])

    def _start_ready(self) -> bool:
        """Start what the budget allows; says whether another builder holds a ready step."""
        held = False
        for step in self._ready():
            used = sum(memory_gb(r.step) for r in self.running.values())
            if len(self.running) >= self.jobs:
                break
            if self.running and used + memory_gb(step) > memory_budget_gb():
                continue
            held |= not self._start(step)
        return held

    def _unbuilt(self, name: str) -> bool:
        return (
            name in self.todo or name in self.running or any(f.name == name for f in self.failures)
        )

    def _start(self, step: Step) -> bool:
        """Start a worker, unless another builder holds the step's lock."""
        free = shutil.disk_usage(self.settings.work).free
        if free < MIN_FREE:
            raise MachineError(
                f"only {free >> 20} MB free under {self.settings.cache}, "
                f"and {step.name} is still to be built",
                "free some space, or set DDLCE_CACHE to another file system",
            )
        locks = contextlib.ExitStack()
        try:
            locks.enter_context(locked(self.store.lock_file(step.digest), wait=False))
        except BlockingIOError:
            return False
        del self.todo[step.name]
        running = Running(step, log_of(self.settings, step), locks)
        self.running[step.name] = running
        if is_built(self.store, step.digest, step.outputs):
            self._finish(running, record=False)  # another builder made it meanwhile
            return True
        staging = self.settings.work / f"{step.name}-{step.short}"
        job = self.job(step, staging, running.log)
        running.process = worker.start(
            job,
            staging.with_name(f"{staging.name}.json"),
            self.settings.cache / "rattler",
            runner_of(self.settings, step.subdir),
        )
        assert running.process.stdout is not None
        os.set_blocking(running.process.stdout.fileno(), False)
        self.selector.register(running.process.stdout, selectors.EVENT_READ, running)
        return True

    def job(self, step: Step, staging: Path, log: Path) -> Job:
        """What a worker needs to build `step` in the folder `staging`."""
        recipe = step.recipe
        below = [
            (o.subdir, self.store.package(o.subdir, o.filename))
            for name in self.plan.sandbox(step.name)
            for o in self.plan.steps[name].outputs
        ]
        return Job(
            recipe=recipe,
            subdir=step.subdir,
            digest=step.digest,
            short=step.short,
            parts=step.parts,
            variants=self.settings.recipes / VARIANTS,
            sources=source_paths(self.settings, recipe),
            below=below,
            staging=staging,
            store=self.store.folder,
            log=log,
        )

    def _wait(self) -> None:
        for key, _ in self.selector.select(timeout=1.0):
            running: Running = key.data
            assert running.process is not None
            assert running.process.stdout is not None
            chunk = os.read(running.process.stdout.fileno(), 65536)
            running.buffer += chunk
            *lines, running.buffer = running.buffer.split(b"\n")
            for line in lines:
                with contextlib.suppress(ValidationError):
                    running.event = Event.model_validate_json(line)
            if not chunk:
                self.selector.unregister(running.process.stdout)
                running.process.stdout.close()
                assert running.process.stdin is not None
                running.process.stdin.close()  # ends what the worker may have left behind
                running.process.wait()
                self._finish(running)

    def _finish(self, running: Running, record: bool = True) -> None:
        step, event = running.step, running.event
        del self.running[step.name]
        if record and (event.phase != "done" or event.error):
            code = running.process.returncode if running.process else 0
            error = event.error or f"the worker ended with {_describe(code)}"
            self.failures.append(
                Failure(
                    step.name,
                    event.package or step.name,
                    event.phase,
                    error,
                    running.log,
                    step.subdir,
                )
            )
        else:
            if record:
                self.store.remember(
                    step.record_name, step.digest, step.parts, event.packages, running.seconds
                )
            self.built[step.name] = running.seconds
        running.locks.close()

    def _kill(self, running: Running) -> None:
        if running.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()
        running.locks.close()


def log_of(settings: Settings, step: Step) -> Path:
    """The log of a step's build."""
    return settings.logs / f"{step.name}-{step.short}.log"


def memory_gb(step: Step) -> float:
    """What a recipe says its build takes, in gigabytes."""
    return float(step.recipe.data.get("extra", {}).get("build-memory-gb", DEFAULT_MEMORY_GB))


def memory_budget_gb() -> float:
    """Three quarters of the machine's memory, in gigabytes."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0.75 * pages / (1 << 30)


def _describe(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}" + (
            " (out of memory?)" if code == -signal.SIGKILL else ""
        )
    return f"exit code {code}"
