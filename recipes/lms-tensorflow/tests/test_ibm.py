"""IBM's names and options: the programs of TFLMS 1 and 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_large_model_support as ibm
from lms_tensorflow import LmsError, OptionError
from models import BATCH, MIB, convolutions, fit, needed

HERE = Path(__file__).parent
DEVICES = {"gpu_device": "/cpu:0", "cpu_device": "/cpu:1"}


def test_a_fit_under_autotuning_and_by_a_threshold() -> None:
    tuned = ibm.LMS(**DEVICES)
    tuned.batch_size = BATCH
    tuned.autotune_gpu_mem = 0.8 * needed(convolutions) / (1 << 30)
    tuned.autotune_plot = False
    by_hand = ibm.LMS(swapout_threshold=1, swapin_ahead=0, swapin_groupby=0, sync_mode=0, **DEVICES)
    by_hand.batch_size = BATCH
    plain = fit(convolutions)
    for callback in (tuned, by_hand):
        assert fit(convolutions, callback) == plain
        plan = max(callback.plans, key=lambda plan: plan.peak_before)
        assert plan.swaps
        assert plan.options.batch_size == BATCH
    assert plan.distances.threshold == 2  # IBM's swapped what is used later than that


def test_options_become_those_of_lms() -> None:
    lms = ibm.LMSKerasCallback(
        starting_scope="first",
        optimizer_scopes={"adam"},
        n_tensors=-1,
        lb=3,
        fuse_swapins=True,
        serialization=["2:5", 7],
        serialization_by_size=0.5,
        excl_scopes=set(),
        **DEVICES,
    )
    options = lms._engine.options
    assert (options.swapin_ahead, options.swapout_threshold, options.limit) == (3, None, None)
    assert options.serialized(9) == {2, 3, 4, 7}
    assert options.serialization_by_size == 512 * MIB
    assert ibm.LMSSessionRunHook({"adam"}, **DEVICES)._engine.options.swapout_threshold is None
    assert ibm.LMS(40, **DEVICES)._engine.options.swapout_threshold == 41


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("excl_scopes", {"loss"}, "excl_scopes is {'loss'}; LMS chooses the tensors itself"),
        ("incl_output_by_types", {"Conv2D"}, "incl_output_by_types is {'Conv2D'}; LMS chooses"),
        ("n_tensors", 20, "n_tensors is 20; LMS chooses the tensors itself"),
        ("is_training", False, "is_training is False; LMS is for training"),
        ("autotune_gpu_mem", "16GB", "autotune_gpu_mem is '16GB'; give a number of GiB"),
        ("batch_size", "32", "batch_size is '32'; give a whole number of at least 1"),
    ],
)
def test_what_cannot_be_had_is_refused(name: str, value: Any, told: str) -> None:
    lms = ibm.LMS(**DEVICES)
    with pytest.raises(OptionError) as caught:
        setattr(lms, name, value)
    assert told in str(caught.value)


@pytest.mark.parametrize("options", [{"swapin_ahead": 1.5}, {"serialization_by_size": -1}])
def test_bad_values_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"LMS: {next(iter(options))} is "):
        ibm.LMS(**options, **DEVICES)


def test_an_unknown_option_and_no_gpu() -> None:
    with pytest.raises(TypeError, match="TFLMS has no option 'swapout_treshold'"):
        ibm.LMS(swapout_treshold=3, **DEVICES)
    assert not tf.config.list_physical_devices("GPU")
    with pytest.raises(LmsError, match="sees no GPU"):
        ibm.LMS()


@pytest.mark.parametrize("way", ["run", "hook", "too small"])
def test_sessions(way: str) -> None:
    """In a process of its own: TensorFlow 1 has no eager tensors."""
    done = subprocess.run(
        [sys.executable, HERE / "sessions.py", way],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == "all well\n"
