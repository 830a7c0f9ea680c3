"""What an environment's modulefile says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlce.env.layout import ORIGIN, Origin, read_origin
from ddlce.env.records import read_records
from ddlce.errors import InputError
from ddlce.modulefile.classify import Change, activation_changes
from ddlce.modulefile.writer import HOME, ModuleWriter

FAMILY = "conda_env"

#: Modules that bring a python or a conda of their own.
CONFLICTS = (
    *("python", "python3", "anaconda", "anaconda2", "anaconda3", "miniconda", "miniconda3"),
    *("miniforge", "miniforge3", "mambaforge", "conda", "mamba", "micromamba", "open-ce"),
)

#: As in channel/condarc.j2: where users' package cache goes.
USER_PKGS = f"{HOME}/.cache/ddl-ce/conda-pkgs"


@dataclass(frozen=True)
class ModuleContent:
    """All that a modulefile is made of.

    Attributes:
        name, version: of the module.
        prefix: the environment.
        env: what it is.
        summary: one sentence, from the metapackage.
        main: (name, version) of the packages that it was asked to contain.
        inside: (name, version) of all that `module spider` is to find.
        programs: which of the programs that the help text shows are there.
        changes: what a load changes, see `environment_changes`.
    """

    name: str
    version: str
    prefix: Path
    env: Origin
    summary: str
    main: list[tuple[str, str]]
    inside: list[tuple[str, str]]
    programs: set[str]
    changes: list[Change]


def read_content(prefix: Path, name: str | None = None) -> ModuleContent:
    """Read a prefix and run its activation.

    Args:
        name: the module's name; the environment's by default.

    Raises:
        InputError: not such an environment, or activation that no modulefile can do.
    """
    env = read_origin(prefix)
    if env is None:
        raise InputError(f"{prefix} is not a complete environment", "see: ddlce env list")
    records = [record.data for record in read_records(prefix)]
    versions = {str(r["name"]): str(r["version"]) for r in records}
    main = [(n, versions[n]) for n in _main_names(env, records) if n in versions]
    inside = {n.lower(): (n, v) for n, v in [*_python_packages(records), *main]}
    for taken in (env.env, name, *CONFLICTS):
        inside.pop(taken or "", None)  # nothing provides itself, or what it conflicts with
    about = next((r.get("summary") for r in records if r["name"] == env.env), None)
    return ModuleContent(
        name=name or env.env,
        version=env.release,
        prefix=prefix,
        env=env,
        summary=str(about or f"The {env.env} environment, release {env.release}"),
        main=main,
        inside=[inside[key] for key in sorted(inside)],
        programs={p for p in ("python", "ddlrun", "ddlce") if (prefix / "bin" / p).exists()},
        changes=environment_changes(prefix, env),
    )


def environment_changes(prefix: Path, env: Origin) -> list[Change]:
    """All that a load of the environment changes, but for conda's level: activation's and ours.

    Args:
        prefix: a complete environment of ours.

    Raises:
        InputError: its activation does what no modulefile can do; names the script.
    """
    ours = _own_changes(prefix, env)
    names = {change.name for change in ours}
    return [c for c in activation_changes(prefix, env.env) if c.name not in names] + ours


def compose(content: ModuleContent, writer: ModuleWriter) -> str:
    """The modulefile of `content` in the language of `writer`."""
    # `install` reads it: it removes what was made for a release that is gone, and nothing else.
    writer.comment(f"{content.name}/{content.version}: made for {json.dumps(str(content.prefix))}")
    writer.help(help_text(content))
    writer.whatis(f"Name: {content.name}")
    writer.whatis(f"Version: {content.version}")
    writer.whatis(f"Description: {content.summary}")
    writer.whatis("Category: machine learning, distributed training")
    writer.whatis(f"Packages: {', '.join(f'{n} {v}' for n, v in content.main)}")
    if content.inside:
        writer.extensions(content.inside)
    writer.comment("Modulefiles may outlive their release: `ddlce env gc` removes only that.")
    writer.require(content.prefix / ORIGIN, _gone(content))
    writer.comment("One conda environment at a time: paths of two would mix their libraries.")
    writer.conflict((content.name, *CONFLICTS))
    writer.family(FAMILY)
    writer.refuse_other_conda(content.prefix, _refusal(content))
    writer.refuse_while_set("PYTHONHOME", _other_home(content))
    writer.comment("What the environment's own activation does.")
    for change in content.changes:
        _write_change(writer, change)
    writer.conda_level(content.prefix, content.env.env)
    return writer.text()


def help_text(content: ModuleContent) -> str:
    """What `module help` shows: what it is, how it is used, how to get a copy to change."""
    width = max((len(name) for name, _ in content.main), default=0)
    lines = [
        f"{content.name} {content.version}: {content.summary}",
        f"(environment {content.env.env}, {content.env.platform}, digest {content.env.digest[:8]})",
        "",
        "Main packages:",
        *(f"  {name:<{width}}  {version}" for name, version in content.main),
    ]
    if "ddlrun" in content.programs:
        lines += [
            "",
            "Train on 4 ranks of this machine:",
            "  ddlrun -H localhost:4 python train.py",
        ]
    lines += ["", "The environment is read-only."]
    if "ddlce" in content.programs:
        lines += ["For Python packages of your own, on top of it:", "  ddlce env overlay NAME"]
        lines += ["For a copy, to change its packages:", "  ddlce env clone NAME"]
    lines += ["", f"It is in {content.prefix}"]
    return "\n".join(lines) + "\n"


def _own_changes(prefix: Path, env: Origin) -> list[Change]:
    changes = [
        # After its last element, an empty one: `man` then looks in the system's folders too.
        Change("MANPATH", "prepend", (str(prefix / "share" / "man"),), tail=True),
        # The user's own choice of folders comes first. conda separates caches by commas. Folders of
        # environments are in the .condarc: conda stops where a user has set CONDA_ENVS_DIRS and
        # we CONDA_ENVS_PATH.
        Change("CONDA_PKGS_DIRS", "append", (USER_PKGS, env.pkgs), ","),
        # Packages in ~/.local would shadow the environment's.
        Change("PYTHONNOUSERSITE", "set", ("1",)),
    ]
    if (prefix / ".condarc").is_file():
        changes.append(Change("CONDARC", "set", (str(prefix / ".condarc"),)))
    return changes


def _write_change(writer: ModuleWriter, change: Change) -> None:
    if change.kind == "set":
        writer.pushenv(change.name, change.value)
    elif change.kind == "default":
        writer.unless_env(change.name, change.value)
    elif change.kind == "prepend":
        writer.prepend_path(change.name, change.elements, change.delim, tail=change.tail)
    else:
        writer.append_path(change.name, change.elements, change.delim)


def _gone(content: ModuleContent) -> str:
    return (
        f"{content.name}/{content.version} cannot be loaded: its release {content.prefix} is gone; "
        f"see which others there are with: module avail {content.name}"
    )


def _refusal(content: ModuleContent) -> str:
    return (
        f"{content.name}/{content.version} cannot be loaded while another conda environment is "
        "active; leave that one first with: conda deactivate"
    )


def _other_home(content: ModuleContent) -> str:
    return (
        f"{content.name}/{content.version} cannot be loaded while PYTHONHOME is set, which is "
        "another Python's: with it, Python finds none of these packages; remove that variable first"
    )


def _main_names(env: Origin, records: list[dict[str, Any]]) -> list[str]:
    """What the manifest asks for, and what its metapackage consists of."""
    specs = list(env.specs)
    for record in records:
        if record["name"] == env.env:
            specs += record.get("depends", [])
    names = [
        re.split(r"[\s=<>!~\[]", spec.split("::")[-1].strip(), maxsplit=1)[0] for spec in specs
    ]
    return list(dict.fromkeys(names))


def _python_packages(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Distributions under the names that Python's users know (`torch`, not `pytorch`)."""
    pattern = re.compile(r"site-packages/([^/]+)-([^-/]+)\.dist-info/METADATA$")
    paths = (path for record in records for path in record.get("files", []))
    return [(m[1].replace("_", "-"), m[2]) for path in paths if (m := pattern.search(path))]
