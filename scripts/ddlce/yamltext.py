"""YAML as we read and write it: safe types, in the order given, by libyaml where it is there.

libyaml's parser is ten times as fast as Python's own; `ddlce plan` reads and writes a hundred
documents. PyYAML's wheels have it, a system's package may not.

What we read may be anybody's. A few lines of aliases can stand for more values than fit into any
memory, and brackets alone can be deeper than the stack: such documents are refused before they
are made into objects.
"""

from __future__ import annotations

from typing import Any

import yaml

#: The largest lock has 40,000 values, the deepest recipe 9 levels.
MOST_VALUES, DEEPEST = 1_000_000, 100

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def load(text: str) -> Any:
    """The one document in `text`.

    Raises:
        yaml.YAMLError: not valid YAML, or too much of it; names line and column.
    """
    refuse_bombs(text)
    try:
        return yaml.load(text, Loader=_Loader)
    except ValueError as error:  # of int() and datetime(), which name no line
        raise yaml.MarkedYAMLError(problem=f"a value that cannot be read: {error}") from error


def refuse_bombs(text: str) -> None:
    """Go over the document without building it.

    Raises:
        yaml.YAMLError: not valid YAML, nested too deep, or too many values.
    """
    sizes: dict[str, int] = {}  # of what is complete and has an anchor, its aliases counted
    open_nodes: list[tuple[str | None, int]] = []
    count = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes and any(a == event.anchor for a, _ in open_nodes):
                raise _refused("an alias of what it stands in", event)
            count += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, count))
            count += 1
            if len(open_nodes) > DEEPEST:
                raise _refused(f"nested more than {DEEPEST} deep", event)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = count - before
        if count > MOST_VALUES:
            raise _refused(f"more than {MOST_VALUES} values, counting each alias", event)


def _refused(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def dump(data: Any, width: int = 80) -> str:
    """`data` as a document: keys in their order, text as it is, lines of about `width`."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width))
