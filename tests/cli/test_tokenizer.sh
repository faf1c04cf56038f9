#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark tokenizer`: encode, decode, info, train; hostile tokenizer files give clear errors.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

fixtures=$root/tests/token/fixtures
printf 'Hello world, 12345!\n' >text
mkdir folder
cp "$fixtures/t5.json" folder/tokenizer.json
says 0 '^model +Unigram$' tokenizer info --tokenizer folder

"$TRAINMARK" tokenizer encode --tokenizer "$fixtures/gpt2.json" - >"$out" 2>"$err" <&-
code=$?
check "an input that is closed is empty" [ "$code $(cat "$out")" = "0 []" ]
says 4 "--pattern llama3" tokenizer encode --tokenizer "$fixtures/ranks.tiktoken" text
says 4 "no pattern is named 'x'" tokenizer encode --pattern x --tokenizer "$fixtures/ranks.tiktoken" text

# hostile NAME PATTERN CONTENT: a tokenizer file that must be refused, with a message that has PATTERN.
hostile()
{
    printf "$3" >bad.json # shellcheck disable=SC2059
    says 4 "bad.json.*$2|$2.*bad.json" tokenizer info --tokenizer bad.json
}

bpe='"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}'
hostile "an empty file" "is empty" ''
hostile "cut JSON" "line 1" '{"model":'
hostile "another JSON" "neither a tokenizer.json" '{"a":1}'
hostile "a cut protocol buffer" "not a SentencePiece model" '\n\020\n'
hostile "dropout" "dropout" '{"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}}'
hostile "an unknown key" "key 'magic' of model" '{"model":{"type":"BPE","magic":1,"vocab":{"a":0},"merges":[]}}'
hostile "a merge of three" "merges.0. is neither" '{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b c"]}}'
hostile "two tokens with one id" "both have id 0" '{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}'
hostile "a token twice" "duplicate" '{"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}}'
hostile "a negative id" "has id -1" '{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}'
hostile "a huge id" "has id 99999999999" '{"model":{"type":"BPE","vocab":{"a":99999999999},"merges":[]}}'
hostile "an id that is a text" "is not an integer" '{"model":{"type":"BPE","vocab":{"a":"x"},"merges":[]}}'
hostile "no tokens" "without tokens" '{"model":{"type":"BPE","vocab":{},"merges":[]}}'
hostile "Unigram without scores" "vocab.0. is not" '{"model":{"type":"Unigram","unk_id":0,"vocab":[["a"]]}}'
hostile "tekken without sizes" "config needs pattern" '{"config":{"pattern":"a"},"vocab":[]}'
hostile "a rank that is no number" "line 2: not 'base64 rank'" 'YQ== 0\nYg== x\n'
printf 'YQ== 0\n' >bad.tiktoken
says 4 "byte 0x00 is not a token" tokenizer info --pattern gpt2 --tokenizer bad.tiktoken

finish
