"""ReFrame's checks of a DDL-CE release: versions, links and collectives, training, staging.

    reframe -C SITE.py -c docs/reframe -r
    reframe -C SITE.py -c docs/reframe -r -S nodes=8 -S release=ddl-ce/2026.12 -n DdlCeCollectives

The site's own configuration says how jobs are submitted. The checks run the release's own programs:
`ddlce-smoke` takes the hosts of the job, so ReFrame's launcher of parallel programs is left out.
`-S reference_report=FILE` compares the links with those of a good run's report.json. ReFrame's log
of performance has all numbers.
"""

from __future__ import annotations

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import (
    parameter,
    performance_function,
    run_after,
    run_before,
    sanity_function,
    variable,
)


class DdlCe(rfm.RunOnlyRegressionTest):
    """A part of the suite on the hosts of a job.

    Variables (-S): `release`, the module to load, "" for none; `nodes`, of the larger job;
    `reference_report`, an earlier report.json.
    """

    release = variable(str, value="ddl-ce")
    nodes = variable(int, value=2)
    reference_report = variable(str, value="")
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "ddlce-smoke"
    time_limit = "20m"
    num_tasks_per_node = 1
    maintainers = ["DDL-CE"]

    @run_after("init")
    def choose_module(self) -> None:
        """The release's module."""
        if self.release:
            self.modules = [self.release]

    @run_before("run")
    def leave_the_launcher_out(self) -> None:
        """`ddlrun` starts the ranks, by the scheduler's own way."""
        self.job.launcher = getlauncher("local")()

    def smoke(self, parts: str, *more: str) -> None:
        """Run these parts of the suite, with the JSON report on standard output."""
        self.executable_opts = ["--json", "--parts", parts, *more]

    def report(self) -> dict:
        """The suite's report."""
        return json.loads(Path(self.stagedir, str(self.stdout)).read_text(encoding="utf-8"))

    @sanity_function
    def all_passed(self) -> bool:
        """Nothing failed; else the cases that did."""
        failed = [
            f"{case['name']}: {case['message']}"
            for part in self.report()["parts"]
            for case in part["cases"]
            if case["outcome"] == "failed"
        ]
        return sn.assert_eq(failed, [], "; ".join(failed))


@rfm.simple_test
class DdlCeVersions(DdlCe):
    """Versions and imports, on one host."""

    num_tasks = 1

    @run_before("run")
    def set_options(self) -> None:
        """One part."""
        self.smoke("versions", "--local")


@rfm.simple_test
class DdlCeCollectives(DdlCe):
    """The links, and all collectives against an exact oracle, on one host and on `nodes`."""

    is_whole = parameter([False, True])

    @run_after("setup")
    def set_tasks(self) -> None:
        """A task a host."""
        self.num_tasks = self.nodes if self.is_whole else 1

    @run_before("run")
    def set_options(self) -> None:
        """The links only where there are some."""
        if not self.is_whole:
            self.smoke("collectives", "--quick", "--local", "--ranks", "2")
            return
        more = ["--reference", self.reference_report] if self.reference_report else []
        self.smoke("links,collectives", "--quick", *more)

    @run_before("performance")
    def set_links(self) -> None:
        """Gbit/s of each link, as the suite has measured them."""
        for link in self.report()["links"]:
            name = "".join(c if c.isalnum() else "_" for c in link["name"])
            value = sn.defer(link["rate"] * 8e-9)
            self.perf_variables[name] = sn.make_performance_function(value, "Gbit/s")


@rfm.simple_test
class DdlCeTraining(DdlCe):
    """Training on `nodes` hosts with equal weights on all ranks."""

    @run_after("setup")
    def set_tasks(self) -> None:
        """A task a host."""
        self.num_tasks = self.nodes

    @run_before("run")
    def set_options(self) -> None:
        """One part."""
        self.smoke("training", "--quick")

    @performance_function("samples/s")
    def speed(self) -> float:
        """Of the first backend."""
        return self.report()["throughput"][0]["samples_per_second"]


@rfm.simple_test
class DdlCeStaging(DdlCe):
    """A job from its hosts' own disks. Needs the release's image (`ddlce env image`)."""

    executable = "ddlrun"
    tags = {"staging"}

    @run_after("setup")
    def set_tasks(self) -> None:
        """A task a host."""
        self.num_tasks = self.nodes

    @run_before("run")
    def set_options(self) -> None:
        """The local copy's own prefix, from each rank."""
        program = "import ddl, sys; ddl.init(); print('staged', sys.prefix); ddl.finalize()"
        self.executable_opts = ["-stage", "-accelerators", "1", "python", "-c", f'"{program}"']

    @sanity_function
    def all_passed(self) -> bool:
        """A line of each host's rank."""
        found = sn.count(sn.extractall(r"staged /", self.stdout))
        return sn.assert_eq(found, self.nodes)
