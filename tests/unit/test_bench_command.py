"""The answer of a job that a benchmark starts, and the jobs that have none."""

from __future__ import annotations

import os
import sys

import pytest

from bench.command import answer_of_ranks, json_in


def answer(program: str, limit: float = 60) -> object:
    return answer_of_ranks([sys.executable, "-c", program], "2 ranks", os.environ, limit)


def test_the_answer_is_the_first_line_with_an_object() -> None:
    assert answer("print('a {word}'); print('[0@localhost] {\"4\": 0.5}')") == {"4": 0.5}
    assert json_in("{word}\n") is None


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import sys; print('{\"4\": 1}'); sys.exit('no memory')", r"2 ranks failed:\n.*no memory"),
        ("print('well')", r"2 ranks failed:\nwell"),
    ],
)
def test_a_job_that_fails_or_says_nothing_is_told(program: str, says: str) -> None:
    with pytest.raises(RuntimeError, match=f"(?s){says}"):
        answer(program)


def test_a_job_that_does_not_end_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"^2 ranks had not ended after 0\.5 s$"):
        answer("import time; time.sleep(60)", 0.5)
