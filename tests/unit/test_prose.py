"""The prose in numbers: short sentences, which people read in their second language."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from support.documents import FENCE, NAMES, REPO

#: The documents, and the maps of the packages' sources.
TEXTS = [*NAMES, *(str(p.relative_to(REPO)) for p in sorted(REPO.glob("recipes/*/src/README.md")))]

#: The folders whose docstrings are measured, too.
CODE = [
    str(folder.relative_to(REPO))
    for folder in (REPO / "scripts" / "ddlce", *sorted(REPO.glob("recipes/*/src")))
    if next(folder.rglob("*.py"), None)
]

#: Words in a sentence: on average, and at most.
MEAN, MOST = 20, 40

ITEM = re.compile(r"([-*]|\d+\.)\s+")
#: An argument, attribute or error of a docstring, or the heading above them.
ENTRY = re.compile(r"\s*([\w.*]+(, [\w.*]+)*:(\s|$))")
END = re.compile(r"(?<=[.!?:])[\"')*]*\s+(?=[A-Z`*\"(]|code)")
WORD = re.compile(r"[\w'’%.,/-]*\w[\w'’%./-]*")


def paragraphs(text: str) -> Iterator[str]:
    """Running text, an item of a list each; no code, tables or headings."""
    for block in re.split(r"\n\s*\n", FENCE.sub("\n\n", text)):
        found: list[str] = []
        is_list = False
        for line in map(str.strip, block.splitlines()):
            if line.startswith(("|", "#")):
                continue
            # Inside a paragraph only a 1 begins a list (CommonMark, 5.3): "7." ends a sentence.
            if (item := ITEM.match(line)) and (is_list or not found or item[1] in "-*1."):
                is_list = True
                yield " ".join(found)
                found, line = [], line[item.end() :]
            found.append(line)
        yield " ".join(found)


def split(text: str) -> Iterator[str]:
    """Each sentence; inline code is one word, and of a link the words stay."""
    for paragraph in paragraphs(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", paragraph))
        yield from END.split(plain)


def sentences(text: str) -> list[int]:
    """The number of words of each sentence."""
    counts = [len(WORD.findall(sentence)) for sentence in split(text)]
    return [count for count in counts if count > 1]


def without_subject(text: str) -> list[str]:
    """Sentences that begin with a noun clause, or with "of": their subject comes late."""
    found = (sentence.strip(" *_") for sentence in split(text))
    return [it for it in found if re.match("(What|Of) ", it) and not it.endswith("?")]


def test_sentences_are_counted() -> None:
    text = (
        "# A heading of words\n\nOne two `a b c` four. Five\nsix [seven eight](x y).\n\n"
        "- nine ten\n- eleven\n\n```\nnot this one\n```\n| nor | this |\n"
    )
    assert sentences(text) == [4, 4, 2]


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """The line and text of each docstring; each entry of a list is a paragraph of its own."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            lines = (f"\n{line}" if ENTRY.match(line) else line for line in text.splitlines())
            yield node.body[0].lineno, "\n".join(lines)


def test_docstrings_are_found() -> None:
    source = (
        '''"""One two.\n\nArgs:\n    a: three four.\n    b: five\n        six seven.\n"""\n'''
        '''def function():\n    """Eight nine."""\n'''
    )
    assert [(line, sentences(text)) for line, text in docstrings(source)] == [
        (1, [2, 3, 4]),
        (9, [2]),
    ]


@pytest.mark.parametrize("folder", CODE)
def test_docstrings_have_short_sentences(folder: str) -> None:
    found = {
        f"{path.relative_to(REPO)}:{line}": most
        for path in sorted((REPO / folder).rglob("*.py"))
        for line, text in docstrings(path.read_text())
        if (most := max(sentences(text), default=0)) > MOST
    }
    assert not found


@pytest.mark.parametrize("name", TEXTS)
def test_sentences_are_short(name: str) -> None:
    counts = sentences((REPO / name).read_text())
    assert max(counts, default=0) <= MOST
    assert sum(counts) <= MEAN * len(counts)


def test_late_subjects_are_found() -> None:
    text = (
        "What is read is hashed. One of these stays: it is old. What is it? Offer it.\n\n"
        "- Of two files,\n  the first.\n- **What follows.** Nothing.\n\n# What is there\n"
    )
    assert without_subject(text) == [
        *("What is read is hashed.", "Of two files, the first.", "What follows."),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_sentences_begin_with_their_subject(name: str) -> None:
    assert without_subject((REPO / name).read_text()) == []
