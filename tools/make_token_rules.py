#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/token/rules.json: one small vocabulary with every normalizer, pre-tokenizer, post-processor, decoder and option
of a BPE model, and the ids and decoded texts (not of
added tokens in small letters: the library decodes them as they are normalized) of the tokenizers library: [name, what replaces members of the tokenizer,
[[text, ids, ids without special ones, decoded], ...]]. Merges go over blanks, digits and signs, so that each cut shows in ids.

    tools/make_token_rules.py

Needs tokenizers.
"""
import json
import pathlib

from tokenizers import Tokenizer, models, trainers

OUT = pathlib.Path(__file__).parent.parent / "tests/token/rules.json"
TEXTS = ["ab 12ab", "  ab  12, 3ab ", "ab12ab-ab,,ab", "Ab  aB\tab\n ab", "12", "12 3 12", " ", "\t ab\u3000", "ab", "-,-", "12ab12",
         "é e\u0301 ﬁ ①12 Åé", "é", "\u00a0ab12", "a▁b▁▁ab", "İAB", "<s>ab</s>", "ab <x>12<x> ab", "<X>ab <x", "zab~12z ab~",
         "12ab 3é-ab,12 12-3ab Ab\u3000é  ab,"]
CORPUS = ["ab 12ab", " ab, 12-ab", "ab12ab-ab,,ab", "  ab  12, 3", "▁ab▁▁12▁3ab▁", "ab\tab\n ab", "é e\u0301ab é-", "fi12 fi",
          "Ab aB", "12ab12 3 12", "-,-ab,", "\u3000ab", "xabx 12x", " é", " é12", "ab~"] * 3


def base():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(vocab_size=260, special_tokens=["<unk>", "<s>", "</s>"], min_frequency=1, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return json.loads(tokenizer.to_str())


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(key, *members):
    return {"type": "Sequence", key: list(members)}


def added(id, content, **more):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False} | more


def variants():
    for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
        yield kind, {"normalizer": {"type": kind}}
    for left in (False, True):
        for right in (False, True):
            yield f"Strip {left} {right}", {"normalizer": {"type": "Strip", "strip_left": left, "strip_right": right}}
    yield "Prepend", {"normalizer": {"type": "Prepend", "prepend": "ab"}}
    yield "Replace", {"normalizer": {"type": "Replace", "pattern": {"String": "ab"}, "content": "12"}}
    yield "Replace by nothing", {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": ""}}
    yield "Replace Regex", {"normalizer": {"type": "Replace", "pattern": {"Regex": "[0-9]+|\\p{Lu}"}, "content": "-"}}
    yield "normalizers", {"normalizer": sequence(
        "normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKD"}, {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, {"type": "Prepend", "prepend": "▁"})}
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"Split {behavior} {invert}", {"pre_tokenizer": split({"Regex": "[0-9]|-| "}, behavior, invert)}
        yield f"Split {behavior} text", {"pre_tokenizer": split({"String": "ab"}, behavior)}
    yield "Split of signs", {"pre_tokenizer": split({"String": "b-a"}, "Isolated")}
    yield "Split \\u", {"pre_tokenizer": split({"Regex": "\\u0061|\\p{Nd}+"}, "Isolated")}
    for each in (False, True):
        yield f"Digits {each}", {"pre_tokenizer": {"type": "Digits", "individual_digits": each}}
    yield "WhitespaceSplit", {"pre_tokenizer": {"type": "WhitespaceSplit"}}
    for scheme in ("always", "first", "never"):
        for cuts in (False, True):
            meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cuts}
            yield f"Metaspace {scheme} {cuts}", {"pre_tokenizer": meta, "decoder": meta}
    yield "Metaspace -", {"pre_tokenizer": {"type": "Metaspace", "replacement": "-", "prepend_scheme": "always", "split": True}}
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    digits = {"type": "Digits", "individual_digits": True}
    yield "pre-tokenizers", {"pre_tokenizer": sequence("pretokenizers", digits, meta)}
    yield "pre-tokenizers, other order", {"pre_tokenizer": sequence("pretokenizers", meta, digits)}
    yield "three pre-tokenizers", {"pre_tokenizer": sequence(
        "pretokenizers", {"type": "WhitespaceSplit"}, split({"Regex": "[,-]"}, "MergedWithPrevious"), digits)}
    roberta = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": True}
    yield "RobertaProcessing", {"post_processor": roberta}
    yield "BertProcessing", {"post_processor": {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}}
    text, first, last = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}}, {
        "SpecialToken": {"id": "</s>", "type_id": 0}}
    special = {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2, 0], "tokens": ["</s>", "<unk>"]}}
    for name, single in (("before", [first, text]), ("after", [text, last]), ("around", [first, first, text, last])):
        template = {"type": "TemplateProcessing", "single": single, "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
                    "special_tokens": special}
        yield f"Template {name}", {"post_processor": template}
    yield "post-processors", {"post_processor": sequence(
        "processors", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, roberta)}
    yield "fuse_unk", {"model": {"fuse_unk": True}}
    yield "no unk", {"model": {"unk_token": None}}
    yield "ignore_merges", {"model": {"ignore_merges": True}, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    yield "Fuse", {"decoder": {"type": "Fuse"}}
    yield "decoders", {"decoder": sequence(
        "decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                               {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})}
    tokens = [added(0, "<unk>", special=True), added(1, "<s>", special=True), added(2, "</s>", special=True)]
    for name, more in (("plain", {}), ("single_word", {"single_word": True}), ("lstrip", {"lstrip": True}),
                       ("rstrip", {"rstrip": True}), ("normalized", {"normalized": True}), ("special", {"special": True})):
        yield f"added {name}", {"added_tokens": tokens + [added(84, "<x>", **more), added(85, "b~1", **more)]}
    yield "added, in small letters", {"added_tokens": tokens + [added(84, "<X>", normalized=True), added(85, "B~1")],
                                      "normalizer": {"type": "Lowercase"}}


def main():
    first = base()
    out = []
    for name, change in variants():
        whole = {**first, **change, "model": {**first["model"], **change.get("model", {})}}
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        cases = []
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            cases.append([text, ids, tokenizer.encode(text, add_special_tokens=False).ids,
                          None if "small" in name else tokenizer.decode(ids, skip_special_tokens=True)])
        out.append([name, change, cases])
    with open(OUT, "w") as f:
        f.write('{"tokenizer":' + json.dumps(first, ensure_ascii=False, separators=(",", ":")) + ',\n"variants":[\n')
        f.write(",\n".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in out))
        f.write("\n]}\n")


if __name__ == "__main__":
    main()
