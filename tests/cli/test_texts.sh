#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the commands of texts print and write, word for word: data pack, inspect, verify, tokenize, preview, and the tokenizer's
# own, against tests/cli/expected/.
# shellcheck disable=SC1091,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
fixtures=$root/tests/token/fixtures
gpt2="--tokenizer $fixtures/gpt2.json"

mkdir docs
printf 'Question: one?\nAnswer: two.' >docs/a
printf 'Question: three?\nAnswer: four, five.' >docs/b
printf 'no answer here' >docs/c

# --- packs ------------------------------------------------------------------------------------------------------------------

say data pack docs --out set
say data pack docs --out set2 --json
say data pack docs --out rows.npy --format govreport --seq-len 16
say data pack docs --out rows2.npy --format govreport --seq-len 16 --json
say data pack docs --out answers.npy --format govreport --seq-len 16 --answer-after 'Answer: '
say data pack docs/a --out one --format megatron
check "packed again, it is the same" cmp -s set.bin set2.bin
for path in set set.idx set.bin rows.npy answers.npy docs docs/a; do say data inspect $path; done
say data inspect answers.npy --json
say data inspect set --json
as texts_packs.txt

printf '900150983cd24fb0d6963f7d28e17f72  abc\nd41d8cd98f00b204e9800998ecf8427e *empty\n' >list.md5
printf abc >abc
: >empty
say data verify list.md5
say data verify list.md5 --json
say data verify abc --expect 900150983cd24fb0d6963f7d28e17f72
say data verify abc --expect 900150983cd24fb0d6963f7d28e17f73 --json
say data verify docs
printf abd >abc
rm empty
say data verify list.md5
as texts_verified.txt

# --- fine-tuning ------------------------------------------------------------------------------------------------------------

cat >chat.jsonl <<'END'
{"messages": [{"role": "user", "content": "What is one?"}, {"role": "assistant", "content": "A number."}]}
{"messages": [{"role": "user", "content": "And two?"}, {"role": "assistant", "content": "Another one, of course."}]}
{"messages": [{"role": "user", "content": "Three?"}, {"role": "assistant", "content": "Yes."}]}
{"messages": [{"role": "user", "content": "Four?"}, {"role": "assistant", "content": "No."}]}
END
printf '{"q": "one", "a": "two"}\n{"q": "three", "a": "four"}\n' >pairs.jsonl
printf '{"text": "alone"}\n' >text.jsonl
say data preview chat.jsonl
say data preview chat.jsonl --first 3 --samples 9
say data preview chat.jsonl --first 4 -n 1 --json
say data preview chat.jsonl --first 5
say data preview chat.jsonl --train-on-input -n 1
say data preview chat.jsonl --seq-len 20 -n 1
say data preview chat.jsonl --format instruction -n 1
say data preview pairs.jsonl --format completion --column-map prompt=q,completion=a
say data preview pairs.jsonl --column-map prompt=q,completion=b
say data preview text.jsonl
say data preview text.jsonl --format text --tokenizer "$fixtures/gpt2.json" --json
for format in auto messages conversations instruction completion text preference none; do say data preview text.jsonl --format $format; done
as texts_previews.txt

# --- a data set of tokens -----------------------------------------------------------------------------------------------------

mkdir mixed
cp docs/a docs/b mixed
cp docs/a mixed/again
printf 'a\000b' >mixed/binary
: >mixed/empty
ln -s nowhere mixed/gone
seq 1 400 >mixed/numbers
say data tokenize mixed -o m $gpt2 --end 0
say data tokenize mixed -o n $gpt2 --end 0 --json
say data tokenize docs -o plain $gpt2 --end none --json --threads 2 --batch 7
say data tokenize docs -o special --tokenizer "$fixtures/llama2.model" --special --json
say data tokenize docs -o nospecial --tokenizer "$fixtures/llama2.model"
for end in 3 16777216 16777217 -1 3x '' x none; do say data tokenize docs/a -o end --end "$end" $gpt2; rm -f end.*; done
printf '{"text": "a b"}\n{"body": "c"}\n' >lines.jsonl
say data tokenize lines.jsonl -o lines $gpt2 --end 0
say data tokenize lines.jsonl -o raw $gpt2 --end 0 --input text
say data tokenize lines.jsonl -o body $gpt2 --end 0 --field body
as texts_tokens.txt

# --- tokenizers ----------------------------------------------------------------------------------------------------------------

printf 'Hello world, 12345!\n' >hello
say tokenizer encode $gpt2 hello
say tokenizer encode $gpt2 hello --json
say tokenizer encode --tokenizer "$fixtures/llama2.model" --special --json hello
say tokenizer encode --tokenizer "$fixtures/llama2.model" hello
timeout 60 "$TRAINMARK" tokenizer encode $gpt2 - <hello >>said
timeout 60 "$TRAINMARK" tokenizer encode $gpt2 <hello >>said
: >nothing
say tokenizer encode $gpt2 nothing
say tokenizer encode $gpt2 nothing --json
say tokenizer encode $gpt2 nowhere
say tokenizer encode $gpt2 docs
for ids in '[0, 1,2;3' '1 2	3' '[]' '' '7' '2147483647' '2147483648' '99999999999999999999999999' '1 x' '[-1]' '1.5' '[1]]'; do
    echo "$ids" >ids
    say tokenizer decode $gpt2 ids
done
echo '1 2 3 4' >ids
say tokenizer decode $gpt2 ids --json
say tokenizer decode --tokenizer "$fixtures/llama2.model" ids
say tokenizer decode --tokenizer "$fixtures/llama2.model" ids --special
as texts_ids.txt
say tokenizer train mixed -o learned.json --vocab-size 300
say tokenizer train mixed -o learned2.json --vocab-size 300 --json
check "learned again, it is the same" cmp -s learned.json learned2.json
say tokenizer train mixed -o special.json --vocab-size 270 --special '<a>' --special '<b>' --json
say tokenizer train mixed -o never.json --vocab-size 270 --special '<a>' --special '<b>' --special '<a>'
check_not "nothing is written" [ -e never.json ]
say tokenizer train lines.jsonl -o body.json --vocab-size 258 --field body --json
say tokenizer train mixed -o small.json --vocab-size 200
for name in learned special body; do say tokenizer info --tokenizer $name.json; done
say tokenizer encode --tokenizer learned.json hello
as texts_learned.txt
mkdir chat
cp "$fixtures/gpt2.json" chat/tokenizer.json
cat >chat/tokenizer_config.json <<'END'
{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": [{"name": "default", "template":
"{{ bos_token }}{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content|trim }}{% endgeneration %}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"},
{"name": "other", "template": "{{ greeting }} {{ messages|length }}"}]}
END
echo '[{"role": "user", "content": " hello "}, {"role": "assistant", "content": "so"}]' >talk.json
echo '{"messages": [{"role": "user", "content": "x"}], "greeting": "welcome"}' >object.json
say tokenizer chat chat --messages talk.json
say tokenizer chat chat --messages talk.json --json
say tokenizer chat chat --messages talk.json --ids
say tokenizer chat chat --messages talk.json --ids --json --add-generation-prompt
say tokenizer chat chat --messages object.json --template other
say tokenizer chat chat --messages object.json --template other --json
say tokenizer chat chat --messages hello
echo '{"messages": 3}' >object.json
say tokenizer chat chat --messages object.json
echo '[{"role": "user", "content": "x"}, {"role": 3}]' >object.json
say tokenizer chat chat --messages object.json
echo '[]' >object.json
say tokenizer chat chat --messages object.json
as texts_chats.txt

# How fast: all but the seconds.
seq 1 9000 >long
for threads in 1 3; do
    trainmark tokenizer speed $gpt2 long --threads $threads --rounds 4
    check "speed: four rounds" [ "$(sed 's/.*"seconds": \[\([^]]*\)\].*/\1/' "$out" | tr ',' '\n' | awk '$1 > 0' | wc -l)" -eq 4 ]
    sed 's/"seconds": \[[^]]*\]/"seconds": []/' "$out" >>said
done
trainmark tokenizer encode $gpt2 long
echo "$(tr ',' '\n' <"$out" | wc -l) ids" >>said
as texts_speed.txt

finish
