"""The file of results, one JSON object in a line, and the scaling table made of it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ddl_ce_examples.cnn.errors import BenchmarkError

KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "str": (str,), "float": (int, float)}


@dataclass(frozen=True)
class Result:
    """One run.

    Attributes:
        batch_size: on each rank.
        images_per_second: of all ranks together.
    """

    model: str
    image_size: int
    batch_size: int
    variable_update: str
    ranks: int
    num_batches: int
    images_per_second: float


def _parse(line: str) -> Result:
    """The result in a line. Raises ValueError, TypeError or KeyError if there is none."""
    found = json.loads(line)
    values = {one.name: found[one.name] for one in fields(Result)}
    for one in fields(Result):
        value = values[one.name]
        bad = not isinstance(value, KINDS[str(one.type)]) or isinstance(value, bool)
        if bad or (not isinstance(value, str) and not 0 < value < float("inf")):
            raise ValueError(one.name)
    return Result(**values)


def read(path: Path) -> list[Result]:
    """All results of the file.

    Raises:
        BenchmarkError: it cannot be read, or something in it is no result.
    """
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError as error:
        raise BenchmarkError(f"{path}: this is no text; name a file of --results") from error
    except OSError as error:
        raise BenchmarkError(f"cannot read {path}: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_parse(line))
        except (ValueError, TypeError, KeyError) as error:
            raise BenchmarkError(
                f"{path}: line {number} is no result of this benchmark; name a file of --results"
            ) from error
    return found


def check(path: Path) -> None:
    """Finds out before the run whether its result can be added to the file.

    Raises:
        BenchmarkError: it cannot be written, or it is something else.
    """
    if path.exists():
        read(path)
    _append(path, "")


def add(path: Path, result: Result) -> None:
    """Adds a line to the file. Raises BenchmarkError if it cannot be written."""
    _append(path, json.dumps(asdict(result)) + "\n")


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a") as file:
            file.write(text)
    except OSError as error:
        raise BenchmarkError(f"cannot write {path}: {error.strerror}") from error


def table(results: Iterable[Result]) -> str:
    """A section for each model, size of images and of batches; a row for each way and rank count.

    Figures are medians over the runs; the speed-up is over one rank of the same way.
    """
    sections: dict[tuple[str, int, int], list[Result]] = {}
    for one in results:
        sections.setdefault((one.model, one.image_size, one.batch_size), []).append(one)
    lines: list[str] = []
    for (model, size, batch), runs in sections.items():
        lines += [f"{model}, images of {size} x {size}, {batch} in a batch of each rank"]
        lines += [
            f"{'variable_update':<16}{'ranks':>6}{'runs':>6}{'images/sec':>12}{'speed-up':>10}"
            f"{'efficiency':>12}"
        ]
        lines += [*_rows(runs), ""]
    return "\n".join(lines).rstrip()


def _rows(runs: list[Result]) -> Iterator[str]:
    speeds: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        speeds.setdefault((run.variable_update, run.ranks), []).append(run.images_per_second)
    for (way, ranks), several in sorted(speeds.items()):
        speed = statistics.median(several)
        row = f"{way:<16}{ranks:>6}{len(several):>6}{speed:>12.2f}"
        if (way, 1) in speeds:
            gain = speed / statistics.median(speeds[way, 1])
            yield f"{row}{gain:>10.2f}{100 * gain / ranks:>10.1f} %"
        else:
            yield f"{row}{'-':>10}{'-':>12}"
