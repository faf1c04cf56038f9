#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What TRL's DPOTrainer computes for a tiny random Llama: tests/hf/preference.json.

    tools/dpo_parity.py write

Needs trl and datasets beside what tools/hf_parity.py and tools/peft_parity.py need, whose weights these are. A token is a byte, 256 ends
a text. The fixture is a JSON object:

    config              config.json as transformers saves it
    adapter, shapes     of the cases with adapters: adapter_config.json, and the shapes of the tensors of the adapter's file. A is
                        0.25 unit(name, i), B zero
    rows                prompt, chosen, rejected: all of them are the batch of each step
    cases               name, adapter, loss_type, beta, label_smoothing; and for each step, before its update: losses, and TRL's metrics by
                        name

TRL has label smoothing in losses that sort a batch first (aot). Of pairs one by one that is the loss of DPO with smoothed labels.
"""
import json
import os
import sys
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_parity as hf
import peft_parity as peft

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "hf", "preference.json")
STEPS = 20
ADAMW = dict(learning_rate=1e-3, adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.1, max_grad_norm=1.0)
MODEL = dict(hf.LLAMA, vocab_size=260, max_position_embeddings=128)
ADAPTER = dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]
ROWS = [
    ("What floats?", " A duck, and very small stones.", " Lead."),
    ("Add 2 and 3:", " 5", " 23, as they stand side by side"),
    ("Say it in German: good night.", " Gute Nacht.", " Good night!"),
    ("Is the sea salty?", " Yes: rivers carry salt into it.", " No, it is sweet and clear water."),
    ("Name a prime.", " 7", " 9"),
    ("q", " the longest of the answers that were chosen here, by far", " short"),
]
CASES = [
    dict(name="full", adapter=False, loss_type="sigmoid", beta=0.1),
    dict(name="lora", adapter=True, loss_type="sigmoid", beta=0.3),
    dict(name="hinge", adapter=False, loss_type="hinge", beta=0.5),
    dict(name="ipo", adapter=False, loss_type="ipo", beta=0.4),
    dict(name="smoothed", adapter=False, loss_type="aot", beta=0.3, label_smoothing=0.2),
    dict(name="robust", adapter=False, loss_type="robust", beta=0.3, label_smoothing=0.1),
    dict(name="exo", adapter=False, loss_type="exo_pair", beta=0.3, label_smoothing=0.05),
    dict(name="nca", adapter=False, loss_type="nca_pair", beta=0.2),
    dict(name="bco", adapter=True, loss_type="bco_pair", beta=0.2),
    dict(name="sppo", adapter=False, loss_type="sppo_hard", beta=2.0),
    dict(name="apo zero", adapter=False, loss_type="apo_zero", beta=0.1),
    dict(name="apo down", adapter=False, loss_type="apo_down", beta=0.1),
    dict(name="means", adapter=False, loss_type="sigmoid_norm", beta=2.0),
]


def byte_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    letter = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    assert sorted(letter.values()) == alphabet
    tokenizer = Tokenizer(models.BPE(vocab={letter[b]: b for b in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>")
    assert fast("aé<|end|>")["input_ids"] == [97, 0xc3, 0xa9, 256]
    return fast


class Recorded(DPOTrainer):
    def _compute_loss(self, model, inputs, return_outputs):
        loss = super()._compute_loss(model, inputs, return_outputs)
        self.told.setdefault("losses", []).append(loss.item())
        for name in METRICS:
            self.told.setdefault(name, []).append(self._metrics["train"][name][-1])
        return loss


def steps_of(told, calls):
    """Means over the calls of each step."""
    return {k: [sum(v[i : i + calls]) / calls for i in range(0, len(v), calls)] for k, v in told.items()}


def train(base, case, folder):
    calls = len(ROWS) if case["loss_type"] == "aot" else 1  # of a step
    model, reference = (hf.load(hf.T.LlamaForCausalLM, base, torch.float32) for _ in range(2))
    adapter = LoraConfig(task_type="CAUSAL_LM", **ADAPTER) if case["adapter"] else None
    arguments = DPOConfig(output_dir=folder, per_device_train_batch_size=len(ROWS) // calls, max_steps=STEPS,
                          gradient_accumulation_steps=calls, lr_scheduler_type="constant", loss_type=[case["loss_type"]],
                          label_smoothing=case.get("label_smoothing", 0.0), beta=case["beta"], use_cpu=True, bf16=False, fp16=False, report_to=[],
                          gradient_checkpointing=False, save_strategy="no", disable_tqdm=True, max_length=None, logging_steps=1000,
                          **ADAMW)
    rows = Dataset.from_list([dict(prompt=p, chosen=c, rejected=r) for p, c, r in ROWS])
    trainer = Recorded(model=model, ref_model=None if adapter else reference, args=arguments, train_dataset=rows,
                       processing_class=byte_tokenizer(), peft_config=adapter)
    for name, p in trainer.model.named_parameters():
        if "lora_A" in name:
            p.data.copy_(peft.value(peft.file_name(name), p.shape))
    trainer.told = {}
    trainer.train()
    return steps_of(trainer.told, calls)


def adapter_files(base):
    with tempfile.TemporaryDirectory() as folder:
        peft.build(hf.T.LlamaForCausalLM, base, folder, ADAPTER)
        with open(os.path.join(folder, "adapter_config.json")) as f:
            config = json.load(f)
        shapes = {k: list(v.shape) for k, v in load_file(os.path.join(folder, peft.WEIGHTS)).items()}
    config["base_model_name_or_path"] = "base"
    config["target_modules"] = sorted(config["target_modules"])
    return config, shapes


def write():
    result = dict(rows=[dict(prompt=p, chosen=c, rejected=r) for p, c, r in ROWS], cases=[])
    with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as folder:
        hf.build(hf.T.LlamaConfig, hf.T.LlamaForCausalLM, MODEL, base, lambda k, v: hf.weight(k, tuple(v.shape)))
        with open(os.path.join(base, "config.json")) as f:
            result["config"] = json.load(f)
        result["adapter"], result["shapes"] = adapter_files(base)
        for case in CASES:
            told = train(base, case, folder)
            result["cases"].append(dict(case, **hf.digits(told)))
            print(f"{case['name']}: {told['losses'][0]:.6f} -> {told['losses'][-1]:.6f}")
    with open(FILE, "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write()
    else:
        sys.exit(__doc__)
