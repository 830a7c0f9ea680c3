"""The worker: builds one recipe in a process of its own.

A process for each job keeps the engine's crashes, threads and caches apart, and can be killed.
Events go to standard output as JSON lines; everything else goes to the log file.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from ddlce.audit import audit_package
from ddlce.builder.foreign import add_tools, point_builders
from ddlce.builder.job import Event, Job, Phase
from ddlce.builder.machine import FOR_TESTS, machine_programs
from ddlce.builder.repack import EPOCH, repack
from ddlce.digest import file_parts
from ddlce.engine.build import build_output, test_package
from ddlce.engine.index import index_channel
from ddlce.engine.render import (
    Output,
    Rendered,
    render,
    with_stored_sources,
)
from ddlce.engine.variants import glibc_floor, load_variants
from ddlce.errors import DdlceError, SourceError, WorkError
from ddlce.files import link_or_copy, not_yet_on_disk, sha256_file
from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.programs import own_python
from ddlce.runner import Runner
from ddlce.settings import build_path
from ddlce.sources.store import take

#: In a build's own folder: its home, and its temporary files.
HOME, TEMPORARY = "home", "tmp"

#: There, too: the machine's programs that its script may call.
MACHINE = "machine"

#: Beside the compilers, packages for this machine that tests of another platform may call.
HELPERS = ("cmake", "make", "ninja", "pkg-config", "libgcc", "libstdcxx", "runtime_linux-64")

#: Variables by which the dynamic loader finds other libraries than a program was linked with.
LOADERS = ("LD_LIBRARY_PATH",)


class Worker:
    """One job's run through its phases."""

    def __init__(self, job: Job, events: int, loaders: dict[str, str]) -> None:
        self.job = job
        self.loaders = loaders
        self.events = events
        self.phase: Phase = "prepare"
        self.package = job.recipe.name
        self.spent = 0.0

    def enter(self, phase: Phase, package: str = "", packages: list[str] | None = None) -> None:
        """Tell the scheduler which phase begins."""
        if phase != "prepare":  # which counts the start of this process, too
            spent = processor_time()
            self.log(
                f"--- {self.package}: {self.phase} took {spent - self.spent:.1f} s of CPU time"
            )
            self.spent = spent
        self.phase, self.package = phase, package or self.package
        self.log(f"--- {self.package}: {phase}")
        self.send(Event(phase=phase, package=self.package, packages=packages or []))

    def send(self, event: Event) -> None:
        """Write one event line."""
        os.write(self.events, event.model_dump_json().encode() + b"\n")

    def log(self, text: str) -> None:
        """Write to the log file (our standard error)."""
        print(text.rstrip("\n"), file=sys.stderr, flush=True)

    def run(self) -> None:
        """Build, repack, check, test and publish all outputs of the recipe."""
        job = self.job
        with not_yet_on_disk():
            made = self.make()
        self.enter("publish", job.recipe.name)
        packages = []
        for output, final in made:
            link_or_copy(final, job.store / output.subdir / output.filename)
            packages.append(f"{output.subdir}/{output.filename}")
        shutil.rmtree(job.staging, ignore_errors=True)
        self.enter("done", packages=packages)

    def make(self) -> list[tuple[Output, Path]]:
        """Build, repack, check and test all outputs; each with its package in the job's folder."""
        job = self.job
        self.enter("prepare")
        shutil.rmtree(job.staging, ignore_errors=True)
        make_home(job.staging)
        channel = make_channel(job)
        if job.subdir != BUILD_PLATFORM:
            point_builders(job.staging, get_platform(job.subdir).triple)
        built: list[tuple[Output, Path]] = []
        rendered = render_job(job)  # copies the recipe's files
        refuse_changed_files(job)
        path = os.environ["PATH"]
        os.environ["PATH"] = machine_programs(job.staging / MACHINE, path, self.loaders)
        for output, variant in rendered:
            self.enter("build", output.name)
            raw = build_output(variant, channel, job.staging / "out", self.log)
            self.enter("pack")
            final = channel / output.subdir / output.filename
            final.parent.mkdir(exist_ok=True)
            # What is made from this tree alone is not on PyPI, whatever has its name there.
            fetched = any("url" in source for source in job.recipe.sources())
            repack(raw, final, self.metadata(output), published=fetched)
            # All builds share one folder name: the next would find this one's files in its prefix.
            shutil.rmtree(job.staging / "out" / "bld", ignore_errors=True)
            index_channel(channel)  # later outputs of the recipe may stand on this one
            built.append((output, final))
        more = machine_programs(job.staging / "tests" / MACHINE, path, self.loaders, FOR_TESTS)
        os.environ["PATH"] = more
        if job.subdir != BUILD_PLATFORM:
            add_tools(job.staging / "tools", get_platform(job.subdir).triple, helpers(job))
        for output, final in built:
            self.enter("check", output.name)
            self.refuse_findings(final, channel)
            self.enter("test")
            self.log(f"{test_package(final, channel, self.log)} test(s) passed")
        return built

    def metadata(self, output: Output) -> dict[str, object]:
        """What goes into the package as info/ddl-ce.json."""
        linking = output.rendered.get("build", {}).get("dynamic_linking") or {}
        return {
            "digest": self.job.digest,
            "inputs": self.job.parts,
            "recipe": self.job.recipe.name,
            "variant": output.variant,
            # What the recipe lets the machine provide: the audit asks, and so may a site.
            "from_machine": linking.get("missing_dso_allowlist", []),
        }

    def refuse_findings(self, package: Path, channel: Path) -> None:
        """Fail on anything that would make the package wrong for its users."""
        floor = glibc_floor(self.job.variants.parent, self.job.subdir)
        findings = audit_package(package, [str(self.job.staging)], channel, floor)
        if findings:
            lines = "\n".join(f"  {finding}" for finding in findings)
            raise WorkError(f"{package.name} does not hold what it promises:\n{lines}")


def processor_time() -> float:
    """Seconds of processor time of this process and of all children that have ended."""
    return sum(os.times()[:4])


def render_job(job: Job) -> list[tuple[Output, Rendered]]:
    """The outputs of the job's recipe, made from the stored sources."""
    recipe = with_stored_sources(
        job.recipe,
        job.staging / "recipe" / job.recipe.name,
        lambda d: own_source(job, d),
        job.subdir,
    )
    made = render(recipe, load_variants(job.variants, job.subdir), job.subdir, job.short)
    # For another platform, what is noarch was made on this one.
    return [(o, v) for o, v in made if job.subdir in (BUILD_PLATFORM, o.subdir)]


def own_source(job: Job, digest: str) -> Path:
    """A source in the job's own folder: the engine reads there what has been hashed there.

    Raises:
        SourceError: the stored file is not the locked one.
    """
    stored = job.sources[digest]
    path = job.staging / "sources" / digest / stored.name
    take(stored, path)
    if sha256_file(path) != digest:
        raise SourceError(
            f"{stored}: not the locked bytes: sha256 expected {digest}", "ddlce fetch"
        )
    return path


def refuse_changed_files(job: Job) -> None:
    """Fail when the recipe is not what was planned: its packages would bear a wrong digest.

    Raises:
        WorkError: names the files.
    """
    now = file_parts(job.recipe)
    changed = sorted(k.removeprefix("file ") for k in now if now[k] != job.parts[k])
    if changed:
        raise WorkError(
            f"changed in {job.recipe.folder} since the plan was made: {', '.join(changed)}; "
            "run the same command again"
        )


def helpers(job: Job) -> list[Path]:
    """The packages for this machine that tests of another platform may call."""
    names = {f"gcc_impl_{job.subdir}", f"gxx_impl_{job.subdir}", *HELPERS}
    below = [path for subdir, path in job.below if subdir == BUILD_PLATFORM]
    return [path for path in below if path.name.rsplit("-", 2)[0] in names]


def make_channel(job: Job) -> Path:
    """A channel of exactly the packages that the job may use: the build's sandbox."""
    channel = job.staging / "channel"
    for subdir, package in job.below:
        link_or_copy(package, channel / subdir / package.name)
    (channel / job.subdir).mkdir(parents=True, exist_ok=True)
    index_channel(channel)
    return channel


def make_home(folder: Path) -> None:
    """Make the folders that `build_environment` names."""
    for name in (HOME, TEMPORARY):
        (folder / name).mkdir(parents=True, exist_ok=True)


def end_with_scheduler() -> int:
    """Start a guard that ends this worker and its compilers when the scheduler is gone.

    Standard input is a pipe that only the scheduler holds open. A signal handler would not do:
    Python runs none while the engine builds, and a parent-death signal reaches no grandchildren.

    Returns:
        The guard's process id.
    """
    guard = os.fork()
    if guard == 0:
        os.close(1)  # else the scheduler would not see our end
        os.read(0, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)
    return guard


def build_environment(folder: Path) -> dict[str, str]:
    """What a worker sees of the machine: system programs, a locale, a fixed clock.

    The script that builds finds fewer programs (see `ddlce.builder.machine`).

    Its home and its folder for temporary files are in `folder`, so that a user's settings (pip's,
    git's, CMake's registry) can't change a package. Also, /tmp may be mounted without the right
    to run what is in it, and pytest reads settings and code of all folders above its tests.
    """
    return {
        "HOME": str(folder / HOME),
        "TMPDIR": str(folder / TEMPORARY),
        "PATH": build_path(),
        "PIP_CONFIG_FILE": os.devnull,
        "LC_ALL": "C.UTF-8",
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "TZ": "UTC",
    }


def start(job: Job, job_file: Path, cache: Path, runner: Runner = list) -> subprocess.Popen[bytes]:
    """Start a worker for `job`; its standard output carries the events."""
    job_file.parent.mkdir(parents=True, exist_ok=True)
    job_file.write_text(job.model_dump_json())
    job.log.parent.mkdir(parents=True, exist_ok=True)
    env = build_environment(job.staging) | {"RATTLER_CACHE_DIR": str(cache)}
    if job.recipe.cuda:
        # What is for CUDA is built and tested where there may be no driver (CEP 30's variable).
        env["CONDA_OVERRIDE_CUDA"] = job.recipe.cuda
    # Our own interpreter may need it, as those of many sites' modules do; the worker takes it out.
    env |= {name: os.environ[name] for name in LOADERS if name in os.environ}
    with job.log.open("wb") as log:
        return subprocess.Popen(
            runner(own_python("-m", "ddlce.builder.worker", str(job_file))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=env,
            start_new_session=True,
        )


def main() -> NoReturn:
    """`python -m ddlce.builder.worker JOB.json`."""
    guard = end_with_scheduler()
    os.umask(0o022)
    loaders = {name: os.environ.pop(name) for name in LOADERS if name in os.environ}
    events = os.dup(1)
    os.dup2(2, 1)  # what build scripts print belongs to the log
    worker = Worker(Job.model_validate_json(Path(sys.argv[1]).read_text()), events, loaders)
    status = 1
    try:
        worker.run()
        status = 0
    except DdlceError as error:
        worker.log(error.message)
        worker.send(Event(phase=worker.phase, package=worker.package, error=error.message))
    except OSError as error:
        worker.log(str(error))
        worker.send(Event(phase=worker.phase, package=worker.package, error=str(error)))
    # Not through the interpreter's shutdown: rattler's runtime may abort there.
    sys.stderr.flush()
    os.kill(guard, signal.SIGKILL)
    os._exit(status)


if __name__ == "__main__":
    main()
