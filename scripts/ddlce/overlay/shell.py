"""An overlay's `bin/activate`: what its release's module does, and the overlay's folder first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from ddlce.env.layout import ORIGIN
from ddlce.modulefile.classify import Change
from ddlce.modulefile.writer import HOME

#: Words in capitals between `@` are replaced.
ACTIVATE = r"""# Made by `ddlce env overlay`. Use it with ". bin/activate" from bash, zsh or dash.
# With the module of the release loaded, only the overlay is added. Without, all is done here that
# the module does; `deactivate` takes back whatever was done.

_ddlce_activate() {
    if [ ! -e @ORIGIN@ ]; then
        printf 'error: %s\nhint:  %s\n' @GONE@ @GONE_HINT@ >&2
        return 1
    fi
    # A function: programs of that name are not of an environment that this shell has activated.
    if [ -n "${VIRTUAL_ENV:-}" ] && [ "$(command -v deactivate)" = deactivate ]; then
        deactivate
    fi
    if [ -n "${CONDA_PREFIX:-}" ] && ! [ "$CONDA_PREFIX" -ef @RELEASE@ ]; then
        printf 'error: %s\nhint:  %s\n' @OTHER@"$CONDA_PREFIX is active" @OTHER_HINT@ >&2
        return 1
    fi

    _ddlce_without() { # the folder $1: taken from PATH, where it is there
        case ":$PATH:" in
            *":$1:"*)
                _DDLCE_PATH=":$PATH:"
                _DDLCE_PATH="${_DDLCE_PATH%%":$1:"*}:${_DDLCE_PATH#*":$1:"}"
                _DDLCE_PATH="${_DDLCE_PATH#:}"
                PATH="${_DDLCE_PATH%:}"
                unset _DDLCE_PATH
                ;;
        esac
    }

    deactivate() {
        _ddlce_without @BIN@
        if [ -n "${_DDLCE_ALONE:-}" ]; then
@RESTORE@
        fi
        export PATH
        hash -r 2>/dev/null
        if [ -n "${_DDLCE_PS1+set}" ]; then
            PS1="$_DDLCE_PS1"
        fi
        unset VIRTUAL_ENV VIRTUAL_ENV_PROMPT _DDLCE_ALONE _DDLCE_PS1
        unset -f deactivate _ddlce_without
    }

    _DDLCE_ALONE=
    if [ -z "${CONDA_PREFIX:-}" ]; then
        _DDLCE_ALONE=1
@CHANGE@
    fi
    PATH=@BIN@":$PATH"
    VIRTUAL_ENV=@PREFIX@
    VIRTUAL_ENV_PROMPT=@PROMPT@
    export PATH VIRTUAL_ENV VIRTUAL_ENV_PROMPT
    if [ -z "${VIRTUAL_ENV_DISABLE_PROMPT:-}" ]; then
        _DDLCE_PS1="${PS1:-}"
        PS1=@PROMPT@"${PS1:-}"
    fi
    hash -r 2>/dev/null
    return 0
}

if _ddlce_activate; then
    unset -f _ddlce_activate
else
    unset -f _ddlce_activate
    return 1
fi
"""


def activate_text(prefix: Path, release: Path, env: str, changes: Iterable[Change]) -> str:
    """The script.

    Args:
        release: the release's prefix.
        env: the name of the release's environment, as CONDA_DEFAULT_ENV has it.
        changes: what the release's module changes, see `environment_changes`.
    """
    level = {"CONDA_PREFIX": str(release), "CONDA_DEFAULT_ENV": env, "CONDA_SHLVL": "1"}
    own = [Change(name, "set", (value,)) for name, value in level.items()]
    do, undo = [], []
    for change in [*changes, *own]:
        steps, back = _path(change) if change.name == "PATH" else _variable(change)
        do += steps
        undo += back
    words = {
        "ORIGIN": str(release / ORIGIN),
        "GONE": f"the release of this overlay is gone: {release}",
        "GONE_HINT": f"see what that means with: ddlce env check {prefix}",
        "RELEASE": str(release),
        "OTHER": f"this overlay is made on {release}, and the environment ",
        "OTHER_HINT": "leave that one first, with: conda deactivate (or: module unload NAME)",
        "BIN": str(prefix / "bin"),
        "PREFIX": str(prefix),
        # Shells run commands that stand in a prompt.
        "PROMPT": "({}) ".format(re.sub(r"[^\w.+ -]", "_", prefix.name, flags=re.ASCII)),
    }
    blocks = {
        "@CHANGE@": [f"{' ' * 8}{line}" for line in do],
        "@RESTORE@": [f"{' ' * 12}{line}" for line in undo],
    }
    lines: list[str] = []
    for line in ACTIVATE.splitlines():
        if line in blocks:
            lines += blocks[line]
        else:
            lines.append(re.sub("@([A-Z_]+)@", lambda m: shlex.quote(words[m[1]]), line))
    return "\n".join(lines) + "\n"


def _path(change: Change) -> tuple[list[str], list[str]]:
    """Statements for PATH; deactivation removes single folders: others may have been added."""
    undo = [f"_ddlce_without {shlex.quote(folder)}" for folder in change.elements]
    return [f'PATH={_quote(change.value)}":$PATH"'], undo


def _variable(change: Change) -> tuple[list[str], list[str]]:
    """Statements that change a variable, and those that give it back what it had."""
    name, value, delim = change.name, _quote(change.value), change.delim
    if change.kind == "prepend":
        tail = f'"{delim}"' if change.tail else ""
        steps = [
            f'if [ -n "${{{name}:-}}" ]; then',
            f'    export {name}={value}"{delim}${name}"',
            "else",
            f"    export {name}={value}{tail}",
            "fi",
        ]
    elif change.kind == "append":
        steps = [f'export {name}="${{{name}:+${name}{delim}}}"{value}']
    elif change.kind == "default":
        steps = [f'if [ -z "${{{name}+set}}" ]; then export {name}={value}; fi']
    else:
        steps = [f"export {name}={value}"]
    kept, was = f"_DDLCE_OLD_{name}", f"_DDLCE_SET_{name}"
    undo = [
        f'if [ -n "${{{was}:-}}" ]; then export {name}="${kept}"; else unset {name}; fi',
        f"unset {kept} {was}",
    ]
    return [f'{kept}="${{{name}:-}}" {was}="${{{name}+set}}"', *steps], undo


def _quote(value: str) -> str:
    """A shell word for a value; the home in it becomes that of whoever activates."""
    return '"$HOME"'.join(shlex.quote(part) if part else "" for part in value.split(HOME)) or "''"
