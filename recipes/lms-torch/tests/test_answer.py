"""`python -m lms MODEL --batch N --gpu NAME`: does it fit, and how."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import lms
import pytest
import torch
from lms.answer import Answer, does_it_fit, largest_batch
from lms.devices.gpus import GPUS, gpu_named
from torch import nn

GIB = 1 << 30


def make_step(samples: int) -> Callable[[], None]:
    """About 0.7 GiB of saved tensors for 1024 samples, beside 1 GiB of parameters and gradients."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(8)))
    data, optimizer = torch.randn(samples, 4096), torch.optim.SGD(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    return step


def asked(batch: int, limit: int, largest: bool = False) -> Answer:
    def make(samples: int, page: bool) -> Callable[[], None]:
        assert not page
        return make_step(samples)

    return does_it_fit(make, batch, gpu_named("H100"), limit, can_page=False, largest=largest)


def test_it_fits_without() -> None:
    answer = asked(1024, 4 * GIB)
    assert answer.demand <= 4 * GIB
    assert not answer.ways
    assert answer.best is answer.in_core
    assert ", fits, " in str(answer)


def test_it_fits_with() -> None:
    answer = asked(16384, 4 * GIB)
    assert answer.demand > 4 * GIB
    assert answer.best is not None
    assert answer.best.predicted_peak <= 4 * GIB
    assert 0 < max(way.share for way in answer.ways) <= 1
    assert "does not fit" in str(answer)
    assert "of in-core's speed" in str(answer)
    found = json.loads(answer.as_json())
    assert not found["fits"]
    assert found["ways"][0]["report"]["moved"] > 0


def test_it_does_not_fit() -> None:
    answer = asked(1024, GIB)
    assert answer.best is None
    assert "raise the limit to" in str(answer)


def test_the_largest_batch() -> None:
    for most in (1, 5, 16, 17, 100, 1000):
        for start in (1, 8, 4000):
            found = largest_batch(most.__ge__, start)
            assert most * 15 / 16 - 1 <= found <= most, (most, start, found)
    assert largest_batch(lambda size: False, 8) == 0
    answer = asked(4096, 3 * GIB, largest=True)
    in_core, under = answer.largest.values()
    assert 0 < in_core < 2 * in_core < under


def test_speeds_of_the_bus() -> None:
    """The faster the way to the host, the shorter computing waits for it."""
    exposed = []
    for name in ("A100", "H200", "GH200"):
        gpu = gpu_named(name)
        answer = does_it_fit(lambda n, _: make_step(n), 16384, gpu, 3 * GIB, can_page=False)
        assert answer.best is not None
        copies = answer.ways[0].report
        assert copies is not None
        exposed.append(copies.exposed)
        rates = gpu.speed.d2h, gpu.speed.h2d
        assert rates == {"A100": (25e9, 25e9), "H200": (55e9, 55e9), "GH200": (297e9, 375e9)}[name]
    assert exposed[1] > exposed[2]


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["lms", *words])
    monkeypatch.delitem(sys.modules, "lms.__main__", raising=False)
    runpy.run_module("lms", run_name="__main__")


def test_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "plan.svg"
    options = ("--batch", "16384", "--gpu", "h100", "--limit", "4GiB", "--plot", str(picture))
    command(monkeypatch, "test_answer:make_step", *options)
    printed = capsys.readouterr().out
    assert printed.startswith("batch 16384 on H100, 4 GiB for the program\nin-core: needs ")
    assert "LMS: fits, " in printed
    assert picture.read_text().startswith("<svg")
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, "test_answer:make_step", "--batch", "1024", "--limit", "1GiB")
    assert ended.value.code == 1
    assert "LMS: does not fit" in capsys.readouterr().out


def number_dependent() -> Callable[[], object]:
    return lambda: torch.ones(3).sum().item()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["m:f"], "there is no limit: give --limit, or a --gpu"),
        (["m:f", "--gpu", "H100"], "need the samples of a batch: give --batch"),
        (["m:f", "--gpu", "K80", "--batch", "1"], "the GPU K80 is not known; known are V100, "),
        (["m:f", "--gpu", "H100", "--batch", "0"], "--batch must be at least one sample, not 0"),
        (["X", "--limit", "1GiB", "--batch", "1", "--set", "a"], "--set a is no NAME=VALUE"),
        (["m:f", "--limit", "1GiB", "--largest-batch"], "--largest-batch is for answers: give"),
        (["m:f", "--limit", "1GiB", "--length", "0"], "--length is for configurations, not MOD"),
        (["m:f", "--gpu", "H100", "--batch", "1", "--set", "a=1"], "--set is for configurations"),
        (["m:f", "--gpu", "H100", "--batch", "1", "--memory", "9GiB"], "--memory is for plans: le"),
        (["test_answer:number_dependent", "--limit", "1GiB"], "depends on the numbers in a tensor"),
    ],
)
def test_mistakes(monkeypatch: pytest.MonkeyPatch, words: list[str], says: str) -> None:
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, *words)
    assert str(ended.value.code).startswith("error: ")
    assert says in str(ended.value.code)


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SystemExit, match="is no MODULE:FUNCTION, and configurations need"):
        command(monkeypatch, "LlamaConfig", "--gpu", "H100", "--batch", "1")


def test_gpus() -> None:
    assert all(0.8 * gpu.memory < gpu.limit < gpu.memory for gpu in GPUS.values())


def test_adam_makes_tensors_with_numbers_in_its_step() -> None:
    def make() -> Callable[[], None]:
        model, data = nn.Linear(4096, 4096), torch.randn(4096, 4096)
        optimizer = torch.optim.Adam(model.parameters())

        def step() -> None:
            model(data).relu().square().mean().backward()
            optimizer.step()

        return step

    assert lms.plan(make, "2GiB", recompute_operations=True).demand > 0
