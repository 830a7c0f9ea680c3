"""Asks `python -m lms`'s questions for configurations from transformers: a line for each.

python lms_configurations.py [NAME ...]
"""

from __future__ import annotations

import re
import sys
from typing import Any

from lms.answer import Answer, StepMaker, does_it_fit
from lms.configurations import step_of
from lms.devices.gpus import gpu_named
from lms.sizes import size_text

#: Settings that make the model quick to plan: fewer layers, each as by default.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "AlbertConfig": {"num_hidden_layers": 2},
    "BartConfig": {"encoder_layers": 2, "decoder_layers": 2},
    "BeitConfig": {"num_hidden_layers": 2},
    "BertConfig": {"num_hidden_layers": 2},
    "BloomConfig": {"n_layer": 2, "hidden_size": 1024, "n_head": 16},
    "ConvNextConfig": {"depths": [1, 1, 2, 1]},
    "DeiTConfig": {"num_hidden_layers": 2},
    "DistilBertConfig": {"n_layers": 2},
    "ElectraConfig": {"num_hidden_layers": 2},
    "GPT2Config": {"n_layer": 2},
    "GPTNeoXConfig": {"num_hidden_layers": 2},
    "GemmaConfig": {"num_hidden_layers": 2},
    "LlamaConfig": {"num_hidden_layers": 2},
    "MistralConfig": {"num_hidden_layers": 2},
    "OPTConfig": {"num_hidden_layers": 2},
    "PhiConfig": {"num_hidden_layers": 2},
    "Qwen2Config": {"num_hidden_layers": 2},
    "ResNetConfig": {"depths": [1, 1, 2, 1]},
    "RobertaConfig": {"num_hidden_layers": 2},
    "T5Config": {"num_layers": 2, "num_decoder_layers": 2},
    "ViTConfig": {"num_hidden_layers": 2},
    "WhisperConfig": {"encoder_layers": 2, "decoder_layers": 2},
}
#: Samples in a batch: enough that activations are most of the memory.
BATCH = 16
GPU = gpu_named("H100")


def fitted(make_step: StepMaker, demand: int) -> Answer:
    """At three quarters of the demand, or else at the limits that the refusals name."""
    limit = int(0.75 * demand)
    while True:
        answer = does_it_fit(make_step, BATCH, GPU, limit, can_page=False)
        if answer.best is not None:
            return answer
        named = re.search(r"raise the limit to (\d+) bytes", str(answer))
        assert named is not None, str(answer)
        assert limit < int(named[1]) < demand, str(answer)
        limit = int(named[1])


def main() -> None:
    """Each in less memory than its demand in-core."""
    for name in sys.argv[1:] or CONFIGURATIONS:
        make_step = step_of(name, CONFIGURATIONS[name])
        fits = does_it_fit(make_step, BATCH, GPU, 1 << 60, can_page=False)
        assert not fits.ways, name
        answer = fitted(make_step, fits.demand)
        assert answer.best is not None, name
        assert answer.best.predicted_peak <= answer.limit < fits.demand == answer.demand, name
        share = max(way.share for way in answer.ways)
        texts = size_text(answer.demand), size_text(answer.limit), f"{share:.3f}"
        print(name, *texts, sep=", ", flush=True)


if __name__ == "__main__":
    main()
