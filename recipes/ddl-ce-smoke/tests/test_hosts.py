"""Where ranks run, and the host that differs from the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddl_ce_smoke.cli import parser
from ddl_ce_smoke.hosts import judge_hosts, release_of
from ddl_ce_smoke.placement import place


def row(host: str, **differs: object) -> dict:
    """The event of a host on which all is well."""
    fine = {
        "host": host,
        "prefix": "/opt/env",
        "release": "0123456789ab",
        "offset": 0.01,
        "within": 0.02,
        "first": "a",
        "free": {"temporary files": 1 << 30, "/dev/shm": 1 << 30},
        "cores": 4,
        "gpus": 0,
    }
    return {**fine, **differs}


def test_hosts_on_which_all_is_well() -> None:
    cases = judge_hosts([row("a"), row("b")])
    assert [case.outcome for case in cases] == ["passed", "passed"]
    assert cases[0].message == "4 cores, 0 GPUs, release 0123456789ab"


@pytest.mark.parametrize(
    ("differs", "words"),
    [
        (
            {"release": "ba9876543210", "prefix": "/opt/other"},
            "c: runs release ba9876543210 in /opt/other, most others 0123456789ab",
        ),
        ({"offset": -7.25}, "c: its clock is 7.2 s behind that of a"),
        ({"offset": 90.0}, "c: its clock is 90.0 s ahead of that of a"),
        (
            {"free": {"temporary files": 3 << 20, "/dev/shm": 1 << 30}},
            "c: 3 MiB are free for temporary files, 100 MiB needed",
        ),
    ],
)
def test_the_host_that_differs_is_named(differs: dict, words: str) -> None:
    cases = judge_hosts([row("a"), row("b"), row("c", **differs)])
    assert [case.outcome for case in cases] == ["passed", "passed", "failed"]
    assert cases[2].message == words


def test_a_slow_answer_says_little_of_a_clock() -> None:
    (case,) = judge_hosts([row("a", offset=5.0, within=4.5)])
    assert case.outcome == "passed"


def test_another_build_of_a_package_is_another_release(tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / "ddl-0.1.0-py311_0.json").touch()
    before = release_of(tmp_path)
    (tmp_path / "conda-meta" / "ddl-0.1.0-py311_0.json").rename(
        tmp_path / "conda-meta" / "ddl-0.1.0-py311_1.json"
    )
    assert release_of(tmp_path) != before


def test_words_of_ddlrun() -> None:
    here = place(None, None, False, None, {})
    assert here.is_local
    assert here.on(4, 1) == ["-H", "localhost:4"]
    named = place("a,b", None, False, Path("/shared"), {"SLURM_JOB_NODELIST": "h[0-7]"})
    assert named.on(3, 2) == ["-H", "a,b", "-accelerators", "2", "-np", "3"]
    assert named.one_on_each() == ["-H", "a,b", "-accelerators", "1"]
    assert named.shared == Path("/shared")
    job = place(None, None, False, None, {"SLURM_JOB_NODELIST": "h[0-7]"})
    assert (job.on(8, 8), job.where) == (
        ["-accelerators", "1", "-np", "8"],
        "the hosts of this job of Slurm",
    )
    assert place(None, None, True, None, {"SLURM_JOB_NODELIST": "h[0-7]"}).is_local
    listed = place(None, Path("hosts"), False, None, {})
    assert listed.one_on_each() == ["-hostfile", "hosts", "-accelerators", "1"]


def test_two_places_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["-H", "a", "--local"])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err
