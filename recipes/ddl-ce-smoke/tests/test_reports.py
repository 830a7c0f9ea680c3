"""The three report files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ddl_ce_smoke.model import Case, Part, Report, Throughput, with_efficiency
from ddl_ce_smoke.page import render
from ddl_ce_smoke.reports import junit, write_reports

GOLDEN = Path(__file__).with_name("junit-golden.xml")


def test_junit_is_the_golden_file(report: Report) -> None:
    assert junit(report) == GOLDEN.read_text()


def test_junit_counts_are_those_of_its_cases(report: Report) -> None:
    for suite in ElementTree.fromstring(junit(report)):
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped"))


def test_junit_survives_what_xml_cannot_hold(report: Report) -> None:
    nasty = "".join(map(chr, range(32))) + "\ud800 ]]> <&>\"' \uffff \U0001f600"
    report.parts[0].cases.append(Case(nasty, "failed", 0, nasty, nasty))
    case = ElementTree.fromstring(junit(report)).findall("testsuite/testcase")[1]
    assert "\U0001f600" in case.attrib["name"]


def test_json_has_what_the_schema_says(report: Report, tmp_path: Path) -> None:
    data = json.loads(write_reports(report, tmp_path)[0].read_text())
    schema = json.loads(resources.files("ddl_ce_smoke").joinpath("report.schema.json").read_text())
    conforms(data, schema, schema)
    assert data["passed"] is False
    assert [part["outcome"] for part in data["parts"]] == ["passed", "failed"]


@pytest.mark.parametrize("broken", ["passed", "machine", "parts"])
def test_the_schema_check_of_these_tests_can_fail(report: Report, broken: str) -> None:
    schema = json.loads(resources.files("ddl_ce_smoke").joinpath("report.schema.json").read_text())
    with pytest.raises(AssertionError):
        conforms({**report.to_dict(), broken: 7}, schema, schema)


def conforms(data: object, schema: dict, root: dict) -> None:
    """The part of JSON Schema that report.schema.json uses; jsonschema is not in every env."""
    if "$ref" in schema:
        return conforms(data, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "const" in schema:
        assert data == schema["const"]
    if "enum" in schema:
        assert data in schema["enum"]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    assert not kinds or any(isinstance(data, TYPES[kind]) for kind in kinds), (data, schema)
    if isinstance(data, dict):
        assert set(schema.get("required", ())) <= set(data)
        others = schema.get("additionalProperties")
        for key, value in data.items():
            if key in schema.get("properties", {}):
                conforms(value, schema["properties"][key], root)
            else:
                assert others, f"{key} is not in the schema"
                conforms(value, others, root)
    if isinstance(data, list):
        for item in data:
            conforms(item, schema["items"], root)
    return None


TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


class Page(HTMLParser):
    """Tags, and whatever a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data") and not (value or "").startswith("#"):
                self.fetched.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone(report: Report) -> None:
    text = render(report)
    page = Page(text)
    assert page.open == []
    assert page.fetched == []
    assert not re.search(r"@import|url\((?!#)|<script", text)


def test_the_page_escapes_and_shows_failures_first(report: Report) -> None:
    text = render(report)
    assert "&lt;first&gt; &amp; &#34;last&#34; index 17" in text
    assert text.index("What failed") < text.index('id="versions"')


def test_plots_follow_the_page_s_colours(report: Report) -> None:
    text = render(report)
    assert text.count("<svg") == 2
    assert "var(--first)" in text
    assert not re.search("#0[1-5]0", text), "a placeholder colour is left"


def test_a_report_of_one_part_has_a_page(report: Report) -> None:
    bare = replace(report, parts=report.parts[:1], throughput=[], bandwidth=[])
    assert "<svg" not in render(bare)


def test_an_unwritable_folder_is_an_os_error(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_reports(report, tmp_path / "file")


def test_nothing_but_skipped_cases_is_not_a_pass(report: Report) -> None:
    part = Part("versions", "versions", [Case("a", "skipped")])
    assert not replace(report, parts=[part]).passed


def test_efficiency_is_relative_to_one_rank_of_the_same_backend() -> None:
    rows = [
        Throughput("ddl", "cpu", 1, None, 100.0, None, False),
        Throughput("gloo", "cpu", 1, None, 50.0, None, False),
        Throughput("ddl", "cpu", 4, None, 300.0, None, False),
        Throughput("nccl", "cuda", 4, None, 300.0, None, False),
    ]
    assert [row.efficiency for row in with_efficiency(rows)] == [1.0, 1.0, 0.75, None]
