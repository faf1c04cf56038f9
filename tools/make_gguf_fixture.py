#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files that llama.cpp's own Python package writes, and what it says of them, for tests/hf/test_gguf.c.

    tools/make_gguf_fixture.py          writes tests/hf/gguf/ and tests/fuzz/corpus/gguf/

mixed.gguf            a llama model of one layer with a matrix in each of f32, f16, bf16 and q8_0, a byte-level tokenizer
                      of 256 bytes, two merges and two special tokens, and a chat template
mixed.safetensors     its weights as gguf dequantizes them, under the names and in the order of Hugging Face, float32
refused.gguf          the same with one matrix in q4_0
blocks.safetensors    "values" (blocks, 32), among them zeros, ties and numbers at the ends of float16's range, and "q8_0"
                      (blocks, 34): what gguf.quants.quantize makes of them

Needs numpy and gguf 0.19 of the Python registry.
"""
import json
import os
import struct

import gguf
import numpy as np

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests")
FOLDER, CORPUS = os.path.join(TESTS, "hf", "gguf"), os.path.join(TESTS, "fuzz", "corpus", "gguf")
Q = gguf.GGMLQuantizationType
VOCAB, DIM, HEADS, KV_HEADS, FFN = 264, 32, 4, 2, 64

# name in the file, name of Hugging Face, shape, format, heads whose rows llama.cpp has in pairs
TENSORS = [
    ("token_embd.weight", "model.embed_tokens.weight", (VOCAB, DIM), Q.Q8_0, 0),
    ("output_norm.weight", "model.norm.weight", (DIM,), Q.F32, 0),
    ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight", (DIM,), Q.F32, 0),
    ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", (DIM, DIM), Q.Q8_0, HEADS),
    ("blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", (16, DIM), Q.F16, KV_HEADS),
    ("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", (16, DIM), Q.BF16, 0),
    ("blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight", (DIM, DIM), Q.F16, 0),
    ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight", (DIM,), Q.F32, 0),
    ("blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight", (FFN, DIM), Q.Q8_0, 0),
    ("blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight", (FFN, DIM), Q.BF16, 0),
    ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight", (DIM, FFN), Q.F32, 0),
]


def letters():
    """GPT-2's letters of the bytes, by byte."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    more = iter(range(256, 512))
    return [chr(b) if b in seen else chr(next(more)) for b in range(256)]


def write_safetensors(name, tensors):
    header, blobs, at = {}, [], 0
    for key, values in sorted(tensors.items()):
        blob = values.tobytes()
        header[key] = dict(dtype={"float32": "F32", "uint8": "U8"}[values.dtype.name], shape=values.shape,
                           data_offsets=[at, at + len(blob)])
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    with open(os.path.join(FOLDER, name), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def write_model(name, changed=None):
    """Returns the weights as they are in the file, of Hugging Face's order."""
    random, back = np.random.default_rng(7), {}
    w = gguf.GGUFWriter(os.path.join(FOLDER, name), "llama")
    w.add_type(gguf.GGUFType.MODEL)
    w.add_name("mixed")
    w.add_context_length(128)
    w.add_embedding_length(DIM)
    w.add_block_count(1)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(50000.0)
    w.add_rope_dimension_count(DIM // HEADS)
    w.add_vocab_size(VOCAB)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    tokens = letters() + ["he", "\u0120he", "<|begin|>", "<|end|>"] + [f"[PAD{i}]" for i in range(260, VOCAB)]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([1] * 258 + [3, 3] + [5] * (VOCAB - 260))
    w.add_token_merges(["h e", "\u0120 he"])
    w.add_bos_token_id(258)
    w.add_eos_token_id(259)
    w.add_add_bos_token(True)
    w.add_chat_template("{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}")
    for theirs, ours, shape, form, heads in TENSORS:
        values = random.standard_normal(shape).astype(np.float32)
        if heads:
            values = values.reshape(heads, 2, -1, DIM).swapaxes(1, 2).reshape(shape)
        form = Q.Q4_0 if theirs == changed else form
        stored = gguf.quants.quantize(np.ascontiguousarray(values), form)
        w.add_tensor(theirs, stored, raw_dtype=form)
        values = gguf.quants.dequantize(stored, form).astype(np.float32).reshape(shape)
        if heads:
            values = values.reshape(heads, -1, 2, DIM).swapaxes(1, 2).reshape(shape)
        back[ours] = np.ascontiguousarray(values)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return back


def write_small(name, pieces):
    """A model that lacks nearly all tensors, to be changed by a fuzzer."""
    w = gguf.GGUFWriter(os.path.join(CORPUS, name), "llama")
    w.add_context_length(8)
    w.add_embedding_length(32)
    w.add_block_count(1)
    w.add_feed_forward_length(32)
    w.add_head_count(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("llama" if pieces else "gpt2")
    if pieces:
        w.add_token_list(["<unk>", "<s>", "<0x0A>", "\u2581", "a", "\u2581a"])
        w.add_token_scores([0.0, 0.0, 0.0, -2.0, -3.0, -1.0])
        w.add_token_types([2, 3, 6, 1, 1, 1])
    else:
        w.add_tokenizer_pre("llama-bpe")
        w.add_token_list(["a", "b", "\u0120", "ab", "<s>", "[PAD5]"])
        w.add_token_types([1, 1, 1, 1, 3, 5])
        w.add_token_merges(["a b"])
        w.add_bos_token_id(4)
        w.add_chat_template("{{ bos_token }}")
    w.add_tensor("token_embd.weight", np.ones((6, 32), np.float32))
    w.add_tensor("blk.0.attn_q.weight", gguf.quants.quantize(np.ones((4, 32), np.float32), Q.Q8_0), raw_dtype=Q.Q8_0)
    if not pieces:
        w.add_tensor("rope_freqs.weight", np.ones(8, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    os.makedirs(CORPUS, exist_ok=True)
    write_small("bpe", False)
    write_small("pieces", True)
    os.makedirs(FOLDER, exist_ok=True)
    write_safetensors("mixed.safetensors", write_model("mixed.gguf"))
    write_model("refused.gguf", "blk.0.ffn_gate.weight")
    random = np.random.default_rng(3)
    values = random.standard_normal((32, 32)).astype(np.float32)
    values[0] = 0
    values[1] = np.arange(-16, 16) / 4  # ties once the largest is scaled to 127
    values[1, 0] = -63.5
    values[2] *= np.float32(1e-9)
    values[3] *= np.float32(1e5)
    values[4] = -values[4, 0]
    values[5] *= np.float32(1e-30)
    blocks = gguf.quants.quantize(values, Q.Q8_0)
    write_safetensors("blocks.safetensors", {"values": values, "q8_0": np.asarray(blocks, dtype=np.uint8)})


if __name__ == "__main__":
    main()
