#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark tokenizer`: encode, decode, info, train; hostile tokenizer files give clear errors.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

fixtures=$root/tests/token/fixtures
printf 'Hello world, 12345!\n' >text
mkdir folder
cp "$fixtures/t5.json" folder/tokenizer.json
trainmark tokenizer info --tokenizer folder
check "a folder" has "$out" '^model +Unigram$'

"$TRAINMARK" tokenizer encode --tokenizer "$fixtures/gpt2.json" - >"$out" 2>"$err" <&-
code=$?
check "an input that is closed is empty" [ "$code $(cat "$out")" = "0 []" ]
trainmark tokenizer encode --tokenizer "$fixtures/ranks.tiktoken" text
failed_with 4 "a tiktoken file of unknown size" "--pattern llama3"
trainmark tokenizer encode --pattern x --tokenizer "$fixtures/ranks.tiktoken" text
failed_with 4 "an unknown pattern" "no pattern is named 'x'"

# hostile NAME PATTERN CONTENT: a tokenizer file that must be refused, with a message that has PATTERN.
hostile()
{
    printf "$3" >bad.json # shellcheck disable=SC2059
    trainmark tokenizer info --tokenizer bad.json
    failed_with 4 "$1" "bad.json.*$2|$2.*bad.json"
}

bpe='"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}'
hostile "an empty file" "is empty" ''
hostile "cut JSON" "line 1" '{"model":'
hostile "another JSON" "neither a tokenizer.json" '{"a":1}'
hostile "no protocol buffer" "not a SentencePiece model" 'hello, this is prose'
hostile "a cut protocol buffer" "not a SentencePiece model" '\n\020\n'
hostile "WordPiece" "WordPiece. is not supported" '{"model":{"type":"WordPiece","vocab":{"a":0}}}'
hostile "dropout" "dropout" '{"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}}'
hostile "an unknown key" "key 'magic' of model" '{"model":{"type":"BPE","magic":1,"vocab":{"a":0},"merges":[]}}'
hostile "a merge of what is not there" "merges.0.*the second is not in the vocabulary" '{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}'
hostile "a merge of three" "merges.0. is neither" '{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b c"]}}'
hostile "two tokens with one id" "both have id 0" '{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}'
hostile "a token twice" "duplicate" '{"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}}'
hostile "a negative id" "has id -1" '{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}'
hostile "a huge id" "has id 99999999999" '{"model":{"type":"BPE","vocab":{"a":99999999999},"merges":[]}}'
hostile "an id that is a text" "is not an integer" '{"model":{"type":"BPE","vocab":{"a":"x"},"merges":[]}}'
hostile "no tokens" "without tokens" '{"model":{"type":"BPE","vocab":{},"merges":[]}}'
hostile "an unknown normalizer" "normalizer 'BertNormalizer' is not supported" "{\"normalizer\":{\"type\":\"BertNormalizer\"},$bpe}"
hostile "an unknown pre_tokenizer" "pre_tokenizer 'Whitespace' is not supported" "{\"pre_tokenizer\":{\"type\":\"Whitespace\"},$bpe}"
hostile "an unknown post_processor" "post_processor 'X' is not supported" "{\"post_processor\":{\"type\":\"X\"},$bpe}"
hostile "an unknown decoder" "decoder 'WordPiece' is not supported" "{\"decoder\":{\"type\":\"WordPiece\"},$bpe}"
hostile "word characters in a pattern" "'.w' in the regular expression" "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\\\\\w+\"},\"behavior\":\"Isolated\",\"invert\":false},$bpe}"
hostile "a damaged charsmap" "precompiled_charsmap" "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"},$bpe}"
hostile "an added token with another id" "has id 0 in the vocabulary and 7" "{\"added_tokens\":[{\"id\":7,\"content\":\"a\"}],$bpe}"
hostile "Unigram without scores" "vocab.0. is not" '{"model":{"type":"Unigram","unk_id":0,"vocab":[["a"]]}}'
hostile "Unigram with a wrong unk_id" "unk_id 5 is not in the vocabulary" '{"model":{"type":"Unigram","unk_id":5,"vocab":[["a",0.0]]}}'
hostile "tekken without sizes" "config needs pattern" '{"config":{"pattern":"a"},"vocab":[]}'
hostile "a rank that is no number" "line 2: not 'base64 rank'" 'YQ== 0\nYg== x\n'
printf 'YQ== 0\n' >bad.tiktoken
trainmark tokenizer info --pattern gpt2 --tokenizer bad.tiktoken
failed_with 4 "bytes that are missing" "byte 0x00 is not a token"

# --- learning one
printf '{"text": "a b a b"}\n{"text": "a b c"}\n' >lines.jsonl
trainmark tokenizer train text lines.jsonl -o learned.json --vocab_size 300 --field text --special '<end>' --json
check "a tokenizer is learned" has "$out" '"vocab": [0-9]+'
trainmark tokenizer info --tokenizer learned.json
check "and is one" has "$out" 'byte-level BPE'
trainmark tokenizer train lines.jsonl --input text -o learned.json --vocab_size 300
failed_with 4 "JSON lines given as text" "trainmark tokenizer train lines.jsonl --input jsonl --field text --vocab_size N"

finish
