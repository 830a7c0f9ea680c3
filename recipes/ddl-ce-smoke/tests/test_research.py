"""The part that compares packages of research on two ranks with one rank."""

from __future__ import annotations

import json
import math
from importlib import resources, util

import pytest
from ddl_ce_smoke import cli, research, suite
from ddl_ce_smoke.launch import Job, RankLog
from ddl_ce_smoke.research import Program, difference
from ddl_ce_smoke.research import part as research_part

HERE = Program("A program", "transformer", ("numpy",))


def job(ranks: int, numbers: list[float] | None, status: int = 0) -> Job:
    """A run whose rank 0 has these numbers."""
    logs = []
    for rank in range(ranks):
        found = [{"event": "begin", "rank": rank, "host": "h", "pid": 7, "size": ranks}]
        if rank == 0 and numbers is not None:
            found.append({"event": "numbers", "time": 1.0, "values": numbers})
        logs.append(RankLog(rank, "h", 7, [*found, *([] if status else [{"event": "end"}])]))
    return Job(ranks, status, 1.0, 60.0, "ddlrun: rank 1 fell over" if status else "", logs)


def outcomes(monkeypatch: pytest.MonkeyPatch, program: Program, *jobs: Job, hosts: int = 1) -> dict:
    """Outcome and message by name of the cases."""
    monkeypatch.setattr(research_part, "PROGRAMS", (program,))
    left = list(jobs)
    cases = research_part.research_cases(lambda *words: left.pop(0), hosts)
    return {case.name: (case.outcome, case.message) for case in cases}


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        ([1.0, 2.0], [1.0, 2.0], ""),
        ([1.0, 2.0], [1.00001, 2.0], ""),
        ([1.0, 2.0], [1.0, 2.1], "1 of 2 numbers differ from one rank's, first at index 1: "),
        ([1.0, 2.0], [1.0, math.nan], "expected 2, got nan"),
        ([1.0, 2.0], [1.0], "1 numbers, where one rank has 2"),
        ([1.0, 1.0], [1.0, 1.0], "the program learnt nothing"),
        ([1.0, math.nan], [1.0, math.nan], "the program learnt nothing"),
    ],
)
def test_what_differs(one: list[float], two: list[float], said: str) -> None:
    found = difference(one, two)
    assert said in found
    assert bool(found) == bool(said)


def test_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcomes(monkeypatch, HERE, job(1, [1.0, 2.0]), job(2, [1.0, 2.0]))
    assert found["A program on 2 ranks"] == ("passed", "2 numbers as on one rank")
    assert {outcome for outcome, _ in found.values()} == {"passed"}


def test_ddl_stands_in_for_what_a_program_names(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def launch(module: str, words: list[str], ranks: int, environ: dict[str, str]) -> Job:
        given.append(environ.get("DDL_INSTEAD_OF"))
        return job(ranks, [1.0, 2.0])

    for names_another in (False, True):
        program = Program("A program", "none", ("numpy",), names_another=names_another)
        monkeypatch.setattr(research_part, "PROGRAMS", (program,))
        assert {case.outcome for case in research_part.research_cases(launch, 1)} == {"passed"}
    assert given == [None, None, "gloo,nccl", "gloo,nccl"]


def test_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcomes(monkeypatch, HERE, job(1, [1.0, 2.0]), job(2, [1.0, 3.0]))
    assert found["A program on 2 ranks"][0] == "failed"


def test_a_rank_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcomes(monkeypatch, HERE, job(1, [1.0, 2.0]), job(2, None, status=1))
    assert found["A program, 2 ranks: run"][0] == "failed"
    assert "rank 1 fell over" in found["A program, 2 ranks: run"][1]


def test_what_is_not_there_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcomes(monkeypatch, Program("A program", "none", ("numpy", "no-such-package")))
    assert found == {"A program": ("skipped", "not installed: no-such-package")}


def test_of_one_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcomes(monkeypatch, Program("A program", "none", ("numpy",), False), hosts=2)
    assert found == {"A program": ("skipped", "it runs on one host alone")}


@pytest.mark.parametrize("program", research.PROGRAMS, ids=lambda program: program.module)
def test_each_program_is_there(program: Program) -> None:
    assert util.find_spec(f"ddl_ce_smoke.research.{program.module}")


def test_long_is_everything() -> None:
    assert cli.parser().parse_args(["--long"]).parts == list(suite.PARTS)
    assert "research" not in cli.parser().parse_args([]).parts


def test_long_with_parts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--long", "--parts", "training"])
    assert end.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_the_report_s_schema_has_every_part() -> None:
    text = resources.files("ddl_ce_smoke").joinpath("report.schema.json").read_text()
    names = json.loads(text)["$defs"]["part"]["properties"]["name"]["enum"]
    assert names == [suite.HOSTS[0], *suite.PARTS]
