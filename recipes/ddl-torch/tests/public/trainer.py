"""The Trainer on a small model: it takes gloo by name, as `--ddp_backend gloo` would."""

import tempfile

import torch
from numbers_of import told
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Made(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, object]:
        words = torch.randint(50, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": int(words[0]) % 2}


torch.manual_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
)
model = BertForSequenceClassification(config)
with tempfile.TemporaryDirectory() as folder:
    words = TrainingArguments(
        folder,
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=5,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(model, words, train_dataset=Made(), eval_dataset=Made())
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
told([*model.parameters(), torch.tensor(loss)])
