"""Turn what activation did into what a modulefile says, one statement per variable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from ddlce.errors import InputError
from ddlce.modulefile.activation import SYSTEM_PATH, Run, exported_names, run_activation

#: Separators of the path-like variables that we know how to take apart.
DELIMITERS = ":;, "

# The module's own statement (`ModuleWriter.conda_level`); conda itself sees to its prompt.
CONDAS_OWN = {"CONDA_SHLVL", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PROMPT_MODIFIER"}

#: Variables of the shell that cannot be preset.
SHELLS_OWN = {"HOME", "IFS", "PS4", "UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_ENV"}

#: What no package may change for everything that the user runs after a load.
FORBIDDEN = re.compile(r"LD_LIBRARY_PATH|LD_PRELOAD|HOME|TMPDIR|TMP|TEMP|XDG_\w+|PYTHONHOME")


@dataclass(frozen=True)
class Change:
    """One variable's change.

    Attributes:
        name: the variable.
        kind: `set`, `default` (only if the user has not set it), `prepend`, `append`.
        elements: what is put before or after; for `set` and `default` the one value.
        delim: between elements.
        tail: a variable that was not set ends with an empty element.
    """

    name: str
    kind: Literal["set", "default", "prepend", "append"]
    elements: tuple[str, ...]
    delim: str = ":"
    tail: bool = False

    @property
    def value(self) -> str:
        """The elements as one value."""
        return self.delim.join(self.elements)


def activation_changes(prefix: Path, env_name: str) -> list[Change]:
    """All that activating `prefix` changes, by name.

    The activation runs once with nothing set, and twice with every variable that it sets or
    mentions preset to a sentinel. A value that is the same each time is set. One that contains the
    sentinel was added to. Any other depends on something that a modulefile cannot see.

    Raises:
        InputError: a script does what a modulefile cannot or must not do; names the script.
    """
    empty = run_activation(prefix, env_name, {})
    names = set(empty.final) | exported_names(prefix) | {"PATH"}
    names -= CONDAS_OWN | SHELLS_OWN
    presets = [{name: f"/ddlce-{mark}/{name}/1:/ddlce-{mark}/2" for name in names} for mark in "ab"]
    for preset in presets:
        preset["PATH"] += f":{SYSTEM_PATH}"  # the scripts may call programs
    runs = [run_activation(prefix, env_name, preset) for preset in presets]
    found = sorted((names | set(runs[0].final) | set(runs[1].final)) - CONDAS_OWN)
    changes = [_classify(name, empty, runs, presets) for name in found]
    return [change for change in changes if change]


def _classify(
    name: str, empty: Run, runs: list[Run], presets: list[dict[str, str]]
) -> Change | None:
    unset, *results = (run.final.get(name) for run in (empty, *runs))
    before = [preset.get(name) for preset in presets]
    if name in SHELLS_OWN:
        before = [run.steps[0].get(name) for run in runs]
    if name == "PATH" and unset is not None:
        unset = unset.replace(SYSTEM_PATH, "").strip(":")
    if results == before and (unset is None or name in SHELLS_OWN):
        return None  # untouched
    if name.startswith("BASH_FUNC_"):
        _refuse(name, runs, "exports a shell function")
    if FORBIDDEN.fullmatch(name) or name in SHELLS_OWN:
        _refuse(name, runs, f"sets {name}, which would change every program of the user")
    if _is_backup(name, results, presets):
        return None
    if any("\n" in (value or "") for value in (unset, *results)):
        # Seen with Lmod 8.6 and Environment Modules 5.2: the shell gets the first line only.
        _refuse(name, runs, f"sets {name} to a value with a line break, which no module can")
    if unset is None and results == [None, None]:
        _refuse(name, runs, f"unsets {name}, which no unload could restore")
    if results == [unset, unset] and unset is not None:
        return Change(name, "set", (unset,))
    if results == before and unset is not None:
        return Change(name, "default", (unset,))
    change = _path_change(name, unset or "", results, before)
    if change is None:
        _refuse(name, runs, f"sets {name} in a way that depends on the user's environment")
    return change


def _path_change(
    name: str, unset: str, results: list[str | None], before: list[str | None]
) -> Change | None:
    """The common text put before or after the sentinels, if that is all there is."""
    texts = set()
    for result, sentinel in zip(results, before, strict=True):
        if result is None or sentinel is None or result.count(sentinel) != 1:
            return None
        head, _, rest = result.partition(sentinel)
        texts.add((head, rest))
    if len(texts) != 1:
        return None
    head, rest = texts.pop()
    if head and not rest and head[-1] in DELIMITERS:
        delim, text = head[-1], head[:-1]
        if unset in (text, head):
            return Change(name, "prepend", tuple(text.split(delim)), delim, unset == head)
    if rest and not head and rest[0] in DELIMITERS:
        delim, text = rest[0], rest[1:]
        if unset in (text, rest):
            return Change(name, "append", tuple(text.split(delim)), delim)
    return None


def _is_backup(name: str, results: list[str | None], presets: list[dict[str, str]]) -> bool:
    """Whether the variable only keeps another one's old value, for deactivation.

    A modulefile restores by itself, and the next user's old value is another one.
    """
    owners = [
        {other for other, sentinel in preset.items() if result == sentinel and other != name}
        for result, preset in zip(results, presets, strict=True)
    ]
    return bool(owners[0]) and owners[0] == owners[1]


def _refuse(name: str, runs: list[Run], what: str) -> NoReturn:
    raise InputError(
        f"{runs[0].culprit(name)} {what}",
        "a modulefile sets variables and adds to paths; change the package's activation script",
    )
