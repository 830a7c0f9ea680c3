"""The report as files: JUnit XML for CI systems, JSON for programs, one HTML page for people."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from ddl_ce_smoke.model import Case, Part, Report

#: Characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_reports(report: Report, folder: Path) -> list[Path]:
    """Writes report.json, junit.xml and report.html into `folder` (made if absent).

    Each file is whole or not there. The page comes last: a broken environment, without
    matplotlib say, still gives the other two.

    Raises:
        OSError: the folder cannot be written.
        ImportError: the page's libraries are missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = json.dumps(report.to_dict(), indent=2) + "\n"
    paths = [_write(folder / "report.json", data), _write(folder / "junit.xml", junit(report))]
    from ddl_ce_smoke.page import render  # slow to import

    return [*paths, _write(folder / "report.html", render(report))]


def _write(path: Path, text: str) -> Path:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as stream:
            stream.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def junit(report: Report) -> str:
    """JUnit XML as Ant's and Jenkins' schemas want it: a test suite per part."""
    root = ElementTree.Element("testsuites")
    for number, part in enumerate(report.parts):
        root.append(_suite(report, part, number))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _suite(report: Report, part: Part, number: int) -> ElementTree.Element:
    suite = ElementTree.Element(
        "testsuite",
        name=part.name,
        package="ddl_ce_smoke",
        id=str(number),
        timestamp=report.started[:19],  # the schema has no time zone; ours is UTC
        hostname=report.machine["host"],
        tests=str(len(part.cases)),
        failures=str(part.count("failed")),
        errors="0",
        skipped=str(part.count("skipped")),
        time=f"{part.seconds:.3f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {"prefix": report.prefix, **report.machine}.items():
        ElementTree.SubElement(properties, "property", name=name, value=clean(value))
    suite.extend(_case(part, case) for case in part.cases)
    ElementTree.SubElement(suite, "system-out").text = clean(
        "\n".join(f"{case.name}: {case.message}" for case in part.cases if case.message)
    )
    ElementTree.SubElement(suite, "system-err")
    return suite


def _case(part: Part, case: Case) -> ElementTree.Element:
    element = ElementTree.Element(
        "testcase",
        name=clean(case.name),
        classname=f"ddl_ce_smoke.{part.name}",
        time=f"{case.seconds:.3f}",
    )
    if case.outcome == "failed":
        failure = ElementTree.SubElement(
            element, "failure", type="failed", message=clean(case.message)
        )
        failure.text = clean(case.detail)
    elif case.outcome == "skipped":
        ElementTree.SubElement(element, "skipped", message=clean(case.message))
    return element


def clean(text: str) -> str:
    """The text, with characters that XML cannot hold replaced by U+FFFD."""
    return _NOT_XML.sub("\ufffd", text)
