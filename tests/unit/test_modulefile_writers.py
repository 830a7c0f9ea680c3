"""The two languages: quoting, read back by their own interpreters."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import PurePath

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ddlce.modulefile.lua import LuaWriter
from ddlce.modulefile.tcl import TclWriter
from ddlce.modulefile.writer import HOME, ModuleWriter
from support.moduleprefix import TRICKY

#: Prints an expression's value as the interpreter understood it.
LUA = "local home = os.getenv('HOME'); io.write({})"
TCL = (
    "proc getenv {{name}} {{return $::env($name)}}\n"
    "fconfigure stdout -encoding utf-8 -translation lf\nputs -nonewline {}"
)

INTERPRETERS = {
    "lua": (LuaWriter, ("lua5.3", "-"), LUA),
    "tcl": (TclWriter, ("tclsh8.6",), TCL),
}

#: All text that an environment variable can hold, and that Tcl 8.6 can: the basic plane.
values = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF), max_size=60)
awkward = st.text(st.sampled_from("\0\\\"'$[]{}();#`!\n\t\r aé世-=.~*"), max_size=20)


def evaluate(language: str, expression_of: str) -> str:
    """Quote, let the interpreter evaluate it, read what it got."""
    writer, argv, frame = INTERPRETERS[language]
    if not shutil.which(argv[0]):
        pytest.skip(f"{argv[0]} is not installed (apt-get install lmod tcl)")
    program = frame.format(writer().quote(expression_of))
    if language == "tcl":
        program = f"fconfigure stdin -encoding utf-8\n{program}"
    done = subprocess.run(
        argv,
        input=program.encode(),
        env={"HOME": "/home/me", "LANG": "C.UTF-8"},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode()


@pytest.mark.parametrize("language", INTERPRETERS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=values | awkward)
@example(value="")
@example(value="\\")
@example(value="\\\n")
@example(value="a\\\nb")
@example(value="\x017")
@example(value="-- ]] \x1f1")
@example(value=HOME)
@example(value=f"{HOME}{HOME}/x{HOME}")
def test_quoting_is_read_back(language: str, value: str) -> None:
    assert evaluate(language, value) == value.replace(HOME, "/home/me")


@pytest.mark.parametrize("language", INTERPRETERS)
@pytest.mark.parametrize("name", TRICKY)
def test_tricky_values_are_read_back(language: str, name: str) -> None:
    assert evaluate(language, TRICKY[name]) == TRICKY[name]


@pytest.mark.parametrize("writer", [LuaWriter, TclWriter])
def test_every_statement_quotes_its_text(writer: type[ModuleWriter]) -> None:
    """No statement lets text out of its quotes: the raw text never stands in the file."""
    evil = 'x"]] } $(id) [exit] \\'
    module = writer()
    module.help(evil)
    module.whatis(evil)
    module.extensions([(evil, "1")])
    module.family(evil)
    module.conflict([evil])
    module.refuse_other_conda(PurePath(evil), evil)
    module.pushenv(evil, evil)
    module.conda_level(PurePath(evil), evil)
    module.unless_env(evil, evil)
    module.prepend_path(evil, [evil], evil, tail=True)
    module.append_path(evil, [evil])
    assert evil not in module.text()
    assert evil not in writer.default_version(evil, evil)
