"""As trl's script of supervised fine-tuning: a small language model, LoRA, the data made here."""

import tempfile

import torch
from datasets import Dataset
from numbers_of import told
from peft import LoraConfig
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = {"<pad>": 0, "</s>": 1} | {str(number): number for number in range(2, 64)}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel(words, "<pad>")),
    pad_token="<pad>",
    eos_token="</s>",
)
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    max_position_embeddings=32,
)
data = Dataset.from_dict(
    {"input_ids": [[(3 * row + column) % 64 for column in range(4 + row % 5)] for row in range(24)]}
)
with tempfile.TemporaryDirectory() as folder:
    arguments = SFTConfig(
        folder,
        use_cpu=True,
        bf16=False,
        max_steps=4,
        learning_rate=0.01,
        per_device_train_batch_size=3,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = SFTTrainer(
        LlamaForCausalLM(config),
        arguments,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=4, lora_dropout=0.0),
    )
    trainer.train()
told([p for p in trainer.model.parameters() if p.requires_grad])
