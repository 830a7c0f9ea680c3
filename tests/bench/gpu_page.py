"""All tests and benchmarks that want a GPU, one after the other, and one page of results.

    python tests/bench/gpu_page.py --prefix PREFIX --out FOLDER

PREFIX is an environment whose torch and ddl are for CUDA: an installed release `ddl-ce-gpu`, or the
one that `gpu-machine.sh` builds. What it has not (the smoke suite, LMS) is left out, and the page
says so. A step that fails or takes too long does not keep the others from running. The page is
FOLDER/gpu.md, with the steps' whole output beside it; some eight minutes. `--quick` only shows that
every step runs: on the simulated CUDA, for which it is meant, and where the page says that it was
simulated. Ends with 1 where a step did not end well.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import asker, commit, machine, run_command

HERE = Path(__file__).parent
RECIPES = HERE.parents[1] / "recipes"

#: What torch and ddl say about the machine, as lines of a table.
FACTS = """
import importlib.metadata as metadata, torch
from ddl import _core
count = torch.cuda.device_count()
names = {torch.cuda.get_device_name(index) for index in range(count)}
print(f"| GPUs | {count}: {', '.join(sorted(names)) or 'none'} |")
print(f"| torch | {torch.__version__}, for {' '.join(torch.cuda.get_arch_list())} |")
print(f"| ddl | {metadata.version('ddl')}, {_core.cuda_library() or 'without CUDA'} |")
"""


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        title: of its part of the page; its first word is the name of its output's file.
        needs: a module or program of the environment; it is left out where that is not.
        seconds: that it may take.
    """

    title: str
    needs: str
    command: list[str | Path]
    seconds: float


@dataclass(frozen=True)
class Done:
    """How a step ended."""

    step: Step
    outcome: str
    seconds: float
    output: str

    @property
    def is_good(self) -> bool:
        """It ran to a good end, or was left out."""
        return self.outcome == "passed" or self.outcome.startswith("left out")


def steps(prefix: Path, out: Path, quick: bool) -> list[Step]:
    """All of them, in the order in which they run."""
    python = prefix / "bin" / "python"
    pytest: list[str | Path] = [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    shared = ["-o", f"pythonpath={HERE.parent / 'support' / 'shared'}"]  # as run_suite has it
    libddl = RECIPES / "ddl" / "tests" / "gpu"
    allreduce: list[str | Path] = [python, HERE / "bench_gpu.py", "--out", out / "allreduce.json"]
    lms: list[str | Path] = [sys.executable, HERE / "bench_lms.py", "--python", python]
    lms += ["--device", "cuda", "--out", out / "lms.json", "--cases"]
    smoke: list[str | Path] = [prefix / "bin" / "ddlce-smoke", "--report", out / "smoke"]
    few = "-k values" if quick else ""
    sizes = "--sizes 4K 1M --rounds 2" if quick else ""
    cases = "mlp --ratios 1.5" if quick else "gpt-4096"
    seconds = 600 if quick else 240
    parts = "--ranks 2 --quick --parts collectives,benchmark" if quick else "--ranks 1,2"
    found = [
        Step("libddl: its tests", "ddl", [*pytest, libddl, *few.split()], seconds),
        Step(
            "torch: the tests of the backend",
            "ddl_torch",
            [*pytest, *shared, RECIPES / "ddl-torch" / "tests" / "test_on_gpus.py"],
            seconds,
        ),
        Step(
            "allreduce: libddl beside NCCL and torch",
            "ddl",
            [*allreduce, *sizes.split()],
            seconds,
        ),
        Step(
            "limit: Large Model Support's tests on a GPU",
            "lms",
            [*pytest, RECIPES / "lms-torch" / "tests" / "test_on_gpu.py"],
            seconds,
        ),
        Step(
            "lms: Large Model Support beside the best that copies allow",
            "lms",
            [*lms, *cases.split()],
            seconds,
        ),
        Step(
            "smoke: the smoke suite",
            "bin/ddlce-smoke",
            [*smoke, *parts.split()],
            seconds,
        ),
    ]
    return [step for step in found if not (quick and step.title.startswith(("torch:", "limit:")))]


def is_there(prefix: Path, needs: str) -> bool:
    """Whether the environment has a program (a path in it) or a module."""
    if "/" in needs:
        return (prefix / needs).exists()
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({needs!r}) is None)"
    return subprocess.run([prefix / "bin" / "python", "-c", code], check=False).returncode == 0


def run(prefix: Path, step: Step, environ: Mapping[str, str]) -> Done:
    """Run one step, with whatever comes of it."""
    if not is_there(prefix, step.needs):
        return Done(step, f"left out: the environment has no {step.needs}", 0.0, "")
    print(f"{step.title} ...", flush=True)
    start = time.monotonic()
    try:
        done = subprocess.run(
            [str(word) for word in step.command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=step.seconds,
            env=environ,
            check=False,
        )
        outcome = "passed" if done.returncode == 0 else f"ended with {done.returncode}"
        output = done.stdout
    except subprocess.TimeoutExpired as expired:
        said = expired.stdout or b""
        output = said if isinstance(said, str) else said.decode(errors="replace")
        outcome = f"not done after {step.seconds:.0f} s"
    print(f"  {outcome}", flush=True)
    return Done(step, outcome, time.monotonic() - start, output)


def page(facts: str, results: list[Done]) -> str:
    """The page, in Markdown."""
    found = machine()
    lines = ["# On GPUs", ""]
    if "simulated" in facts:
        lines += ["**Simulated: no GPU was there, and no time here says anything about one.**", ""]
    lines += ["| | |", "|---|---|", *facts.strip().splitlines()]
    lines += [f"| processor | {found['processor']}, {found['cpus']} CPUs |"]
    lines += [f"| commit | {commit()} |", "", "| step | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {done.step.title} | {done.outcome} | {done.seconds:.0f} |" for done in results]
    for done in results:
        end = "\n".join(done.output.strip().splitlines()[-60:])
        lines += ["", f"## {done.step.title}", "", "```", end or done.outcome, "```"]
    return "\n".join([*lines, ""])


def folder_with_pytest(out: Path) -> Path:
    """Links to this Python's pytest alone, for an environment without one."""
    folder = out / "pytest"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"):
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise ValueError(f"this Python has no {name}: use one with pytest, as the tree's .venv")
        origin = Path(found.origin)
        real = origin.parent if origin.name == "__init__.py" else origin
        link = folder / real.name
        link.unlink(missing_ok=True)
        link.symlink_to(real)
    return folder


def main() -> None:
    """The command line."""
    parser = asker(__doc__)
    parser.add_argument("--prefix", type=Path, required=True, help="the environment")
    parser.add_argument("--out", type=Path, required=True, help="a folder for what is found")
    parser.add_argument("--quick", action="store_true", help="only show that every step runs")
    options = parser.parse_args()
    prefix, out = options.prefix.absolute(), options.out.absolute()
    python = prefix / "bin" / "python"
    if not python.exists():
        raise ValueError(f"--prefix {options.prefix}: there is no bin/python in it")
    paths = [os.environ.get("PYTHONPATH", ""), str(folder_with_pytest(out))]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environ["PATH"] = f"{prefix / 'bin'}{os.pathsep}{os.environ['PATH']}"
    asked = subprocess.run([python, "-c", FACTS], capture_output=True, text=True, env=environ)
    if asked.returncode:
        why = (asked.stderr.strip() or "no output").splitlines()[-1]
        raise ValueError(f"--prefix {prefix}: it has no torch and ddl that work: {why}")
    results = []
    for step in steps(prefix, out, options.quick):
        results.append(run(prefix, step, environ))
        (out / f"{step.title.partition(':')[0]}.txt").write_text(results[-1].output)
        (out / "gpu.md").write_text(page(asked.stdout, results))  # also of a machine taken away
    print(f"written: {out / 'gpu.md'}")
    if not all(done.is_good for done in results):
        sys.exit(1)


if __name__ == "__main__":
    run_command(main)
