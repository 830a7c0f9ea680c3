"""What is read from a prefix's activation, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddlce.errors import InputError
from ddlce.modulefile.classify import Change, activation_changes
from ddlce.modulefile.writer import HOME
from support.moduleprefix import TRICKY, add_script, make_prefix, sh_quote


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return make_prefix(tmp_path)


def changes(prefix: Path, script: str) -> dict[str, Change]:
    """The changes of a prefix with one script, by name."""
    add_script(prefix, "x.sh", script)
    return {c.name: c for c in activation_changes(prefix, "ddl-ce")}


def test_without_scripts_only_path(prefix: Path) -> None:
    assert activation_changes(prefix, "ddl-ce") == [
        Change("PATH", "prepend", (str(prefix / "bin"),))
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("export V=x", Change("V", "set", ("x",))),
        ("V=x; export V", Change("V", "set", ("x",))),
        ("declare -x V=x", Change("V", "set", ("x",))),
        ('export V="${V:-x}"', Change("V", "default", ("x",))),
        ('if [ -z "$V" ]; then export V=x; fi', Change("V", "default", ("x",))),
        ('export V="/a:$V"', Change("V", "prepend", ("/a",), tail=True)),
        ('export V="/a${V:+:$V}"', Change("V", "prepend", ("/a",))),
        ('export V="/a:/b:${V:-}"', Change("V", "prepend", ("/a", "/b"), tail=True)),
        ('export V="$V:/a"', Change("V", "append", ("/a",))),
        ('export V="${V:+$V;}/a"', Change("V", "append", ("/a",), ";")),
        ('export V="${V} -O2 -g"', Change("V", "append", ("-O2", "-g"), " ")),
        ('export V="${V:+$V,}a,b"', Change("V", "append", ("a", "b"), ",")),
        ('export V="$HOME/x"', Change("V", "set", (f"{HOME}/x",))),
        ('export V="$CONDA_DEFAULT_ENV $CONDA_SHLVL"', Change("V", "set", ("ddl-ce 1",))),
        ("V=not-exported", None),
        ("export CONDA_SHLVL=7 CONDA_PROMPT_MODIFIER=x; V=1", None),
    ],
)
def test_a_script_s_change_has_its_kind(prefix: Path, script: str, expected: Change | None) -> None:
    found = changes(prefix, script)
    assert found.pop("PATH").elements == (str(prefix / "bin"),)
    assert found == ({"V": expected} if expected else {})


@pytest.mark.parametrize("name", TRICKY)
def test_values_are_read_byte_for_byte(prefix: Path, name: str) -> None:
    found = changes(prefix, f"export V={sh_quote(TRICKY[name])}")
    assert found["V"] == Change("V", "set", (TRICKY[name],))


def test_path_additions_keep_their_order(prefix: Path) -> None:
    found = changes(prefix, 'export PATH="$CONDA_PREFIX/libexec:/opt/x:$PATH"')
    expected = (f"{prefix}/libexec", "/opt/x", f"{prefix}/bin")
    assert found["PATH"] == Change("PATH", "prepend", expected)


def test_scripts_may_call_programs_and_see_each_other(prefix: Path) -> None:
    add_script(prefix, "a.sh", "export A=$(basename /x/y)")
    found = changes(prefix, 'export B="$A-$(python)"')
    assert found["A"].value == "y"
    assert found["B"].value == "y-python of 1.0.0"


def test_backups_for_deactivation_are_left_out(prefix: Path) -> None:
    script = """
    if [ -n "${V:-}" ]; then export _OLD_V="$V"; else export _OLD_V=none; fi
    export _OTHER_V="${V:-}"
    export V=x
    """
    assert set(changes(prefix, script)) == {"PATH", "V"}


def test_condas_own_variables(prefix: Path) -> None:
    folder = prefix / "etc" / "conda" / "env_vars.d"
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"A": "package", "B": "package"}))
    state = {"version": 1, "env_vars": {"A": "env", "C": "***unset***", "D": "5"}}
    (prefix / "conda-meta" / "state").write_text(json.dumps(state))
    found = {c.name: c.value for c in activation_changes(prefix, "ddl-ce")}
    assert found == {"A": "env", "B": "package", "D": "5", "PATH": f"{prefix}/bin"}


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("f() { true; }", "x.sh defines a shell function: declare -f f"),
        ("f() { true; }; export -f f", "x.sh defines a shell function"),
        ("alias ll='ls -l'", "x.sh defines an alias: alias ll='ls -l'"),
        ("cd /", "x.sh changes the working directory: /"),
        ("umask 077", "x.sh changes the umask: 0077"),
        ("exit 3", "x.sh ends or blocks the shell"),
        ("echo why >&2; exit 0", "x.sh ends or blocks the shell (why)"),
        ("set -e; false", "x.sh ends or blocks the shell"),
        ("unset V", "x.sh unsets V"),
        ("export LD_LIBRARY_PATH=/x", "x.sh sets LD_LIBRARY_PATH"),
        ("export LD_LIBRARY_PATH=/x:$LD_LIBRARY_PATH", "x.sh sets LD_LIBRARY_PATH"),
        ("export TMPDIR=/x", "x.sh sets TMPDIR"),
        ("export XDG_CACHE_HOME=/x", "x.sh sets XDG_CACHE_HOME"),
        ("export HOME=/x", "x.sh sets HOME"),
        ("export V=$RANDOM$RANDOM$RANDOM", "x.sh sets V in a way that depends"),
        ('export V="/a:$V:/b"', "x.sh sets V in a way that depends"),
        ("export V=$'a\\nb'", "x.sh sets V to a value with a line break"),
        ("export V=$'\\xff'", "x.sh sets V to bytes that are not UTF-8"),
    ],
)
def test_refusals_name_the_script(prefix: Path, script: str, what: str) -> None:
    add_script(prefix, "a-innocent.sh", "export A=1")
    with pytest.raises(InputError) as error:
        changes(prefix, script)
    assert f"activate.d/{what}" in error.value.message
    assert error.value.hint


def test_a_script_that_hangs_is_named(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddlce.modulefile.activation.TIMEOUT_S", 1)
    with pytest.raises(InputError, match=r"x\.sh ends or blocks .*did not end within 1 s"):
        changes(prefix, "sleep 30")


@pytest.mark.parametrize("text", ["not json", "[]", '{"env_vars": 3}'])
def test_a_broken_state_file_is_named(prefix: Path, text: str) -> None:
    path = prefix / "conda-meta" / "state"
    path.write_text(text)
    with pytest.raises(InputError, match=f"{path}: not what conda writes"):
        activation_changes(prefix, "ddl-ce")


def test_the_users_own_environment_does_not_matter(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("V", "user")
    monkeypatch.setenv("BASH_ENV", "/dev/full")
    assert changes(prefix, 'export V="${V:-x}"')["V"] == Change("V", "default", ("x",))
