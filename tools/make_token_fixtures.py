#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/token/fixtures/: a small tokenizer of each form, trained here, and what the reference libraries make of hard
texts with them (cases.json: [file, pattern, special, text in hex, ids, decoded text]).

    tools/make_token_fixtures.py

Needs tokenizers, tiktoken and sentencepiece.
"""
import base64
import io
import json
import pathlib
import random
import sys

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import compare_tokenizers as compare  # noqa: E402

OUT = pathlib.Path(__file__).parent.parent / "tests/token/fixtures"
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")
CORPUS = ("The quick brown fox jumps over the lazy dog. She said: \"It's 12345 o'clock, isn't it?\"\n"
          "def main(argc, argv):\n    for i in range(100):\n        print(i * 3.14)\n\n"
          "Größe naïve façade Ünïcödé. Привет, мир! Как дела? γειά σου Κόσμε. שלום עולם مرحبا بالعالم "
          "नमस्ते दुनिया สวัสดีชาวโลก 你好，世界。今天天气很好。こんにちは世界 カタカナ 안녕하세요 세계 😀😃👍🏽 🇩🇪 "
          "HTTPServer getElementById XMLHttpRequest /* comment */ // line\r\n\tif (x != NULL) { return -1; }\n")
TEXTS = ["", " ", "a", "Hello world", " Hello  world ", "don't DON'T we'Ve I'll 'tis 's", "   leading", "trailing   ",
         "a\nb\n\nc\r\n d\n \n  e", "tabs\t\tand\u00a0nbsp\u3000wide", "1 12 123 1234 12345 ١٢٣ ½Ⅷ", "x=1;//y\n/* z */",
         "camelCase HTTPServer ABCdef ÀÉî ДОМом ǅabc", "e\u0301 A\u030a \u0301x ﬁ ① İstanbul ẞ", "한글 각 한", "\uc058\u11a7 \u1112\u1161\u11ab x\u1df6\u0309 x\u0301\u0327",
         "你好，世界。", "こんにちは カタカナ", "नमस्ते क्षि", "สวัสดี", "שלום مرحبا", "😀👍🏽👩‍👩‍👧🇩🇪", "<s>a</s> <|end|>b<|end|>",
         "  <pad> x<pad>y  ", "\x00\x01\x7f\u0085\u180e\u2028\u200b\ufeff", "▁ ▁▁a", "\U0010ffff\ue000\U000134c1",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "thequickbrownfoxjumpsoverthelazydogprintrangereturncommentlineelementbrownquick" * 2, "日本abcd日x\u0416ж本", CORPUS]
RULES = [("ﬁ", "fi"), ("①", "1"), ("\t", " "), ("\n", " "), ("\r", " "), ("\u00a0", " "), ("\u3000", " "), ("\ufffd", " "),
         ("\u200b", ""), ("\x01", ""), ("e\u0301", "é"), ("A\u030a", "Å"), ("½", "1⁄2"), ("Ⅷ", "VIII"), ("\u1112\u1161\u11ab", "한"),
         ("\u1100\u1161\u11a8", "각"), ("！", "!")]
BROKEN = [b"\xff", b"a\x80b", b"\xe2\x82", b"\xe2\x82z\xf0\x9f\x98 \xed\xa0\x80", b"\xc0\xafabc\xf5\x80"]


def texts():
    rng = random.Random(3)
    for text in TEXTS:
        yield text.encode()
    yield from BROKEN
    for _ in range(6):
        yield compare.random_text(rng, 120).encode()


def byte_level(pattern, size, normalizer=None, ignore_merges=False, digits=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in pattern or []]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, last]) if splits else last
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([CORPUS] * 3, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, min_frequency=2))
    return tokenizer


def add_special(tokenizer):
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    tokenizer.add_tokens([AddedToken("<pad>", lstrip=True, rstrip=True), AddedToken("<|end|>", single_word=True, normalized=True)])
    start = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])


def sentencepiece_model(name, kind, size, **more):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([x for x in CORPUS.split("\n") for _ in range(3)]), model_writer=model, model_type=kind,
        vocab_size=size, hard_vocab_limit=False, minloglevel=2, **more)
    (OUT / name).write_bytes(model.getvalue())
    return OUT / name


def cases_of(file, encode, decode, special=False, pattern=None, broken=True):
    for text in texts():
        if not broken and text != text.decode("utf-8", "replace").encode():
            continue
        ids = encode(text)
        yield [file, pattern, special, text.hex(), ids, decode(ids) if decode else None]


def from_json(name, special=False):
    tokenizer = Tokenizer.from_file(str(OUT / name))
    return cases_of(name, lambda b: tokenizer.encode(b.decode("utf-8", "replace"), add_special_tokens=special).ids,
                    lambda ids: tokenizer.decode(ids, skip_special_tokens=True), special)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    cases = []
    for name, tokenizer in (
            ("gpt2.json", byte_level(None, 420)),
            ("llama3.json", byte_level([compare.LLAMA3], 420, ignore_merges=True)),
            ("qwen2.json", byte_level([compare.QWEN2], 420, normalizers.NFC())),
            ("o200k.json", byte_level([compare.O200K], 420)),
            ("deepseek.json", byte_level([r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK], 420))):
        add_special(tokenizer)
        tokenizer.save(str(OUT / name), pretty=False)
        cases += from_json(name, name == "llama3.json")
    # Words of CLIP end with </w>.
    clip = Tokenizer(models.BPE(unk_token="<|end|>", end_of_word_suffix="</w>"))
    clip.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    clip.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    clip.train_from_iterator([CORPUS] * 3, trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        end_of_word_suffix="</w>", show_progress=False))
    clip.decoder = decoders.ByteLevel()
    end = clip.token_to_id("<|end|>")
    clip.post_processor = processors.RobertaProcessing(("<|end|>", end), ("<|end|>", end))
    clip.save(str(OUT / "clip.json"), pretty=False)
    # Its own decoder leaves </w> to a wrapper in Python: ids only.
    cases += [c[:5] + [None] for c in from_json("clip.json", True)]
    # SentencePiece, and the tokenizer.json forms of its models.
    bpe = sentencepiece_model("llama2.model", "bpe", 560, byte_fallback=True, remove_extra_whitespaces=False,
                              normalization_rule_name="identity", character_coverage=0.995, split_digits=True)
    compare.llama2_json(OUT / "llama2.json", bpe)
    rules = OUT / "rules.tsv"  # a charsmap of 3 KB instead of 240
    rules.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in RULES))
    unigram = sentencepiece_model("t5.model", "unigram", 330, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                                  user_defined_symbols=["<|end|>"], normalization_rule_tsv=str(rules))
    rules.unlink()
    compare.unigram_json(OUT / "t5.json", unigram)
    cases += from_json("llama2.json", True)
    cases += from_json("t5.json", True)
    for name, special in (("llama2.model", 1), ("t5.model", 2)):
        sp = sentencepiece.SentencePieceProcessor(str(OUT / name))
        extra = dict(add_bos=True) if special == 1 else dict(add_eos=True)
        cases += cases_of(name, lambda b: sp.encode(b, **extra), lambda ids: sp.decode(ids), True)
    # Unknown characters: one token for each, or one for neighbours.
    for name, fuse in (("unknown.json", False), ("fused.json", True)):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.train_from_iterator([CORPUS[:150]] * 3, trainers.BpeTrainer(vocab_size=90, special_tokens=["<unk>"],
                                                                              show_progress=False))
        tokenizer.save(str(OUT / name), pretty=False)
        cases += from_json(name)
    name = sentencepiece_model("unknown.model", "bpe", 300, character_coverage=0.98,
                               normalization_rule_name="identity").name
    sp = sentencepiece.SentencePieceProcessor(str(OUT / name))
    cases += cases_of(name, sp.encode, None)
    # tiktoken and tekken: the ranks of the first.
    letters = {c: b for b, c in compare.byte_letters().items()}
    vocab = json.loads((OUT / "gpt2.json").read_text())["model"]["vocab"]
    ranks = {bytes(letters[c] for c in text): i for text, i in vocab.items()}
    (OUT / "ranks.tiktoken").write_text("".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in ranks.items()))
    for pattern, regex in (("gpt2", compare.GPT2), ("o200k", compare.O200K)):
        e = tiktoken.Encoding("x", pat_str=regex, mergeable_ranks=ranks, special_tokens={})
        cases += cases_of("ranks.tiktoken", lambda b: e.encode_ordinary(b.decode("utf-8", "replace")), e.decode,
                          pattern=pattern)
    tekken = (r"[^\r\n\p{L}\p{N}]?" + compare.U + "*" + compare.L + r"+|[^\r\n\p{L}\p{N}]?" + compare.U + "+" + compare.L +
              r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    (OUT / "tekken.json").write_text(json.dumps({
        "config": {"pattern": tekken, "num_vocab_tokens": len(ranks), "default_vocab_size": len(ranks) + 20,
                   "default_num_special_tokens": 20, "version": "v3"},
        "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for t, i in ranks.items()]}))
    e = tiktoken.Encoding("x", pat_str=tekken, mergeable_ranks=ranks, special_tokens={})
    cases += cases_of("tekken.json", lambda b: [i + 20 for i in e.encode_ordinary(b.decode("utf-8", "replace"))],
                      lambda ids: e.decode([i - 20 for i in ids]))
    (OUT / "cases.json").write_text("[\n" + ",\n".join(json.dumps(c, ensure_ascii=True, separators=(",", ":")) for c in cases) + "\n]\n")
    print(f"{len(cases)} cases, {sum(f.stat().st_size for f in OUT.iterdir())} bytes")


main()
