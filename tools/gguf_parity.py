#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files of trainmark beside llama.cpp: its Python reader, its program, and its tokenizers.

    tools/gguf_parity.py TRAINMARK [NAME ...]

For tiny random models of each class that is written as GGUF (NAME: a row of MODELS), in f32, bf16 and q8_0:

    reader      every tensor of the file is the one of the Hugging Face directory, in the order of llama.cpp, bit for bit;
                of q8_0 the bytes are those of gguf.quants.quantize
    back        `trainmark numerics` of the file: the same loss as of its dequantized weights
    logits      llama-cpp-python, all in float32, beside `trainmark numerics`: the last logits differ by 1e-3 of the
                largest at most (its GELU is a table of float16).
                llama.cpp rounds activations to the format of the weights, so files of bf16 and q8_0 are compared after
                their weights were made float32 by gguf.quants.dequantize
    text        the same 12 tokens of `trainmark generate`, as the file is and as it was dequantized

Adapters, trained for a few steps on each model of ADAPTED: `trainmark numerics --adapter` beside llama.cpp with the model's
file and the adapter's.

Tokenizers: those of tests/token/fixtures that llama.cpp has, with the texts of TEXTS: the same ids.

Needs numpy, gguf 0.19 and llama-cpp-python 0.3.36 of the Python registry.
"""
import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SEQUENCE, ADDED, BOUND = 17, 12, 1e-3

SIZES = dict(vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0)
EXPERTS = dict(SIZES, num_experts_per_tok=2)
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=2.0,
              original_max_position_embeddings=16)
GPT2 = dict(vocab_size=64, n_embd=64, n_layer=2, n_head=4, n_positions=32, n_inner=128, layer_norm_epsilon=1e-5,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)

# name: (model_type, class, members of config.json)
MODELS = {
    "llama": ("llama", "LlamaForCausalLM", SIZES),
    "llama-tied": ("llama", "LlamaForCausalLM", dict(SIZES, tie_word_embeddings=True, head_dim=32)),
    "llama3": ("llama", "LlamaForCausalLM", dict(SIZES, rope_scaling=LLAMA3)),
    "llama-linear": ("llama", "LlamaForCausalLM", dict(SIZES, rope_scaling=dict(rope_type="linear", factor=2.0))),
    "llama-yarn": ("llama", "LlamaForCausalLM", dict(SIZES, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16))),
    "llama-odd": ("llama", "LlamaForCausalLM", dict(SIZES, hidden_size=48, head_dim=16, intermediate_size=80)),
    "mistral": ("mistral", "MistralForCausalLM", dict(SIZES, sliding_window=None)),
    "mixtral": ("mixtral", "MixtralForCausalLM", dict(EXPERTS, num_local_experts=4)),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", SIZES),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", dict(SIZES, head_dim=32)),
    "qwen3moe": ("qwen3_moe", "Qwen3MoeForCausalLM", dict(EXPERTS, num_experts=4, moe_intermediate_size=64, head_dim=16,
                                                          norm_topk_prob=True)),
    "gpt2": ("gpt2", "GPT2LMHeadModel", GPT2),
}

# --- a directory with random weights ------------------------------------------------------------------------------------


def shapes(kind, c):
    """Name and shape of every tensor of the class."""
    if kind == "gpt2":
        d, f = c["n_embd"], c["n_inner"]
        out = {"wte.weight": (c["vocab_size"], d), "wpe.weight": (c["n_positions"], d), "ln_f.weight": (d,),
               "ln_f.bias": (d,)}
        for i in range(c["n_layer"]):
            for name, shape in (("ln_1", (d,)), ("ln_2", (d,)), ("attn.c_attn", (d, 3 * d)), ("attn.c_proj", (d, d)),
                                ("mlp.c_fc", (d, f)), ("mlp.c_proj", (f, d))):
                out[f"h.{i}.{name}.weight"] = shape
                out[f"h.{i}.{name}.bias"] = shape[-1:]
        return {"transformer." + name: shape for name, shape in out.items()}
    d, heads, kv, f = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["intermediate_size"]
    w = c.get("head_dim", d // heads)
    out = {"model.embed_tokens.weight": (c["vocab_size"], d), "model.norm.weight": (d,)}
    if not c.get("tie_word_embeddings"):
        out["lm_head.weight"] = (c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        layer = {"input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,),
                 "self_attn.q_proj.weight": (heads * w, d), "self_attn.k_proj.weight": (kv * w, d),
                 "self_attn.v_proj.weight": (kv * w, d), "self_attn.o_proj.weight": (d, heads * w)}
        if kind == "qwen2":
            layer |= {f"self_attn.{p}_proj.bias": (n * w,) for p, n in (("q", heads), ("k", kv), ("v", kv))}
        if kind.startswith("qwen3"):
            layer |= {"self_attn.q_norm.weight": (w,), "self_attn.k_norm.weight": (w,)}
        experts = c.get("num_local_experts", c.get("num_experts", 0))
        block, names, f = (("block_sparse_moe", ("w1", "w3", "w2"), f) if kind == "mixtral" else
                           ("mlp", ("gate_proj", "up_proj", "down_proj"), c.get("moe_intermediate_size", f)))
        if experts:
            layer[f"{block}.gate.weight"] = (experts, d)
        for inner in [f".experts.{e}" for e in range(experts)] or [""]:
            for name, shape in zip(names, ((f, d), (f, d), (d, f))):
                layer[f"{block}{inner}.{name}.weight"] = shape
        out |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    return out


def write_folder(folder, kind, architecture, config, bf16):
    """Writes config.json and model.safetensors; returns the weights as float32."""
    os.makedirs(folder)
    random, weights, header, blobs, at = np.random.default_rng(1), {}, {}, [], 0
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(dict(config, model_type=kind, architectures=[architecture]), file)
    for name, shape in shapes(kind, config).items():
        scale = 0.1 if len(shape) == 1 else 1.5 / np.sqrt(shape[-1])
        w = (random.standard_normal(shape) * scale + ("norm" in name or "ln_" in name)).astype(np.float32)
        if bf16:
            w = (w.view(np.uint32) & np.uint32(0xffff0000)).view(np.float32)
        weights[name] = w
        blob = (w.view(np.uint32) >> 16).astype(np.uint16).tobytes() if bf16 else w.tobytes()
        header[name] = dict(dtype="BF16" if bf16 else "F32", shape=shape, data_offsets=[at, at + len(blob)])
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    return weights


# --- what llama.cpp wants -----------------------------------------------------------------------------------------------


def expected(kind, config, weights):
    """The tensors by the names of gguf's own table, in the order of llama.cpp."""
    arch = {"mistral": "llama", "mixtral": "llama", "qwen3_moe": "qwen3moe"}.get(kind, kind)
    code = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(code, config.get("num_hidden_layers", config.get("n_layer")))
    heads = {"q_proj": config.get("num_attention_heads"), "k_proj": config.get("num_key_value_heads")}
    out, stacked = {}, {}
    for name, w in weights.items():
        for part, n in heads.items():
            if f".{part}." in name and arch == "llama":
                w = w.reshape(n, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
        if kind == "gpt2" and w.ndim == 2 and ".c_" in name:
            w = w.T
        pieces = name.split(".")
        if "experts" in pieces:
            e = pieces.index("experts") + 1
            stacked.setdefault(".".join(pieces[:e] + pieces[e + 1:]), []).append((int(pieces[e]), w))
            continue
        out[names.get_name(name, try_suffixes=(".weight", ".bias"))] = w
    for name, parts in stacked.items():
        out[names.get_name(name, try_suffixes=(".weight",))] = np.stack([w for _, w in sorted(parts, key=lambda p: p[0])])
    return out


def check_reader(path, form, kind, config, weights):
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    wanted = expected(kind, config, weights)
    extra = set(tensors) - set(wanted) - {"rope_freqs.weight"}
    assert not extra and not set(wanted) - set(tensors), (extra, set(wanted) - set(tensors))
    for name, w in wanted.items():
        t = tensors[name]
        assert list(t.shape) == list(w.shape[::-1]), (name, t.shape, w.shape)
        if t.tensor_type.name.lower() != form:
            narrow = w.ndim == 1 or "ffn_gate_inp" in name or "position_embd" in name or w.shape[-1] % 32
            assert t.tensor_type.name == "F32" and narrow, (name, t.tensor_type)
        exact = gguf.quants.quantize(np.ascontiguousarray(w), t.tensor_type)
        assert np.array_equal(exact.view(np.uint8).ravel(), np.asarray(t.data).view(np.uint8).ravel()), name


def dequantized(path, out):
    """The same file with all tensors as gguf dequantizes them, in float32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value, kind = field.contents(), field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            if value:
                writer.add_array(key, value)
        else:
            writer.add_key_value(key, 0 if key == "general.file_type" else value, kind)
    for t in reader.tensors:
        writer.add_tensor(t.name, gguf.quants.dequantize(t.data, t.tensor_type).reshape(tuple(t.shape[::-1])))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- comparisons --------------------------------------------------------------------------------------------------------


class Judge:
    """llama.cpp with one file: logits of the last of some ids, and greedy continuation."""

    def __init__(self, path):
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        assert self.model, path
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context.n_batch = 64
        context.type_k = context.type_v = 0  # float32
        context.flash_attn_type = 0
        context.n_threads = context.n_threads_batch = 1
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def logits(self, ids):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        tokens = (llama_cpp.llama_token * len(ids))(*ids)  # must outlive the batch
        batch = llama_cpp.llama_batch_get_one(tokens, len(ids))
        assert llama_cpp.llama_decode(self.context, batch) == 0
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, -1), (self.vocab,)).copy()

    def go_on(self, ids, n):
        out = list(ids)
        for _ in range(n):
            out.append(int(np.argmax(self.logits(out))))
        return out[len(ids):]

    def close(self):
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def check_model(trainmark, name, place):
    kind, architecture, members = MODELS[name]
    ids = [(7 * i * i + 3 * i + 1) % members["vocab_size"] for i in range(SEQUENCE)]
    tokens = os.path.join(place, "ids.json")
    prompt = os.path.join(place, "prompt.json")
    json.dump(ids, open(tokens, "w"))
    json.dump(ids[:5], open(prompt, "w"))
    for form in ("f32", "bf16", "q8_0"):
        folder, file, wide = (os.path.join(place, f"{name}-{form}{end}") for end in ("", ".gguf", "-wide.gguf"))
        weights = write_folder(folder, kind, architecture, members, form == "bf16")
        call(trainmark, "export", folder, "-o", file, "--gguf", form)
        check_reader(file, form, kind, members, weights)
        dequantized(file, wide)
        own, again = (json.loads(call(trainmark, "numerics", path, "--tokens", tokens, "--json")) for path in (file, wide))
        assert own["loss"] == again["loss"] and own["last_logits"] == again["last_logits"], (own["loss"], again["loss"])
        if form != "q8_0":
            source = json.loads(call(trainmark, "numerics", folder, "--tokens", tokens, "--json"))
            assert source["last_logits"] == own["last_logits"], "not the weights of the directory"
        text = json.loads(call(trainmark, "generate", file, "--prompt-ids", prompt, "--max-tokens", str(ADDED), "--json"))
        as_is, judge = Judge(file), Judge(wide)
        error = np.abs(judge.logits(ids[:-1]) - own["last_logits"]).max()
        raw = np.abs(as_is.logits(ids[:-1]) - own["last_logits"]).max()
        same, same_raw = (j.go_on(ids[:5], ADDED) == text["tokens"] for j in (judge, as_is))
        as_is.close()
        judge.close()
        largest = np.abs(own["last_logits"]).max()
        print(f"{name:14} {form:5} logits {error:.1e} of {largest:.1f}, as the file is "
              f"{raw:.1e}; text {'the same' if same else 'DIFFERS'}, as the file is {'the same' if same_raw else 'differs'}")
        assert error <= BOUND * largest and same, name


# --- adapters ---------------------------------------------------------------------------------------------------------

ADAPTED = ("llama", "qwen2", "qwen3", "gpt2")
TRAINING = ("--lora.rank 4 --lora.alpha 12 --training.steps 20 --training.seq_len 16 --training.local_batch_size 4 "
            "--optimizer.lr 0.02 --validation.enable false --checkpoint.enable true --training.stop_at_target false")


def check_adapter(trainmark, name, place):
    kind, architecture, members = MODELS[name]
    ids = [(5 * i * i + i + 2) % members["vocab_size"] for i in range(SEQUENCE)]
    base, run, peft, tokens = (os.path.join(place, f"{name}-{end}") for end in ("base", "run", "peft", "ids.json"))
    json.dump(ids, open(tokens, "w"))
    write_folder(base, kind, architecture, members, False)
    call(trainmark, "run", "--model.hf_assets_path", base, "--out", run, *TRAINING.split())
    call(trainmark, "export", run, "-o", peft)
    for source in (base, run):
        call(trainmark, "export", source, "-o", source + ".gguf", "--gguf", "f32")
    plain = json.loads(call(trainmark, "numerics", base, "--tokens", tokens, "--json"))["last_logits"]
    own = json.loads(call(trainmark, "numerics", base, "--adapter", peft, "--tokens", tokens, "--json"))["last_logits"]
    judge = Judge(base + ".gguf")
    adapter = llama_cpp.llama_adapter_lora_init(judge.model, (run + ".gguf").encode())
    assert adapter, name
    adapters, scales = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(adapter), (ctypes.c_float * 1)(1.0)
    assert llama_cpp.llama_set_adapters_lora(judge.context, adapters, 1, scales) == 0
    error, change = np.abs(judge.logits(ids[:-1]) - own).max(), np.abs(np.subtract(own, plain)).max()
    judge.close()
    print(f"adapter {name:14} logits {error:.1e}, which the adapter changes by {change:.1f}")
    assert change > 0.5 and error <= BOUND * np.abs(own).max(), name


# --- tokenizers ---------------------------------------------------------------------------------------------------------

TOKENIZERS = ("gpt2.json", "llama3.json", "qwen2.json", "o200k.json", "llama2.json", "llama2.model")
TEXTS = ("Hello world", " Hello  world ", "don't we'll I'm 's", "a\nb\n\nc\r\n d\n", "1 12 123 1234 12345", "x=1;//y",
         "camelCase HTTPServer", "\u00dcber \u00e9t\u00e9 na\u00efve", "\u4f60\u597d \u043f\u0440\u0438\u0432\u0435\u0442",
         "\U0001f600!", "tabs\t\tand   blanks", "the quick brown fox")


def check_tokenizer(trainmark, name, place):
    path = os.path.join(HERE, "..", "tests", "token", "fixtures", name)
    vocab = int(next(line.split()[1] for line in call(trainmark, "tokenizer", "info", "--tokenizer", path).splitlines()
                     if line.startswith("vocab")))
    folder, file, text = (os.path.join(place, f"t-{name}{end}") for end in ("", ".gguf", ".txt"))
    write_folder(folder, "llama", "LlamaForCausalLM", dict(SIZES, vocab_size=vocab + 3), False)
    call(trainmark, "export", folder, "-o", file, "--gguf", "f32", "--tokenizer", path)
    model = llama_cpp.Llama(file, vocab_only=True, verbose=False)
    for one in TEXTS:
        open(text, "w", newline="").write(one)
        theirs = model.tokenize(one.encode(), add_bos=True, special=True)
        for tokenizer in (path, file):
            ours = json.loads(call(trainmark, "tokenizer", "encode", "--tokenizer", tokenizer, "--special", text))
            ours = ours["ids"] if isinstance(ours, dict) else ours
            assert ours == theirs, (name, one, ours, theirs, tokenizer)
    print(f"tokenizer {name}: the same ids of {len(TEXTS)} texts")


def main():
    trainmark, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    llama_cpp.llama_backend_init()
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, None)
    with tempfile.TemporaryDirectory() as place:
        for name in MODELS:
            if not wanted or name in wanted:
                check_model(trainmark, name, place)
        for name in ADAPTED:
            if not wanted or "adapter" in wanted:
                check_adapter(trainmark, name, place)
        for name in TOKENIZERS:
            if not wanted or name in wanted:
                check_tokenizer(trainmark, name, place)


if __name__ == "__main__":
    main()
