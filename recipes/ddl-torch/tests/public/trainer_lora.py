"""The Trainer without a backend's name, on LoRA's weights of a small language model."""

import tempfile

import torch
from numbers_of import told
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Made(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(40, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


torch.manual_seed(0)
base = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=8, n_embd=16, n_layer=2, n_head=2))
config = LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.0)
model = get_peft_model(base, config)
with tempfile.TemporaryDirectory() as folder:
    words = TrainingArguments(
        folder,
        use_cpu=True,
        max_steps=4,
        per_device_train_batch_size=3,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model, words, train_dataset=Made()).train()
told([p for p in model.parameters() if p.requires_grad])
