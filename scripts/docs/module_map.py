"""The site's page of modules: each module's first sentence, and the constants that it has.

    python scripts/docs/module_map.py

Prints the page, from the code. A module is a file, or a header and a source of one name.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath

REPO = Path(__file__).parents[2]

OF_C = (".h", ".hpp", ".cc", ".c")
SUFFIXES = (*OF_C, ".def", ".py", ".sh", ".template")
#: Their files are named for what they test.
OF_TESTS = ("tests/integration/", "tests/unit/", "tests/conftest.py")

HEAD = """\
# Modules

Each folder with code, what each of its modules is for, and its constants: to find the place of a
change. [The page of values](howto/value.md) leads to defaults, limits and timeouts by meaning.
All of this comes from the first sentence of each module; `python scripts/docs/module_map.py`
prints it. Tests are left out: their files are named for what they test.
"""

COLUMNS = "\n| Module | What it is for | Constants |\n|---|---|---|\n"

#: A constant in C++, by the form of its name; but for a table's row, which is a function's result.
CXX_CONSTANT = re.compile(
    r"^ *(?:static |inline )*constexpr [\w:<> ]+? (k[A-Z]\w*|\w+_s)\s*[={](?!\s*\[)", re.MULTILINE
)
LITERAL = (
    *(ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.BinOp, ast.UnaryOp, ast.IfExp),
    *(ast.operator, ast.unaryop, ast.Name, ast.Load),
)
#: Functions whose results are constants, too.
MAKERS = {"frozenset", "timedelta", "Path"}


def files() -> list[PurePosixPath]:
    """The files with code that git knows, but tests, and the script that each recipe has."""
    command = ["git", "-c", "safe.directory=*", "-C", str(REPO), "ls-files", "-z"]
    paths = map(PurePosixPath, subprocess.check_output(command, text=True).split("\0"))
    return [
        path
        for path in paths
        if path.suffix in SUFFIXES
        and not (str(path).startswith(OF_TESTS) or "tests" in path.parts[1:-1])
        and path.name != "build.sh"
    ]


def first_sentence(name: str, text: str) -> str:
    """The first sentence of a module's docstring or first comment; empty where it has neither."""
    if name.endswith(".py"):
        said = ast.get_docstring(ast.parse(text)) or ""
    elif name.endswith((".sh", ".template")):
        said = _comment(r"(?:#!.*\n)?((?:#(?: .*)?\n)+)", r"^# ?", text)
    else:
        licence = r"(?://[^\n]*(?:Copyright|SPDX|Licen[cs]e)[^\n]*\n)*"
        said = _comment(rf"{licence}((?://.*\n)+)", r"^// ?", text)
        said = said or _comment(r"/\*\*?((?:.|\n)*?)\*/", r"^ ?\*? ?", text)
    paragraph = re.split(r"\n\s*\n|\n  ", said.strip())[0]
    return re.split(r"(?<=[.?!])\s+(?=[A-Z0-9`])", " ".join(paragraph.split()))[0]


def _comment(pattern: str, prefix: str, text: str) -> str:
    """The comment that a text begins with, without what its lines begin with."""
    found = re.match(pattern, text)
    return re.sub(prefix, "", found[1], flags=re.MULTILINE) if found else ""


def constants(name: str, text: str) -> list[str]:
    """The constants of a module: numbers, texts, and collections of them."""
    if not name.endswith(".py"):
        return [*dict.fromkeys(CXX_CONSTANT.findall(text))]
    found = list[str]()
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        if is_literal(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [part.id for target in targets for part in _in_order(target)]
            found += [name for name in names if name.isupper() and name != "TYPE_CHECKING"]
    return found


def is_literal(value: ast.expr) -> bool:
    """Whether a reader sees the value in the line: a number, a text, a time, or some of them."""
    if isinstance(value, ast.Call):
        words = [*value.args, *(keyword.value for keyword in value.keywords)]
        return ast.unparse(value.func) in MAKERS and all(map(is_literal, words))
    return all(isinstance(part, LITERAL) for part in ast.walk(value))


def _in_order(target: ast.expr) -> list[ast.Name]:
    """The names of the left side of an assignment."""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return [part for part in parts if isinstance(part, ast.Name)]


def rows(folder: PurePosixPath, names: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
    """The modules of a folder: the name of each → its sentence, and its constants.

    Args:
        folder: relative to the tree.
        names: of the files in it.
    """
    units = defaultdict[str, list[str]](list)
    for name in sorted(names, key=lambda name: SUFFIXES.index(PurePosixPath(name).suffix)):
        path = PurePosixPath(name)
        units[path.stem if path.suffix in OF_C else name].append(name)
    table = {}
    for _, unit in sorted(units.items()):
        texts = {name: (REPO / folder / name).read_text(encoding="utf-8") for name in unit}
        sentences = [first_sentence(name, text) for name, text in texts.items()]
        values = [value for name, text in texts.items() for value in constants(name, text)]
        module = "`, `".join([unit[0], *(PurePosixPath(name).suffix for name in unit[1:])])
        table[module] = next(filter(None, sentences), ""), values
    return table


@cache
def modules() -> dict[PurePosixPath, dict[str, tuple[str, list[str]]]]:
    """The rows of each folder."""
    folders = defaultdict[PurePosixPath, list[str]](list)
    for path in files():
        folders[path.parent].append(path.name)
    return {folder: rows(folder, names) for folder, names in sorted(folders.items())}


def page() -> str:
    """The page, from the code."""
    parts = [HEAD]
    for folder, found in modules().items():
        about, values = found.get("__init__.py", ("", []))
        table = {name: row for name, row in found.items() if name != "__init__.py"}
        parts.append(f"\n## `{folder}`\n")
        parts += [f"\n{about}\n"] if about else []
        if values:
            table = {"__init__.py": ("", values), **table}
        parts += [COLUMNS] if table else []
        for module, (sentence, named) in table.items():
            spans = ", ".join(f"`{name}`" for name in named)
            parts.append(f"| `{module}` | {sentence.replace('|', chr(92) + '|')} | {spans} |\n")
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
