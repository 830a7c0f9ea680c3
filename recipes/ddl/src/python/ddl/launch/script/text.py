"""Fills a template with a request.

A template is text with fields `@{name}`. A line that begins with `[name] ` is only there, without
this mark, where the field has a value.
"""

import json
import re
import shlex
import string
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddl.launch.script.overlay import activation_of
from ddl.launch.script.release import module_of, programs_folder
from ddl.launch.script.request import Request

TEMPLATES = Path(__file__).with_name("templates")
_NOT_IN_YAML = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_CONDITION = re.compile(r"\[(\w+)\] ?")
Fields = dict[str, str | int | None]


class _Template(string.Template):
    """Of text that is full of dollars."""

    delimiter = "@"


def script_text(request: Request, environ: Mapping[str, str]) -> str:
    """The batch script or manifest.

    Raises:
        LaunchError: no module can be named for this release, or its overlay is not there.
    """
    template = (TEMPLATES / f"{request.system.name}.template").read_text(encoding="utf-8")
    fields = _manifest_fields(request) if request.system.is_manifest else _fields(request, environ)
    return fill(template, fields)


def fill(template: str, fields: Fields) -> str:
    """The text of a template. KeyError: it has a field that is not among `fields`."""
    lines = []
    for line in template.splitlines():
        match = _CONDITION.match(line)
        if match and fields[match[1]] is None:
            continue
        lines.append(line[match.end() :] if match else line)
    return _Template("\n".join(lines) + "\n").substitute(fields)


def _fields(request: Request, environ: Mapping[str, str]) -> Fields:
    seconds = request.seconds or 0
    minutes = -(-seconds // 60)
    slots = (request.ranks or 1) * (request.cores or 1)
    module = request.module or module_of(environ)
    module = None if module == "none" else module
    activation = activation_of(request.overlay, environ)
    return {
        "name": request.name,
        "hosts": request.hosts,
        "ranks": request.ranks,
        "gpus": request.gpus,
        "cores": request.cores,
        "slots": slots,
        "all_slots": slots * request.hosts,
        "chunk": _chunk(request, slots),
        "time": f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        if seconds
        else None,
        "hours": f"{minutes // 60:02}:{minutes % 60:02}" if seconds else None,
        "signal": request.signal,
        "signal_minutes": -(-request.signal // 60) if request.signal else None,
        "queue": request.queue,
        "account": request.account,
        "module": module,
        "path": None if module else shlex.quote(programs_folder()),
        "overlay": activation and shlex.quote(activation),
        "literal": "" if re.search(r"[$`\\]", "".join(request.words)) else None,
        "command": shlex.join(["ddlrun", *request.words]),
    }


def _chunk(request: Request, slots: int) -> str:
    """PBS's words for the hosts: their number, and what each of them has."""
    gpus = f":ngpus={request.gpus}" if request.gpus else ""
    return f"{request.hosts}:ncpus={slots}:mpiprocs={request.ranks or 1}{gpus}"


def _manifest_fields(request: Request) -> Fields:
    ranks = request.ranks or 1
    cores = request.cores and request.cores * ranks
    resources = {"nvidia.com/gpu": request.gpus, "cpu": cores}
    limits = {name: str(count) for name, count in resources.items() if count}
    return {
        "name": request.name,
        "hosts": request.hosts,
        "ranks": ranks,
        "limits": json.dumps(limits) if limits else None,
        "seconds": request.seconds,
        "queue": request.queue,
        "image": json.dumps(request.image),
        "arguments": _quoted(request.words),
    }


def _quoted(words: Sequence[str]) -> str:
    """A list in YAML that Kubernetes turns into these words: in arguments, `$$` is a dollar.

    JSON is YAML but for a few characters, which YAML's readers refuse or take for ends of lines.
    """
    text = json.dumps([word.replace("$", "$$") for word in words], ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
