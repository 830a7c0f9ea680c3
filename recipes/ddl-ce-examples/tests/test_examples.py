"""Every example on real ranks: it learns, all ranks end with the same weights, one of them prints.

Equal weights after steps on different data show that gradients were exchanged: accuracy does not.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ddl_ce_examples import digits

from conftest import HERE, Run

EXAMPLES = [
    "keras_ddl",
    "keras_horovod",
    "keras_distribute",
    "torch_ddp",
    "torch_ddp --backend gloo",
    "torch_horovod",
    "torch_lms",
]


def check_accuracy(output: str) -> None:
    found = re.findall(r"^\[(\d+)@\S+ *\] test accuracy: (.*)$", output, re.MULTILINE)
    assert [rank for rank, _ in found] == ["0"], output
    assert 0.95 <= float(found[0][1]) <= 1, output


@pytest.mark.parametrize("example", EXAMPLES)
def test_on_one_rank(ddlrun: Run, example: str) -> None:
    result = ddlrun(1, "-m", *f"ddl_ce_examples.{example}".split())
    assert result.returncode == 0, result.stderr
    check_accuracy(result.stdout)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("example", EXAMPLES)
def test_on_several_ranks(ddlrun: Run, tmp_path: Path, example: str, ranks: int) -> None:
    result = ddlrun(ranks, str(HERE / "weights.py"), str(tmp_path), *example.split())
    assert result.returncode == 0, result.stderr
    check_accuracy(result.stdout)
    digests = [(tmp_path / str(rank)).read_text() for rank in range(ranks)]
    assert len(set(digests)) == 1, "the ranks ended with different weights"


def run_alone(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=300, check=False
    )


def test_a_preempted_job_goes_on(ddlrun: Run, tmp_path: Path) -> None:
    """A real signal to ddlrun in the third epoch, and the weights of a run without one."""
    job = subprocess.Popen(
        [
            *(str(Path(sys.executable).with_name("ddlrun")), "-H", "localhost:2"),
            *("-timeout", "540", sys.executable, "-m", "ddl_ce_examples.torch_checkpoint"),
            str(tmp_path / "saved"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    for line in job.stdout:
        if "epoch 2/15" in line:
            job.send_signal(signal.SIGUSR1)
    assert job.stderr is not None
    errors = job.stderr.read()
    assert job.wait(60) == 75, errors
    said = re.search(r"saved after step (\d+) in \S+; ending with exit code 75", errors)
    assert said, errors
    assert 2 * 45 <= int(said[1]) < 15 * 45
    digests = {}
    for folder in ("saved", "undisturbed"):
        words = (str(tmp_path), "torch_checkpoint", str(tmp_path / folder))
        result = ddlrun(2, str(HERE / "weights.py"), *words)
        assert result.returncode == 0, result.stderr
        check_accuracy(result.stdout)
        assert (f"goes on after step {said[1]}," in result.stderr) == (folder == "saved")
        digests[folder] = {(tmp_path / str(rank)).read_text() for rank in range(2)}
    assert digests["saved"] == digests["undisturbed"]
    assert len(digests["saved"]) == 1


@pytest.mark.parametrize("example", ["torch_ddp", "torch_lms", "torch_checkpoint saved"])
def test_without_a_launcher_it_says_how_to_start_it(example: str) -> None:
    result = run_alone(*f"ddl_ce_examples.{example}".split())
    assert result.returncode == 2
    assert "error: start me with ddlrun: ddlrun -H localhost:2 python -m" in result.stderr


def test_a_share_of_nothing_is_refused() -> None:
    result = run_alone("ddl_ce_examples.torch_lms", "--share", "0")
    assert result.returncode == 2
    assert "error: --share must be above 0, not 0" in result.stderr


def test_nccl_without_a_gpu_is_refused() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    result = run_alone("ddl_ce_examples.torch_ddp", "--backend", "nccl")
    assert result.returncode == 2
    assert "error: --backend nccl needs a GPU" in result.stderr


def test_the_digits() -> None:
    (x, y), (x_test, y_test) = digits.load()
    assert (x.shape, x_test.shape) == ((1437, 8, 8, 1), (360, 8, 8, 1))
    assert (x.dtype, y.dtype, x.max()) == ("float32", "int64", 1)
    assert set(y) == set(y_test) == set(range(10))


def test_a_strategy_without_tf_config_says_how_to_start_it(ddlrun: Run) -> None:
    result = ddlrun(2, "-m", "ddl_ce_examples.keras_distribute", options=())
    assert result.returncode == 2
    assert "error: start me with ddlrun -tf_config -H localhost:2 python -m" in result.stderr
