"""YAML as we read and write it: safe types, in the order given, by libyaml where it is there.

libyaml's parser is ten times as fast as Python's own; `ddlce plan` reads and writes a hundred
documents. PyYAML's wheels have it, a system's package may not.
"""

from __future__ import annotations

from typing import Any

import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def load(text: str) -> Any:
    """The one document in `text`.

    Raises:
        yaml.YAMLError: not valid YAML; names line and column.
    """
    return yaml.load(text, Loader=_Loader)


def dump(data: Any, width: int = 80) -> str:
    """`data` as a document: keys in their order, text as it is, lines of about `width`."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width))
