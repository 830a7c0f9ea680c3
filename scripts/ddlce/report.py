"""The report of a release: its packages on every platform, side by side.

It is drawn from the store and from the smoke suite's reports. A package is in the store only
after its tests have passed, on the platform's own processor or, as here, under emulation.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conda_package_streaming.package_streaming import stream_conda_info

from ddlce import jsontext, yamltext
from ddlce.engine.render import Output
from ddlce.env.layout import Layout
from ddlce.lock import lock_path
from ddlce.model.envlock import EnvLock
from ddlce.plan import Plan, check_built
from ddlce.platforms import this_platform
from ddlce.settings import Settings
from ddlce.store import Store


@dataclass(frozen=True)
class Built:
    """One package of a platform.

    Attributes:
        version, build: as in its file name.
        noarch: whether one file serves all platforms.
        size: of the .conda file, in bytes.
        seconds: wall time of its recipe's build with the tests, on the machine that built it;
            None for a recipe's further packages.
        tests: how many the package brings; all have passed.
    """

    version: str
    build: str
    noarch: bool
    size: int
    seconds: float | None
    tests: int


@dataclass(frozen=True)
class Smoke:
    """The smoke suite's last run in the locked release of a platform.

    Attributes:
        passed: no case failed.
        cases: how many were run.
        where: the processor; it says so where that was an emulated one.
    """

    passed: bool
    cases: int
    where: str


@dataclass(frozen=True)
class Side:
    """A platform's part of the report.

    Attributes:
        platform: conda subdir.
        emulated: whether its programs have run under emulation on this machine.
        packages: by name; a second variant of a package as `NAME VARIANT`.
        absent: recipe → why it has no packages here.
        env: of how many packages the locked environment consists; None where it is not locked.
        env_size: of their files together, in bytes.
        smoke: None where the suite has not run.
    """

    platform: str
    emulated: bool
    packages: dict[str, Built]
    absent: dict[str, str]
    env: int | None
    env_size: int
    smoke: Smoke | None


def make_side(settings: Settings, plan: Plan, env: str) -> Side:
    """What there is of a platform.

    Raises:
        WorkError: a package of the plan was not built.
    """
    store = Store(settings.store)
    packages: dict[str, Built] = {}
    check_built(store, plan)
    for step in plan.steps.values():
        if step.name != step.recipe.name:
            continue  # the build platform's
        record = store.last_build(step.record_name)
        seconds = record.seconds if record and record.digest == step.digest else None
        for output in step.outputs:
            path = store.package(output.subdir, output.filename)
            packages[_label(output)] = Built(
                version=output.version,
                build=output.build,
                noarch=output.subdir == "noarch",
                size=path.stat().st_size,
                seconds=seconds,
                tests=count_tests(path),
            )
            seconds = None
    path = lock_path(settings, env, plan.subdir)
    lock = EnvLock.load(path) if path.is_file() else None
    return Side(
        platform=plan.subdir,
        emulated=plan.subdir != this_platform(),
        packages=dict(sorted(packages.items())),
        absent=plan.absent,
        env=len(lock.packages) if lock else None,
        env_size=sum(package.size for package in lock.packages) if lock else 0,
        smoke=read_smoke(settings, lock) if lock else None,
    )


def count_tests(package: Path) -> int:
    """How many tests a package file brings along (info/tests/tests.yaml)."""
    for archive, member in stream_conda_info(str(package)):
        if member.name == "info/tests/tests.yaml" and (stream := archive.extractfile(member)):
            return len(yamltext.load(stream.read().decode()) or [])
    return 0


def to_markdown(sides: list[Side]) -> str:
    """The report as a page: a table of packages, the sums, and what is absent."""
    lines = [f"# {' and '.join(side.platform for side in sides)}, side by side", ""]
    for side in sides:
        how = "tests run under emulation: times say nothing about it" if side.emulated else "native"
        lines.append(f"- **{side.platform}** ({how}): {_sums(side)}")
    lines += ["", "Every test of every package listed has passed; else it would not be here.", ""]
    titles = [
        f"{side.platform}{' (emulated)' if side.emulated else ''} | MB | s | tests"
        for side in sides
    ]
    lines.append(f"| Package | {' | '.join(titles)} |")
    lines.append("|---|" + "---|---:|---:|---:|" * len(sides))
    for name in sorted(set().union(*(side.packages for side in sides))):
        lines.append(f"| {name} | {' | '.join(_cells(side, name) for side in sides)} |")
    for side in sides:
        if side.absent:
            lines += ["", f"## Absent from {side.platform}", "", "| Recipe | Why |", "|---|---|"]
            lines += [f"| {name} | {why} |" for name, why in sorted(side.absent.items())]
    return "\n".join(lines) + "\n"


def to_json(sides: list[Side]) -> list[dict[str, Any]]:
    """The report for programs: one object per platform."""
    return [asdict(side) for side in sides]


def _label(output: Output) -> str:
    """The package's name, with the variant where the build string begins with its name."""
    variant, _, rest = output.build.partition("_")
    return f"{output.name} {variant}" if variant == "external" and rest else output.name


def _sums(side: Side) -> str:
    packages = side.packages.values()
    own = [package for package in packages if not package.noarch]
    text = (
        f"{len(packages)} packages, {len(own)} of them not noarch; "
        f"{sum(package.size for package in packages) / 1e6:.0f} MB; "
        f"{sum(package.seconds or 0 for package in packages) / 60:.0f} minutes of builds, one "
        f"after the other; {sum(package.tests for package in packages)} tests."
    )
    if side.env is not None:
        text += f" Environment: {side.env} packages, {side.env_size / 1e6:.0f} MB."
    if side.smoke:
        verdict = "passed" if side.smoke.passed else "FAILED"
        text += f" Smoke suite: {verdict}, {side.smoke.cases} cases, {side.smoke.where}."
    return text


def _cells(side: Side, name: str) -> str:
    package = side.packages.get(name)
    if package is None:
        return "absent | | | "
    noarch = " (noarch)" if package.noarch else ""
    seconds = "" if package.seconds is None else f"{package.seconds:.0f}"
    return f"{package.version}{noarch} | {package.size / 1e6:.1f} | {seconds} | {package.tests}"


def read_smoke(settings: Settings, lock: EnvLock) -> Smoke | None:
    """The smoke suite's last run in the release of a lock, under the root; None where it has none.

    Raises:
        ValueError: the report is damaged.
    """
    prefix = Layout(settings.root).prefix(lock.env, lock.release, lock.digest)
    path = Layout(settings.root).reports(prefix) / "report.json"
    if not path.is_file():
        return None
    data = jsontext.load(path.read_text(encoding="utf-8"))
    return Smoke(
        passed=data["passed"],
        cases=sum(len(part["cases"]) for part in data["parts"]),
        where=data["machine"]["cpu"],
    )
