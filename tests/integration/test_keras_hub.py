"""Models of Keras Hub, built from a configuration, on each of Keras's backends."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.releases import installed
from support.run import run

pytestmark = [pytest.mark.built, pytest.mark.timeout(900)]

# One step an epoch takes all the data, on one rank or as two halves: the numbers are the same.
TRAIN = """
import json, sys
import ddl, keras, keras_hub, numpy as np
ddl.init()
keras.utils.set_random_seed(1)
numbers = np.random.default_rng(1)
n, each = 8, 8 // ddl.size()
mine = slice(ddl.rank() * each, (ddl.rank() + 1) * each)
if sys.argv[1] == "text":
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=32, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32,
        max_sequence_length=8, dropout=0.0)
    model = keras_hub.models.BertTextClassifier(
        backbone, num_classes=3, preprocessor=None, dropout=0.0)
    x = {"token_ids": numbers.integers(0, 32, (n, 8)), "segment_ids": np.zeros((n, 8), "int32"),
         "padding_mask": np.ones((n, 8), "int32")}
    x = {name: values[mine] for name, values in x.items()}
    y = numbers.integers(0, 3, n)[mine]
else:
    backbone = keras_hub.models.ViTBackbone(
        image_shape=(16, 16, 3), patch_size=(4, 4), num_layers=2, num_heads=2, hidden_dim=16,
        mlp_dim=32, dropout_rate=0.0, attention_dropout=0.0)
    model = keras_hub.models.ViTImageClassifier(backbone, num_classes=3, preprocessor=None)
    x = numbers.random((n, 16, 16, 3), dtype="float32")[mine]
    y = numbers.integers(0, 3, n)[mine]
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.02), loss)
history = model.fit(
    x, y, batch_size=each, epochs=4, verbose=0, shuffle=False, callbacks=[ddl.DDLCallback()])
weights = [float(np.abs(np.asarray(w)).sum()) for w in model.get_weights()]
print("numbers", json.dumps([history.history["loss"], weights]), flush=True)
"""

# Keras's model on PyTorch is PyTorch's module: LMS takes it as any other.
UNDER_LMS = """
from contextlib import nullcontext
import keras, keras_hub, lms, numpy as np, torch
def train(limit):
    keras.utils.set_random_seed(1)
    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=64, num_layers=4, num_heads=2, hidden_dim=64, intermediate_dim=256,
        max_sequence_length=64, dropout=0.0)
    model = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ids = np.random.default_rng(1).integers(0, 64, (8, 65))
    x = {"token_ids": ids[:, :-1], "padding_mask": np.ones((8, 64), "int32")}
    device = lms.SimulatedDevice()
    under = lms.LMS(limit, smallest="16KiB", device=device) if limit else nullcontext()
    with device, under as support:
        for _ in range(4):
            model.train_on_batch(x, ids[:, 1:])
        report = support.report() if support else None
    return model.get_weights(), device.highest, report
free, demand, _ = train(None)
limit = int(0.7 * demand) // 512 * 512
weights, peak, report = train(limit)
assert peak <= limit < demand, (peak, limit, demand)
assert report.moved and not report.missed, report
assert all(np.array_equal(a, b) for a, b in zip(free, weights, strict=True))
"""


@pytest.fixture(scope="module")
def release() -> Path:
    return installed("ddl-ce-full", "make full")


def numbers(
    release: Path, ranks: int, kind: str, backend: str, folder: Path
) -> list[tuple[list[float], list[float]]]:
    """The losses and weights of each rank."""
    done = run(
        [
            *(release / "bin" / "ddlrun", "-H", f"localhost:{ranks}", "-timeout", "400"),
            *(release / "bin" / "python", "-c", TRAIN, kind),
        ],
        cwd=folder,
        env={**clean_environment(release, os.environ), "KERAS_BACKEND": backend},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line.partition("numbers ")[2] for line in done.stdout.splitlines()]
    return [json.loads(line) for line in lines if line]


@pytest.mark.parametrize("kind", ["text", pytest.param("images", marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_a_model_trains_with_the_numbers_of_one_rank(
    release: Path, tmp_path: Path, backend: str, kind: str
) -> None:
    ((losses, weights),) = numbers(release, 1, kind, backend, tmp_path)
    assert losses[-1] < losses[0]
    of_ranks = numbers(release, 2, kind, backend, tmp_path)
    assert len(of_ranks) == 2
    for of_rank in of_ranks:
        assert of_rank[0] == pytest.approx(losses, rel=1e-3)
        assert of_rank[1] == pytest.approx(weights, rel=1e-3, abs=1e-6)
    assert of_ranks[0][1] == of_ranks[1][1]


def test_lms_takes_a_model_on_pytorch(release: Path, tmp_path: Path) -> None:
    done = run(
        [release / "bin" / "python", "-c", UNDER_LMS],
        cwd=tmp_path,
        env={**clean_environment(release, os.environ), "KERAS_BACKEND": "torch"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
