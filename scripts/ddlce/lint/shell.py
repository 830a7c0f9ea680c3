"""As much of the shell's grammar as two rules need: `set -e`, and `a && b` lists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

#: After one of these, a failing command is a condition, which `set -e` lets pass on purpose.
CONDITIONS = {"if", "elif", "while", "until", "!", "[[", "[", "test", "(("}
SEPARATORS = {";", ";;", "&", "|", "then", "do", "else", "{"}


def exits_on_error(script: str) -> bool:
    """True when the first command is a `set` with `-e`, or the shell was started with it."""
    for number, line in enumerate(script.splitlines()):
        if number == 0 and re.match(r"#!.*\b(ba)?sh\b.*\s-\w*e", line):
            return True
        code = line.strip()
        if code and not code.startswith("#"):
            words = code.split("#")[0].split()
            return words[0] == "set" and any(
                re.fullmatch(r"-[a-z]*e[a-z]*", w) or w == "errexit" for w in words[1:]
            )
    return False


def and_lists(script: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each `a && b` whose first command is no condition and that has no `||`.

    A list inside `(…)` or `$(…)` is not meant: its status is that of the whole command. Works
    by lines, joined where they go on; what shlex cannot split (a quote that ends lines later)
    is left out.
    """
    for number, line in _commands(script):
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:
            continue
        for command in _split(words):
            if "&&" not in command or "||" in command or command[0] in CONDITIONS:
                continue
            before = " ".join(command[: command.index("&&")])
            if before.count("(") == before.count(")"):
                yield number, " ".join(command)


def _split(words: list[str]) -> Iterator[list[str]]:
    """The lists of a line: what stands between `;`, `then` and the like."""
    command: list[str] = []
    for word in [*words, ";"]:
        if word in SEPARATORS:
            if command:
                yield command
            command = []
        else:
            command.append(word)


def _commands(script: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, text) of each logical line; here-documents are left out."""
    end: str | None = None
    start, text = 0, ""
    for number, line in enumerate(script.splitlines(), 1):
        if end is not None:
            end = None if line.strip() == end else end
            continue
        start, text = (start, f"{text} {line}") if text else (number, line)
        if re.search(r"(\\|&&|\|\||\|)\s*$", line):
            text = text.removesuffix("\\")
            continue
        document = re.search(r"<<-?\s*['\"]?(\w+)", text)
        end = document[1] if document and "<<<" not in text else None
        yield start, text
        text = ""
    if text:
        yield start, text
