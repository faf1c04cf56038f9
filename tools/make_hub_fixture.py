#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/hf/hub/: a cache of downloads as the package huggingface_hub writes it, of two models and a data set that
a server on this machine offers; and tests/hf/hub.json: what the package finds there without a server, and where it
looks for its cache by the variables of the environment. Nothing leaves the machine. Needs huggingface_hub.

    tools/make_hub_fixture.py

The server has a tiny Llama in two shards (revisions main and v1; of main, a copy whose second shard never arrives) and
rows for fine-tuning. What lies in the cache, under which name, and what links to what, is the package's doing.
"""
import hashlib
import http.server
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import threading
import time

OUT = pathlib.Path(__file__).parent.parent / "tests/hf/hub"
HIDDEN, LAYERS, INNER, WORDS = 8, 1, 16, 32


def bfloat16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def tensors(seed):
    r = random.Random(seed)
    shapes = {"model.embed_tokens.weight": (WORDS, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (WORDS, HIDDEN)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": (HIDDEN,), layer + "post_attention_layernorm.weight": (HIDDEN,)}
        shapes |= {layer + f"self_attn.{part}_proj.weight": (HIDDEN, HIDDEN) for part in "qkvo"}
        shapes |= {layer + f"mlp.{part}_proj.weight": (INNER, HIDDEN) for part in ("gate", "up")}
        shapes |= {layer + "mlp.down_proj.weight": (HIDDEN, INNER)}
    out = {}
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        out[name] = (shape, bfloat16([1.0 if len(shape) == 1 else r.uniform(-0.25, 0.25) for _ in range(n)]))
    return out


def safetensors(entries):
    header, at, data = {"__metadata__": {"format": "pt"}}, 0, b""
    for name, (shape, value) in entries:
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + len(value)]}
        at += len(value)
        data += value
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def tokenizer():
    vocabulary = {chr(ord("a") + i): i for i in range(26)} | {"Ġ": 26, "Ċ": 27, "</s>": 28}
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": 28, "content": "</s>", "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                      "merges": []}}


def model(seed):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
              "intermediate_size": INNER, "num_attention_heads": 2, "num_hidden_layers": LAYERS,
              "num_key_value_heads": 2, "vocab_size": WORDS, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 0,
              "eos_token_id": 28}
    entries = sorted(tensors(seed).items())
    half = len(entries) // 2
    shards = {f"model-0000{i + 1}-of-00002.safetensors": entries[half * i:len(entries) if i else half] for i in range(2)}
    index = {"metadata": {"total_size": sum(len(value) for _, (_, value) in entries)},
             "weight_map": {name: file for file, part in shards.items() for name, _ in part}}
    files = {file: safetensors(part) for file, part in shards.items()}
    files |= {name: (json.dumps(value, indent=1) + "\n").encode() for name, value in (
        ("config.json", config), ("model.safetensors.index.json", index), ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", {"eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}))}
    return files | {"README.md": b"# A model of nothing\n"}


def rows():
    r = random.Random(7)
    word = lambda: "".join(r.choice("abcdefghij") for _ in range(r.randint(2, 6)))
    lines = [json.dumps({"prompt": f"{word()} {word()}", "completion": f" {word()}"}) for _ in range(24)]
    return {"README.md": b"# Rows of nothing\n", "data/train-00000-of-00001.jsonl": ("\n".join(lines[:20]) + "\n").encode(),
            "data/test-00000-of-00001.jsonl": ("\n".join(lines[20:]) + "\n").encode()}


def commit(text):
    return hashlib.sha1(text.encode()).hexdigest()


# By repository: commit by revision, files by commit. A shard of the last one is begun and never ends.
REPOSITORIES = {
    "models/example/tiny-llama": ({"main": commit("main"), "v1": commit("v1")}, {commit("main"): model(1), commit("v1"): model(2)}),
    "models/example/half-llama": ({"main": commit("half")}, {commit("half"): model(3)}),
    "datasets/example/rows": ({"main": commit("rows")}, {commit("rows"): rows()}),
}


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, headers, body=b"", length=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def as_json(self, value):
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def repository(self, path):
        for name, (revisions, commits) in REPOSITORIES.items():
            kind, name = name.split("/", 1)
            for front in (f"/api/{kind}/{name}/", f"/{name}/" if kind == "models" else f"/{kind}/{name}/"):
                if path.startswith(front):
                    return name, revisions, commits, path[len(front):]
        return None, {}, {}, ""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        name, revisions, commits, rest = self.repository(self.path.split("?")[0])
        what, _, rest = rest.partition("/")
        revision, _, file = rest.partition("/")
        sha = revisions.get(revision, revision)
        files = commits.get(sha)
        if files is None:
            return self.answer(404, {"X-Error-Code": "RevisionNotFound" if name else "RepoNotFound"})
        if what == "revision":
            return self.as_json({"id": name, "sha": sha, "private": False, "tags": [], "siblings": [{"rfilename": f} for f in files]})
        if what == "tree":
            return self.as_json([self.entry(f, data) for f, data in sorted(files.items())])
        if file not in files:
            return self.answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
        entry = self.entry(file, files[file])
        headers = {"X-Repo-Commit": sha, "ETag": f'"{entry["oid"]}"', "Accept-Ranges": "bytes"}
        if "lfs" in entry:
            headers |= {"X-Linked-Etag": f'"{entry["lfs"]["oid"]}"', "X-Linked-Size": str(len(files[file]))}
        stuck = "half" in name and file.startswith("model-00002") and self.command == "GET"
        self.answer(200, headers, files[file][:100] if stuck else files[file], len(files[file]))
        while stuck:
            self.wfile.flush()
            time.sleep(60)

    @staticmethod
    def entry(file, data):
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry = {"type": "file", "path": file, "size": len(data), "oid": oid}
        if file.endswith(".safetensors"):
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return entry


def download(port, kind, name, revision, patient):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HUB_CACHE": str(OUT), "HF_HOME": str(OUT / ".home"),
                    "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    call = f"import huggingface_hub as h; h.snapshot_download({name!r}, repo_type={kind!r}, revision={revision!r}, max_workers=1)"
    child = subprocess.Popen([sys.executable, "-c", call], env=environment)
    if patient:
        assert child.wait() == 0
        return
    ended = lambda: len(list(OUT.glob("models--example--half-llama/snapshots/*/model-00001*"))) > 0
    for _ in range(600):
        if ended() and list(OUT.glob("models--example--half-llama/blobs/*.incomplete")):
            break
        time.sleep(0.05)
    child.kill()
    child.wait()


# Name, kind, revision: the snapshot that is found in the cache, or the error.
ASKED = [("example/tiny-llama", "model", None), ("example/tiny-llama", "model", "main"), ("example/tiny-llama", "model", "v1"),
         ("example/tiny-llama", "model", commit("main")), ("example/tiny-llama", "model", commit("v1")),
         ("example/tiny-llama", "model", "v9"), ("example/tiny-llama", "model", commit("nothing")),
         ("example/tiny-llama", "dataset", None), ("example/rows", "dataset", None), ("example/rows", "model", None),
         ("example/half-llama", "model", None), ("example/none", "model", None), ("tiny-llama", "model", None)]
HOMES = [{}, {"HF_HOME": "/a"}, {"HF_HOME": "~/a"}, {"HF_HUB_CACHE": "/b"}, {"HUGGINGFACE_HUB_CACHE": "/c"},
         {"XDG_CACHE_HOME": "/d"}, {"HF_HOME": "/a", "HF_HUB_CACHE": "/b"}, {"HF_HUB_CACHE": "/b", "HUGGINGFACE_HUB_CACHE": "/c"},
         {"HF_HOME": "/a", "HUGGINGFACE_HUB_CACHE": "/c"}, {"HF_HOME": "/a", "XDG_CACHE_HOME": "/d"}, {"HF_HUB_CACHE": "~/b"}]


def ask(call, variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "XDG_"))}
    text = subprocess.run([sys.executable, "-c", "import huggingface_hub as h\n" + call], env=environment | variables,
                          capture_output=True, text=True)
    return text.stdout.strip()


def answers():
    found = []
    for name, kind, revision in ASKED:
        call = (f"try: print(h.snapshot_download({name!r}, repo_type={kind!r}, revision={revision!r}, local_files_only=True))\n"
                "except Exception as e: print(type(e).__name__)")
        path = ask(call, {"HF_HUB_CACHE": str(OUT)})
        found.append({"name": name, "kind": kind, "revision": revision, "found": path.removeprefix(str(OUT) + "/")})
    homes = [{"environment": e, "cache": ask("from huggingface_hub import constants; print(constants.HF_HUB_CACHE)", {"HOME": "/home/me"} | e)} for e in HOMES]
    return {"asked": found, "caches": homes}


def main():
    import huggingface_hub
    shutil.rmtree(OUT, ignore_errors=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    for kind, name, revision in (("model", "example/tiny-llama", None), ("model", "example/tiny-llama", "v1"),
                                 ("dataset", "example/rows", None)):
        download(port, kind, name, revision, True)
    download(port, "model", "example/half-llama", None, False)
    (OUT.parent / "hub.json").write_text(json.dumps(answers(), indent=1) + "\n")
    for rest in (".home", ".locks"):
        shutil.rmtree(OUT / rest, ignore_errors=True)
    print(f"huggingface_hub {huggingface_hub.__version__}: {sum(1 for _ in OUT.rglob('*'))} names in {OUT}")


if __name__ == "__main__":
    main()
