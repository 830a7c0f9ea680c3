"""What the suite concludes from journals, from ddlrun's words and from a broken environment."""

from __future__ import annotations

import json
import platform
import re
import socket
import sys
from pathlib import Path

import pytest
from ddl_ce_smoke import cases, cli, page, probe, suite
from ddl_ce_smoke.hosts import LEAST_FREE
from ddl_ce_smoke.launch import Job, RankLog, launcher_message, read_journals
from ddl_ce_smoke.model import Report
from ddl_ce_smoke.placement import place
from ddl_ce_smoke.probe import Environment, judge, judge_libraries
from ddl_ce_smoke.train import default_counts


def log(rank: int, *events: dict) -> RankLog:
    """A journal with its usual beginning; times are positions."""
    begin = {"event": "begin", "rank": rank, "host": f"node{rank}", "pid": 100 + rank}
    timed = [{"time": float(place), **event} for place, event in enumerate(events)]
    return RankLog(rank, f"node{rank}", 100 + rank, [{"time": 0.0, **begin}, *timed])


HERE = place(None, None, True, None, {})
END = {"event": "end"}
AT = {"event": "at", "what": "ddl barrier"}


def case(problem: str | None = None) -> dict:
    return {"event": "case", "name": "ddl sum", "problem": problem, "seconds": 0.5}


def test_a_journal_cut_off_by_death_is_read_up_to_there(tmp_path: Path) -> None:
    begin = json.dumps(log(1).events[0])
    (tmp_path / "rank-1.jsonl").write_text(f'{begin}\n{json.dumps(AT)}\n{{"event": "ca')
    (tmp_path / "rank-0.jsonl").write_text("")
    (found,) = read_journals(tmp_path)
    assert str(found) == "rank 1 on node1 (process 101)"
    assert (found.last, found.ended) == ("ddl barrier", False)


def test_a_run_that_ended_well_has_no_problem() -> None:
    assert Job(2, 0, 1.0, 60.0, "", [log(0, END), log(1, END)]).problem() is None


def test_status_0_without_all_ranks_is_a_problem() -> None:
    assert Job(2, 0, 1.0, 60.0, "", [log(0, END)]).problem() == "rank 1 never started"


def test_a_bad_status_after_all_ends_is_a_problem() -> None:
    job = Job(1, 139, 1.0, 60.0, "some words\nlast words\n", [log(0, END)])
    assert job.problem() == "exit status 139: last words"


def test_the_first_error_is_the_cause() -> None:
    late = {"event": "error", "time": 9.0, "message": "DDLError: rank 1 has died", "trace": ""}
    early = {"event": "error", "time": 3.0, "message": "ValueError: bad", "trace": "Traceback ..."}
    job = Job(2, 1, 5.0, 60.0, "", [log(0, AT, late), log(1, AT, early)])
    assert job.problem() == "rank 1 on node1 (process 101), at ddl barrier: ValueError: bad"
    assert "Traceback" in job.detail()


def test_a_timeout_names_who_did_not_end() -> None:
    job = Job(3, 124, 60.0, 60.0, "ddlrun: timeout after 60 s", [log(0, AT, END), log(1, AT)])
    assert job.problem() == (
        "not done after 60 s; rank 2 never started; "
        "rank 1 on node1 (process 101) got no further than ddl barrier"
    )


def test_ddlrun_s_own_sentence_is_found() -> None:
    output = "[0@a] ddlrun: not this\nddlrun: rank 2 on b was killed\nddlrun:   the last lines\n"
    assert launcher_message(output) == "rank 2 on b was killed"
    assert launcher_message("[0@a] nothing") is None


def test_a_case_fails_if_it_failed_on_any_rank() -> None:
    job = Job(2, 1, 1.0, 60.0, "", [log(0, case(), END), log(1, case("rank 1: wrong"), END)])
    (only,) = cases.rank_cases(job, "2 ranks")
    assert (only.outcome, only.message) == ("failed", "rank 1: wrong")
    run, _ = cases.job_cases(job, "2 ranks", [only])
    assert run.outcome == "passed", "the status 1 is explained by the case"


def test_a_passed_case_says_what_the_first_rank_says() -> None:
    job = Job(1, 0, 1.0, 60.0, "", [log(0, {**case(), "says": "identical"}, END)])
    (only,) = cases.rank_cases(job, "LMS")
    assert (only.outcome, only.message) == ("passed", "identical")


def test_a_case_that_not_all_ranks_reached_is_not_passed() -> None:
    job = Job(2, 1, 1.0, 60.0, "", [log(0, case()), log(1)])
    assert cases.rank_cases(job, "2 ranks") == []
    (run,) = cases.job_cases(job, "2 ranks", [])
    assert run.outcome == "failed"


def test_no_result_at_all_is_a_failure() -> None:
    job = Job(1, 0, 1.0, 60.0, "", [log(0, END)])
    (run,) = cases.job_cases(job, "1 rank", [])
    assert (run.outcome, run.message) == ("failed", "no rank reported a result")


def test_bandwidth_is_that_of_the_slowest_rank() -> None:
    row = {"backend": "ddl", "device": "cpu", "ranks": 4, "nbytes": 1000}
    (found,) = suite.slowest([{**row, "seconds": 1e-6}, {**row, "seconds": 2e-6}])
    assert found.algbw == pytest.approx(0.5e9)
    assert found.busbw == pytest.approx(0.75e9)


def test_rank_counts_of_a_job() -> None:
    assert [default_counts(size) for size in (1, 2, 4, 6)] == [[1], [1, 2], [1, 2, 4], [1, 2, 4, 6]]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libssl.so.3").write_text("")
    return Environment(tmp_path, (tmp_path,), {"numpy": "2.4.6", "pydantic": "2"})


def imported(environment: Environment, **changes: object) -> dict:
    file = str(environment.prefix / "numpy.py")
    good = {"name": "numpy", "absent": False, "error": None, "file": file, "version": "2.4.6"}
    return {**good, "seconds": 0.1, **changes}


@pytest.mark.parametrize(
    ("changes", "outcome", "said"),
    [
        ({}, "passed", "2.4.6"),
        ({"file": "/elsewhere/numpy.py"}, "failed", "not from .*: is PYTHONPATH set?"),
        ({"version": "2.0"}, "failed", "2.0 is imported, but conda-meta records 2.4.6"),
        ({"version": "2.4.6+cpu"}, "passed", "2.4.6"),
        ({"absent": True}, "failed", "there is no module numpy: install numpy"),
        ({"name": "pydantic", "absent": True}, "failed", "install pydantic"),
        ({"name": "ddlce", "absent": True}, "skipped", "not installed"),
        ({"error": "ImportError: libx.so", "trace": ""}, "failed", "import numpy: ImportError"),
    ],
)
def test_an_import_is_judged(
    environment: Environment, changes: dict, outcome: str, said: str
) -> None:
    judged = judge(imported(environment, **changes), environment)
    assert judged.outcome == outcome
    assert re.search(said, judged.message)


def test_a_library_from_elsewhere_is_reported(environment: Environment) -> None:
    own, libc = str(environment.prefix / "lib" / "libssl.so.3"), "/usr/lib/libc.so.6"
    assert judge_libraries([own, libc], environment).outcome == "passed"
    shadowed = judge_libraries(["/usr/lib/libssl.so.3", libc], environment)
    assert shadowed.outcome == "failed"
    assert "/usr/lib/libssl.so.3 instead of" in shadowed.message


def test_power_does_without_what_it_has_not(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    ways = {via for step in suite.passes(quick=False) for via in step.via}
    assert ways == {"ddl", "torch:ddl", "horovod", "tensorflow"}
    assert "<svg" in page.render(report)
    monkeypatch.setattr(platform, "machine", lambda: "ppc64le")
    less = {via for step in suite.passes(quick=False) for via in step.via}
    assert less == {"ddl", "torch:ddl", "horovod"}
    assert not probe.exists("keras")
    assert probe.exists("horovod")
    assert "<svg" not in page.render(report)


@pytest.mark.parametrize(
    ("machine", "line", "said"),
    [
        ("x86_64", "model name\t: AMD EPYC", "AMD EPYC"),
        ("ppc64le", "cpu\t\t: POWER9, altivec supported", "POWER9, altivec supported"),
        ("ppc64le", "model name\t: AMD EPYC", "emulated on AMD EPYC"),
    ],
)
def test_an_emulated_processor_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch, machine: str, line: str, said: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(Path, "read_text", lambda _: f"processor\t: 0\n{line}\n")
    assert probe.machine_facts()["cpu"] == said


def test_without_ddlrun_every_part_says_so(environment: Environment) -> None:
    parts = ["collectives", "training", "benchmark"]
    options = suite.Options([2], True, 60.0, parts, HERE)
    report = suite.Suite(options, environment).run()
    messages = {case.message for part in report.parts for case in part.cases}
    assert messages == {
        f"there is no {environment.prefix}/bin/ddlrun: "
        "install the package ddl into this environment"
    }
    assert not report.passed


def test_a_crash_while_importing_names_the_package(
    environment: Environment, tmp_path: Path
) -> None:
    crash = tmp_path / "python"
    crash.write_text('#!/bin/sh\necho \'{"probe": "importing", "name": "scipy"}\'\nkill -SEGV $$\n')
    crash.chmod(0o755)
    suite_ = suite.Suite(
        suite.Options([1], True, 60.0, ["versions"], HERE), environment, (str(crash), "-m")
    )
    (part,) = suite_.run().parts
    named = {case.name: case.message for case in part.cases}
    assert named["scipy"] == "the interpreter ended while importing scipy: status -11"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ranks", "2,x"], "'2,x' is not a list of rank counts"),
        (["--ranks", "0"], "'0' is not a list of rank counts"),
        (["--ranks", ""], "'' is not a list of rank counts"),
        (["--parts", "speed"], "'speed' is no part; there are links, versions,"),
        (["--timeout", "nan"], "'nan' is not a number of seconds above 0"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_an_unwritable_report_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    status = cli.main(
        ["--parts", "versions", "--report", str(tmp_path / "file")], (sys.executable, "-m")
    )
    assert status == 3
    assert "error: the report in" in capsys.readouterr().err


def test_the_verdict_of_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["--node"])
    verdict = json.loads(capsys.readouterr().out)
    assert (status, verdict["passed"], verdict["problems"]) == (0, True, [])
    assert verdict["host"] == socket.gethostname()
    assert verdict["prefix"] == sys.prefix


def test_a_node_without_space_is_not_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LEAST_FREE, "/dev/shm", 1 << 60)
    status = cli.main(["--node"])
    verdict = json.loads(capsys.readouterr().out)
    assert (status, verdict["passed"]) == (1, False)
    assert re.fullmatch(
        r"/dev/shm: \d+ MiB are free for /dev/shm, \d+ MiB needed", verdict["problems"][0]
    )
