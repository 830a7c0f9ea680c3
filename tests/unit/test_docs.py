"""The documents are true: commands, options, variables, targets and links that they name exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from ddlce.cli.app import program
from ddlce.lock import read_manifest
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes.sets import set_of
from ddlce.settings import load_settings
from support.documents import DOCUMENTS, FENCE, NAMES, REPO
from support.run import run

INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")

LAUNCH = REPO / "recipes/ddl/src/python/ddl/launch"
DDLRUN = (LAUNCH / "options.py", LAUNCH / "script_options.py")
EXAMPLES = REPO / "recipes/ddl-ce-examples/src/ddl_ce_examples"
BENCHMARK = "ddl-cnn-benchmark"


def snippets(text: str) -> Iterator[str]:
    """Lines of fenced blocks and inline code."""
    for _, block in FENCE.findall(text):
        joined = block.replace("\\\n", " ")
        for line in joined.splitlines():
            yield re.sub(r"\s+#.*", "", line.removeprefix("$ "))
    yield from INLINE.findall(FENCE.sub("", text))


def commands(text: str, program: str) -> Iterator[list[str]]:
    """The words of every command line of `program`."""
    for snippet in snippets(text):
        for part in re.split(r"&&|\|\||[;|&]", snippet):
            words = part.split()
            if program in words[:1]:
                try:
                    yield shlex.split(part)
                except ValueError:
                    yield words


def check_ddlce(words: list[str]) -> str | None:
    """What is wrong with a `ddlce` command line, or None."""
    command: Any = program()
    rest = words[1:]
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        if rest[0] not in command.commands and hasattr(command, "itself"):
            break  # the words are those of the group itself
        if rest[0] not in command.commands:
            return f"{' '.join(words)}: there is no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    command = getattr(command, "itself", command)
    options = {name for param in command.params for name in param.opts + param.secondary_opts}
    for word in rest:
        name = word.partition("=")[0]
        if name == "--":
            break
        if name.startswith("-") and name not in options | {"--help"}:
            return f"{' '.join(words)}: {command.name} has no option {name}"
    return None


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def test_all_documents_are_there() -> None:
    wanted = {"user-guide.md", "site-guide.md", "packager-guide.md", "architecture.md"}
    assert wanted <= {path.name for path in DOCUMENTS}


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_options_exist(name: str) -> None:
    found = commands((REPO / name).read_text(), "ddlce")
    assert [problem for words in found if (problem := check_ddlce(words))] == []


def test_the_check_finds_commands() -> None:
    silent = {name for name in NAMES if not [*commands((REPO / name).read_text(), "ddlce")]}
    # Pages for users of a release, who never call the builder.
    assert {name for name in silent if not name.startswith("docs/user")} == set()


@pytest.mark.parametrize("name", NAMES)
def test_code_spans_end_on_their_line(name: str) -> None:
    """The checks see no others; a span in double marks may hold one."""
    lines = FENCE.sub("", (REPO / name).read_text()).splitlines()
    assert [line for line in lines if re.sub("``.*?``", "", line).count("`") % 2] == []


def test_the_check_finds_mistakes() -> None:
    text = (
        "```console\n$ ddlce fetch --unto x  # no\n$ ddlce bild\n```\n`ddlce env clone --from y z`"
    )
    found = [check_ddlce(words) for words in commands(text, "ddlce")]
    assert found == [
        "ddlce fetch --unto x: fetch has no option --unto",
        "ddlce bild: there is no command bild",
        None,
    ]


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    path = REPO / name
    text = path.read_text()
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file) if file else path
        assert linked.exists(), f"{name}: {target}"
        if anchor:
            assert anchor in anchors(linked.read_text()), f"{name}: {target}"


@pytest.mark.parametrize("name", NAMES)
def test_make_targets_exist(name: str) -> None:
    makefile = (REPO / "Makefile").read_text()
    console = "\n".join(
        f"```\n{block}```"
        for kind, block in FENCE.findall((REPO / name).read_text())
        if kind == "console"
    )
    for words in commands(console, "make"):
        for target in words[1:]:
            variable = target.partition("=")[0] if "=" in target else None
            pattern = rf"\$\({variable}\b" if variable else rf"^{re.escape(target)}:"
            assert re.search(pattern, makefile, re.MULTILINE), target


@cache
def code() -> str:
    """All code that may read a variable of the environment."""
    patterns = (
        *("scripts/**/*.py", "scripts/*.sh", "recipes/*/src/**/*.*", "tests/**/*.py"),
        "recipes/base/*/activate/*",
    )
    files = {path for pattern in patterns for path in REPO.glob(pattern) if path.is_file()}
    return "\n".join(path.read_text(errors="ignore") for path in files if path.suffix != ".pyc")


@pytest.mark.parametrize("name", NAMES)
def test_variables_are_read_by_the_code(name: str) -> None:
    for variable in set(re.findall(r"\b(?:DDLCE|DDL)_[A-Z_]+\b", (REPO / name).read_text())):
        assert variable in code(), variable


@pytest.mark.parametrize("name", NAMES)
def test_options_of_ddlrun_exist(name: str) -> None:
    usage = "\n".join(path.read_text() for path in DDLRUN)
    for words in commands((REPO / name).read_text(), "ddlrun"):
        for word in words[1:]:
            if not word.startswith("-"):
                if word in ("python", "PROGRAM", BENCHMARK) or word.endswith(".py"):
                    break  # the rest belongs to the program
                continue
            option = word.partition("=")[0].lstrip("-").replace("-", "_")
            assert re.search(rf'^    "{option}": ', usage, re.MULTILINE), word


@pytest.mark.parametrize("name", NAMES)
def test_options_of_the_benchmark_exist(name: str) -> None:
    usage = (EXAMPLES / "cnn/cli.py").read_text()
    for snippet in snippets((REPO / name).read_text()):
        _, found, words = snippet.partition(f"{BENCHMARK} ")
        for option in re.findall(r"--\w+", words if found else ""):
            assert option == "--help" or f'"{option}"' in usage, option


def test_examples_are_named_and_exist() -> None:
    """Each program, by its module's name."""
    named = re.findall(r"-m ddl_ce_examples\.(\w+)", (REPO / "docs/user/examples.md").read_text())
    programs = [path.stem for path in EXAMPLES.glob("*_*.py") if path.stem[0] not in "_"]
    assert sorted(named) == sorted(programs)


@pytest.mark.parametrize("name", NAMES)
def test_files_named_in_the_tree_exist(name: str) -> None:
    """Paths in code spans that begin with a folder of this tree."""
    text = FENCE.sub("", (REPO / name).read_text())
    tops = ("recipes/", "scripts/", "envs/", "tests/", "docs/")
    for span in INLINE.findall(text):
        is_path = span.startswith(tops) and re.fullmatch(r"[\w./-]+", span)
        if is_path and not PATTERN.search(span):
            assert (REPO / span).exists(), span


#: `peers/NAME.py`, `cudaNNN.yaml`: not one file.
PATTERN = re.compile("NAME|NNN")
#: A file that readers make themselves.
READERS_OWN = frozenset({"lz4-c/recipe.yaml"})
PART_OF_A_PATH = re.compile(r"[\w.+-]+(/[\w.+-]+)+\.(py|cc|h|sh|yaml|toml|template|def)")


def files_that_are_nowhere(text: str) -> list[str]:
    """Code spans that are the end of a file's path, and of none in the tree."""
    tracked = run(["git", "ls-files"], cwd=REPO, check=True).stdout.split()
    spans = {s for s in INLINE.findall(FENCE.sub("", text)) if PART_OF_A_PATH.fullmatch(s)}
    patterns = {span for span in spans if PATTERN.search(span)}
    return sorted(
        span
        for span in spans - patterns - READERS_OWN
        if not any(f"/{path}".endswith(f"/{span}") for path in tracked)
    )


@pytest.mark.skipif(not (REPO / ".git").exists(), reason="needs git's list of files")
@pytest.mark.parametrize("name", NAMES)
def test_files_named_by_the_end_of_their_path_exist(name: str) -> None:
    assert files_that_are_nowhere((REPO / name).read_text()) == []


@pytest.mark.skipif(not (REPO / ".git").exists(), reason="needs git's list of files")
def test_a_file_that_is_gone_is_found() -> None:
    text = "`upkeep/changes.py` is there, `upkeep/gone.py` is not, `peers/NAME.py` is a pattern."
    assert files_that_are_nowhere(text) == ["upkeep/gone.py"]


@pytest.mark.parametrize("name", NAMES)
def test_examples_add_packages_that_are_not_there(name: str) -> None:
    """A line for a package that a table has already stops every later command."""
    tables = [path.read_text() for path in (REPO / "recipes/wheels").glob("*.yaml")]
    for words in commands((REPO / name).read_text(), "ddlce"):
        if words[1:3] == ["sources", "add"] and len(words) == 4:
            package = words[3].removeprefix("pypi:")
            assert not any(f"\n  {package}:" in table for table in tables), package


def test_modules_are_those_of_the_locks() -> None:
    """The table of modules has each environment, and the versions and CUDA that are locked."""
    page = (REPO / "docs/user/start.md").read_text()
    rows = re.findall(r"^\|[^|]+\| `([\w-]+)` \|[^|]*\| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    assert [module for module, *_ in rows] == sorted(p.stem for p in (REPO / "envs").glob("*.yaml"))
    for module, torch, tensorflow in rows:
        lock = EnvLock.load(REPO / f"envs/locks/{module}.linux-64.lock")
        packages = {package.name: package for package in lock.packages}
        cuda = packages["cuda-version"].version if "cuda-version" in packages else None
        assert torch == _of(packages["pytorch"]) + (f", GPU: CUDA {cuda}" if cuda else "")
        is_for_gpus = packages["tensorflow"].build.startswith("cuda")
        said = ", GPU" if is_for_gpus else ", on CPUs" if cuda else ""
        assert tensorflow == _of(packages["tensorflow"]) + said


def test_sources_of_each_environment_are_named() -> None:
    """The options that carry them to a machine with no network, in the site guide's table."""
    page = (REPO / "docs/site-guide.md").read_text()
    named = re.findall(r"^\| `(ddl-ce-[\w-]+)` \| `(--\w+ [-\w. ]+)` \|$", page, re.MULTILINE)
    settings = load_settings()
    wanted = {}
    for path in (REPO / "envs").glob("*.yaml"):
        manifest = read_manifest(settings, path.stem)
        cuda, extra = manifest.cuda(BUILD_PLATFORM), set_of(settings, manifest.specs)
        options = [*([f"--cuda {cuda}"] if cuda else []), *([f"--set {extra}"] if extra else [])]
        if options:
            wanted[path.stem] = " ".join(options)
    assert dict(named) == wanted


def _of(package: LockedPackage) -> str:
    return ".".join(package.version.split(".")[:2])
