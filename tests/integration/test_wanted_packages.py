"""What researchers ask for beside a release: pip finds versions that fit the release's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.env.layout import Layout
from ddlce.env.records import read_records
from ddlce.overlay.pins import constraints, release_pins
from ddlce.settings import load_settings
from support.run import ok, run

LIST = Path(__file__).parents[1] / "support" / "wanted-packages.txt"
NAMES = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]

pytestmark = [pytest.mark.built, pytest.mark.slow]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    """pip, that of the release, with the constraints of an overlay on ddl-ce-full, else ddl-ce."""
    layout = Layout(load_settings().root)
    release = layout.current("ddl-ce-full") or layout.current("ddl-ce")
    assert release, "there is no built environment: run `make` first"
    file = tmp_path_factory.mktemp("pins") / "constraints.txt"
    file.write_text(constraints(release.name, release_pins(read_records(release))))
    return [release / "bin" / "python", "-m", "pip", "install", "--dry-run", "-q", "-c", file]


@pytest.mark.parametrize("name", NAMES)
def test_pip_finds_versions_that_fit(command: list[str | Path], name: str) -> None:
    """Within minutes: pip may look for hours among versions of years ago."""
    ok(run([*command, "--break-system-packages", name], timeout=300))
