"""Which programs of a release get a name in an overlay, and how they are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.overlay.scripts import scripts

LONG = "'''exec' \"{python}\"{options} \"$0\" \"$@\"\n' '''\nimport sys\n"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release with the folder of programs, and nothing in it."""
    (tmp_path / "the release" / "bin").mkdir(parents=True)
    return tmp_path / "the release"


def put(release: Path, text: str) -> None:
    """One program; `{python}` is the release's."""
    python = release / "bin" / "python3.11"
    (release / "bin" / "program").write_text(text.replace("{python}", str(python)))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("#!{python}\nimport sys\n", ""),
        ("#!{python} -sE\nimport sys\n", "-sE "),
        ("#!/bin/sh\n" + LONG.replace("{options}", ""), ""),
        ("#!/bin/sh\n# why\n# so\n" + LONG.replace("{options}", " -s"), "-s "),
    ],
)
def test_pythons_programs(release: Path, text: str, options: str) -> None:
    if " " in str(release) and text.startswith("#!{python}"):
        release = release.rename(release.with_name("release"))  # a first line has no quotes
    put(release, text)
    target = release.parent / "mine"
    assert scripts(target, release) == {
        "program": f'#!/bin/sh\nexec {target}/bin/python {options}{quoted(release)} "$@"\n'
    }


def quoted(release: Path) -> str:
    """The program as a word of a shell."""
    path = str(release / "bin" / "program")
    return f"'{path}'" if " " in path else path


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\n" + LONG.replace("{options}", " -I"),
        "#!{python} -I\nimport sys\n",
        "#!/usr/bin/env python\n",
        "#!/usr/bin/python3\n",
        "#!/bin/sh\necho\n",
        "\x7fELF",
        "",
    ],
)
def test_others_stay_as_they_are(release: Path, text: str) -> None:
    put(release, text)
    assert scripts(release.parent / "mine", release) == {}


def test_links_are_no_programs_of_their_own(release: Path) -> None:
    (release / "bin" / "python").symlink_to("python3.11")
    (release / "bin" / "broken").symlink_to("nowhere")
    assert scripts(release.parent / "mine", release) == {}
