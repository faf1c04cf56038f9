#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/token/prompts/: small tokenizers in the folders of an image model's text encoders, and the ids that transformers
gives for prompts of a fixed length (cases.json: [folder, length, text, ids up to the padding, padding id]).

    tools/make_prompt_fixtures.py          writes the fixtures
    tools/make_prompt_fixtures.py FOLDER   writes larger ones there, with SentencePiece's own charsmap; not committed

clip: vocab.json, merges.txt. clip_json: the tokenizer.json that transformers saves of it. t5: spiece.model. t5_json: the same
saved. t5_steps: a tokenizer.json with the steps that transformers 4 wrote. Needs transformers, tokenizers, sentencepiece.
"""
import io
import json
import pathlib
import sys

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import CLIPTokenizer, T5Tokenizer

HERE = pathlib.Path(__file__).parent.parent / "tests/token/prompts"
CORPUS = ("The quick brown fox jumps over the lazy dog. A photo of a cat: \"It's 5 o'clock, isn't it?\" Highly detailed, 8k.\n"
          "An astronaut riding a horse on mars, a painting of a house by the sea; they've gone, we'll see, I'm sure.\n"
          "Größe naïve façade Ünïcödé. Привет, мир! Как дела? γειά σου Κόσμε. שלום עולם مرحبا بالعالم "
          "नमस्ते दुनिया สวัสดีชาวโลก 你好，世界。こんにちは世界 カタカナ 안녕하세요 세계 😀😃👍🏽 🇩🇪\n")
# A charsmap of 3 KB instead of 240.
RULES = [("ﬁ", "fi"), ("①", "1"), ("\t", " "), ("\n", " "), ("\r", " "), ("\u00a0", " "), ("\u3000", " "), ("\ufffd", " "),
         ("\u200b", ""), ("\x01", ""), ("e\u0301", "é"), ("A\u030a", "Å"), ("½", "1⁄2"), ("Ⅷ", "VIII"), ("\u1112\u1161\u11ab", "한"),
         ("\u1100\u1161\u11a8", "각"), ("！", "!")]
PROMPTS = [
    "a photo of a cat", "A Photo Of A CAT, 4k, highly detailed!!!", "an astronaut riding a horse on mars",
    "a sign that says \"Hello World\"", "the dog's owner isn't here; they've gone, I'm sure we'll see 'em, he'd say",
    "DON'T SHOUT, IT'S 5 O'CLOCK", "", " ", "   ", "\n", "\t\n\r ", "a  b   c    d", "  leading", "trailing  ", "a\u00a0b\u2003c\u3000d",
    "line one\nline two\r\nline three", "1", "1234567890", "year 2024, 3.14159, 1,000,000 and 50%", "\u0661\u0662\u0663 \u00bd \u2167",
    "caf\u00e9 and cafe\u0301", "\u212b \u00c5 A\u030a", "\ufb01ne \ufb02ag \u2460", "Stra\u00dfe GROSS \u1e9e \u0130stanbul \u01c5",
    "\U0001f600", "\U0001f44d\U0001f3fd \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea", "a\U0001f600b \u2764\ufe0f c",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c \u30ab\u30bf\u30ab\u30ca", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0414\u041e\u041c", "\u03b3\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5 \u03a3\u039f\u03a6\u039f\u03a3",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0915\u094d\u0937\u093f", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "<|startoftext|>a<|endoftext|>b", "<|STARTOFTEXT|> a <|EndOfText|> b", "a<|endoftext|>", "<|startoftext|", "</w> a</w>b </w>",
    "<extra_id_0> a<extra_id_99>b <extra_id_2>", "<extra_id_100> <EXTRA_ID_0>", "<pad>a</s> b<unk> </s>c", "<|end|> x<|end|>y", "a </s> ",
    "\u2581a \u2581\u2581 b\u2581c", "x=1;//y\n/* z */ {a:[b]} (c) #d @e ~f `g` $h ^i &j *k _l +m |n", "https://example.com/a_b?c=d&e=%20f",
    "don\u2019t \u201cquote\u201d \u2014 dash \u2026", "'s 't 're 've 'm 'll 'd 'S 'RE", "a'sb 'tis o'", "\x00\x01\x7f\u0085\u180e\u2028\u200b\ufeff",
    "\U0010ffff \ue000 \U000134c1", "!!!???...,,,;;;:::", "(masterpiece:1.2), [bad:0.5], {x|y}", "a" * 300, "ab " * 120, "the quick brown fox " * 40,
    CORPUS, CORPUS.replace(" ", "")]


def special(text, normalized):
    return {"content": text, "lstrip": False, "normalized": normalized, "rstrip": False, "single_word": False, "special": True}


def write(folder, name, value):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")


def clip(out, size):
    """The letters of bytes, the same at the end of a word, pairs, and both special tokens last, as CLIP's vocabulary has it."""
    trained = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    trained.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    trained.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    trained.train_from_iterator([CORPUS] * 3, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), end_of_word_suffix="</w>", show_progress=False))
    merges = ["".join(m) if isinstance(m, str) else " ".join(m) for m in json.loads(trained.to_str())["model"]["merges"]]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = letters + [x + "</w>" for x in letters] + [m.replace(" ", "") for m in merges] + ["<|startoftext|>", "<|endoftext|>"]
    vocab = {w: i for i, w in enumerate(dict.fromkeys(words))}
    folder, end = out / "clip", len(vocab) - 1
    write(folder, "vocab.json", vocab)
    write(folder, "merges.txt", "#version: 0.2\n" + "\n".join(merges) + "\n")
    write(folder, "tokenizer_config.json", {
        "add_prefix_space": False, "added_tokens_decoder": {
            str(end - 1): special("<|startoftext|>", True), str(end): special("<|endoftext|>", False)},
        "bos_token": "<|startoftext|>", "clean_up_tokenization_spaces": True, "do_lower_case": True, "eos_token": "<|endoftext|>",
        "errors": "replace", "model_max_length": 77, "pad_token": "<|endoftext|>", "tokenizer_class": "CLIPTokenizer",
        "unk_token": "<|endoftext|>"})
    write(folder, "special_tokens_map.json", {
        "bos_token": special("<|startoftext|>", True), "eos_token": special("<|endoftext|>", False), "pad_token": "<|endoftext|>",
        "unk_token": special("<|endoftext|>", False)})
    CLIPTokenizer.from_pretrained(folder).save_pretrained(out / "clip_json")


def t5(out, size, rules):
    folder = out / "t5"
    folder.mkdir(parents=True, exist_ok=True)
    more = {}
    if rules:
        (folder / "rules.tsv").write_text("".join(
            " ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in RULES))
        more["normalization_rule_tsv"] = str(folder / "rules.tsv")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([x for x in CORPUS.split("\n") for _ in range(3)]), model_writer=model, model_type="unigram",
        vocab_size=size, hard_vocab_limit=False, minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **more)
    (folder / "rules.tsv").unlink(missing_ok=True)
    (folder / "spiece.model").write_bytes(model.getvalue())
    write(folder, "tokenizer_config.json", {
        "clean_up_tokenization_spaces": True, "eos_token": "</s>", "extra_ids": 100, "legacy": True, "model_max_length": 512,
        "pad_token": "<pad>", "tokenizer_class": "T5Tokenizer", "unk_token": "<unk>"})
    T5Tokenizer.from_pretrained(folder).save_pretrained(out / "t5_json")
    # The steps of transformers 4's converter.
    root = json.loads((out / "t5_json/tokenizer.json").read_text(encoding="utf-8"))
    root["normalizer"] = {"type": "Sequence", "normalizers": [
        root["normalizer"], {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]}
    root["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    write(out / "t5_steps", "tokenizer.json", root)
    write(out / "t5_steps", "tokenizer_config.json", json.loads((folder / "tokenizer_config.json").read_text()))


def cases_of(out, name, length, encode, pad):
    for text in PROMPTS:
        ids = encode(text, length)
        assert len(ids) == length
        while ids and ids[-1] == pad:
            ids.pop()
        yield [name, length, text, ids, pad]


def of_transformers(kind, folder):
    tokenizer = kind.from_pretrained(folder)
    return lambda text, n: list(tokenizer(text, padding="max_length", max_length=n, truncation=True).input_ids), tokenizer.pad_token_id


def of_library(file):
    tokenizer = Tokenizer.from_file(str(file))

    def encode(text, n):
        tokenizer.enable_truncation(n)
        tokenizer.enable_padding(length=n, pad_id=0, pad_token="<pad>")
        return list(tokenizer.encode(text).ids)
    return encode, 0


def main():
    large = len(sys.argv) > 1
    out = pathlib.Path(sys.argv[1]) if large else HERE
    clip(out, 900)
    t5(out, 330, not large)
    cases = []
    for name, kind, lengths in (("clip", CLIPTokenizer, (77, 9)), ("clip_json", CLIPTokenizer, (77,)),
                                ("t5", T5Tokenizer, (64, 5)), ("t5_json", T5Tokenizer, (64,))):
        encode, pad = of_transformers(kind, out / name)
        for length in lengths:
            cases += cases_of(out, name, length, encode, pad)
    cases += cases_of(out, "t5_steps", 64, *of_library(out / "t5_steps/tokenizer.json"))
    (out / "cases.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    print(len(PROMPTS), "texts,", len(cases), "cases")


if __name__ == "__main__":
    main()
