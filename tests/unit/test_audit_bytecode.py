"""The audit's rule on bytecode: Python takes it for that of the source beside it."""

from __future__ import annotations

import struct
from pathlib import Path

from ddlce.audit import audit_package
from ddlce.audit.facts import read_facts
from support.synthetic import make_package

GLIBC = "__glibc >=2.28,<3.0.a0"


def test_bytecode_is_of_the_source_beside_it(tmp_path: Path) -> None:
    """Python compiles again what is of another time, and root writes it into the release."""
    site = tmp_path / "prefix/lib/python3.11/site-packages"
    (site / "__pycache__").mkdir(parents=True)
    for name in ("one", "two.more"):
        (site / f"{name}.py").write_text("x = 1\n")
    channel = tmp_path / "channel" / "linux-64"

    def found(time: int, flags: int = 0) -> list[str]:
        for name in ("one", "two.more"):
            head = struct.pack("<4sIII", b"\xa7\r\r\n", flags, time, 6)
            (site / "__pycache__" / f"{name}.cpython-311.pyc").write_bytes(head)
        package = make_package(channel, tmp_path / "prefix", "one", depends=(GLIBC,))
        facts = read_facts(package)
        times.add(facts.files["lib/python3.11/site-packages/one.py"].time)
        return [str(finding) for finding in audit_package(package) if finding.rule == "bytecode"]

    times: set[int] = set()
    assert found(1, flags=3) == []  # of a hash of the source
    assert found(1) == [
        "bytecode lib/python3.11/site-packages/__pycache__/one.cpython-311.pyc: is for a source of "
        "another time (1) than the one beside it, as in 1 other files; compile it with the "
        "package's time"
    ]
    (time,) = times
    assert found(time) == []
