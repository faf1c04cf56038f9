#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the commands of texts print and write: data pack, inspect, verify, tokenize, preview, and the tokenizer's own. Figures
# follow from the files; as text and as JSON they are the same. Tokens themselves: tests/token.
# shellcheck disable=SC1091,SC2005,SC2016,SC2046,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
fixtures=$root/tests/token/fixtures
gpt2="--tokenizer $fixtures/gpt2.json"

# Of 27, 36 and 14 bytes: with an end each 80 tokens, the shortest 15, the longest 37.
mkdir docs
printf 'Question: one?\nAnswer: two.' >docs/a
printf 'Question: three?\nAnswer: four, five.' >docs/b
printf 'no answer here' >docs/c

# --- packs ------------------------------------------------------------------------------------------------------------------

table <<'END'
0 | data pack docs --out set | set: 3 documents
0 | data pack docs --out set2 --json | "out": "set2" | "format": "megatron" | "documents": 3
0 | data pack docs --out rows.npy --format govreport --seq-len 16 | rows.npy: 5 rows
0 | data pack docs --out answers.npy --format govreport --seq-len 16 --answer-after 'Answer: ' | answers.npy: 5 rows
0 | data inspect set | megatron | uint16 | 80 | 15 | 37 | 10 | 256
END
check "packed again, it is the same" cmp -s set.bin set2.bin
# inspected FORMAT TYPE ROWS DOCUMENTS TOKENS SHORTEST LONGEST COUNTED PATH
inspected()
{
    trainmark data inspect "$9" --json
    check "$9: what it holds" [ "$(members format) $(members type) $(members rows | sed 's/^\[ //') $(members documents) $(members tokens) \
$(members length_min) $(members length_max) $(members counted)" = "\"$1\" \"$2\" $3 $4 $5 $6 $7 $8" ]
    check "$9: its ids" [ "$(members id_min) $(members id_max)" = "10 256" ]
    check "$9: its first ids are bytes" [ "$(members first)" = "\"$(echo $(od -An -tu1 -N12 docs/a))\"" ]
}
for path in set set.idx set.bin; do inspected megatron uint16 3 3 80 15 37 null $path; done
inspected govreport int32 5 null 80 16 16 1 rows.npy
inspected govreport int32 5 null 80 16 16 0.1875 answers.npy # 'two.', its end, 10 of 'four, five.': 15 of 80
inspected text uint8 3 3 80 15 37 null docs

# --- fine-tuning ------------------------------------------------------------------------------------------------------------

cat >chat.jsonl <<'END'
{"messages": [{"role": "user", "content": "What is one?"}, {"role": "assistant", "content": "A number."}]}
{"messages": [{"role": "user", "content": "Four?"}, {"role": "assistant", "content": "No."}]}
END
printf '{"q": "one", "a": "two"}\n{"q": "three", "a": "four"}\n' >pairs.jsonl
printf '{"text": "alone"}\n' >text.jsonl
table <<'END'
# A byte is a token; the prompt is no target; the end is one.
0 | data preview pairs.jsonl --format completion --column-map prompt=q,completion=a | 'pairs.jsonl', line 1: 7 tokens, 4 of them targets | [[one]]two<|end|> | line 2: 10 tokens, 5 of them targets | [[three]]four<|end|>
4 | data preview pairs.jsonl --column-map prompt=q,completion=b | the columns are q, a; data.format auto wants messages; or conversations; or data; or instruction and output; or q and b
0 | data preview text.jsonl | 'text.jsonl', line 1: 6 tokens, 5 of them targets | alone<|end|>
END
prints '{"samples": [{"place": "'"'text.jsonl'"', line 1", "tokens": 7, "targets": 6, "truncated": 0, "parts": [{"target": true, "text": "<s>alone</s>"}], "ids": [420, 64, 75, 78, 77, 68, 421], "mask": [1, 1, 1, 1, 1, 1, 1]}], "format": "text"}' \
    data preview text.jsonl --format text $gpt2 --json

# --- a data set of tokens -----------------------------------------------------------------------------------------------------

mkdir mixed
cp docs/a docs/b mixed
cp docs/a mixed/again
printf 'a\000b' >mixed/binary
: >mixed/empty
ln -s nowhere mixed/gone
seq 1 400 >mixed/numbers
printf '{"text": "a b"}\n{"body": "c"}\n' >lines.jsonl
# tokenized ENDS WORD...: as many tokens as the tokenizer makes of the files, and so many ends.
tokenized()
{
    tokenized_ends=$1 tokenized_sum=0
    shift
    trainmark "$@" --json
    cp "$out" counts
    for path in docs/a docs/b ${files-docs/c}; do
        trainmark tokenizer encode --json ${tokenizer-$gpt2} $path
        tokenized_sum=$((tokenized_sum + $(sed 's/.*"count": \([0-9]*\),.*/\1/' "$out")))
    done
    cp counts "$out"
    check "$*" [ "$(members tokens) $(members files) $(members documents) $(members type)" = "$((tokenized_sum + tokenized_ends)) 3 3 \"uint16\"" ]
}
files=mixed/numbers tokenized 3 data tokenize mixed -o n $gpt2 --end 0
check "what was left out" [ "$(members binary) $(members duplicate) $(members unreadable) $(members empty) $(members resumed_tokens)" = "1 1 1 1 0" ]
check "bytes of what was not" [ "$(members bytes)" -eq "$(cat docs/a docs/b mixed/numbers | wc -c)" ]
tokens=$(sed 's/\([0-9]\)\([0-9]\{3\}\)$/\1,\2/' <<END
$(members tokens)
END
)
trainmark data tokenize mixed -o m $gpt2 --end 0
check "as text: the same" [ "$(cat "$out")" = "m: 3 documents, $tokens tokens (uint16) of 3 files
left out: 1 binary, 1 duplicate, 1 unreadable, 1 empty" ]
check "and warnings" [ "$(cat "$err")" = "trainmark: warning: 'mixed/gone' cannot be read (No such file or directory): left out
trainmark: warning: 'mixed/again' is the same as 'mixed/a': left out
trainmark: warning: 'mixed/binary' is a binary file: left out" ]
check "and files" cmp -s m.bin n.bin
trainmark data tokenize mixed -o t $gpt2 --end 0 --threads 3 --batch 100
check "and of three threads and small batches" cmp -s t.bin n.bin
gzip -c mixed/numbers | head -c 60 >cut.gz
table <<'END'
4 | data tokenize docs/a -o e --end 16777216 $gpt2 | --end is 16777216, but ' | gpt2.json' has ids below 424
4 | data tokenize cut.gz -o e $gpt2 --end 0 | 'cut.gz' | truncated
4 | data tokenize lines.jsonl -o e $gpt2 --end 0 --field body | 'lines.jsonl', line 1: no text in field 'body'; name another field with --field
END

# --- tokenizers ----------------------------------------------------------------------------------------------------------------

printf 'Hello world, 12345!\n' >hello
# The fixtures' words: gpt2.json has 12 and 34, SentencePiece puts a blank in front and spells bytes.
ids="[39, 68, 75, 75, 78, 220, 86, 78, 81, 75, 67, 11, 220, 328, 331, 20, 0, 198]"
prints "$ids" tokenizer encode $gpt2 hello
prints '{"bytes": 20, "count": 18, "ids": '"$ids"', "tokens": ["H", "e", "l", "l", "o", "Ġ", "w", "o", "r", "l", "d", ",", "Ġ", "12", "34", "5", "!", "Ċ"]}' \
    tokenizer encode $gpt2 hello --json
for words in "-" ""; do check "of standard input: '$words'" [ "$(timeout "$seconds" "$TRAINMARK" tokenizer encode $gpt2 $words <hello)" = "$ids" ]; done
# decoded TEXT IDS WORD...
decoded()
{
    echo "$2" >ids
    decoded_text=$1
    shift 2
    prints "$decoded_text" tokenizer decode "$@" ids
}
decoded '!"#$' '[0, 1,2;3' $gpt2
decoded '{"text": "\"#$%"}' '1 2 3 4' $gpt2 --json
for row in '2147483648:id 2147483648 at byte 0 is too large' '99999999999999999999999999:id 99999999999999999999 at byte 0 is too large' \
    "1 x:the ids have 'x' at byte 2; wanted numbers: .1, 2, 3." "[-1]:the ids have '-' at byte 1; wanted" "1.5:the ids have '.' at byte 1"; do
    echo "${row%%:*}" >ids
    says 4 "${row#*:}" tokenizer decode $gpt2 ids
done

# learned VOCABULARY ADDED FILE: what a tokenizer that was learned says of itself; 256 bytes, merges, added tokens.
learned()
{
    trainmark tokenizer info --tokenizer "$3"
    check "$3: $1 tokens" [ "$(sed -n 's/^\(format\|model\|pattern\|vocab\|merges\|added\)  *//p' "$out" | tr '\n' ' ')" = \
        "tokenizer.json byte-level BPE llama3 $1 $(($1 - 256 - $2)) $2 " ]
}
prints "learned.json: 300 tokens from 818 words (412 different) of 3 files" tokenizer train mixed -o learned.json --vocab-size 300
learned 300 1 learned.json
check "with an end" has "$out" '^eos  +299  <\|endoftext\|>  \(name\)$'
trainmark tokenizer encode --tokenizer learned.json hello
tr -d '\n' <"$out" >ids
check "and it decodes what it encodes" [ "$("$TRAINMARK" tokenizer decode --tokenizer learned.json ids)" = "$(cat hello)" ]
table <<'END'
4 | tokenizer encode $gpt2 docs | cannot read 'docs': Is a directory
2 | tokenizer train mixed -o never.json --vocab-size 270 --special '<a>' --special '<b>' --special '<a>' | --special '<a>' is given twice
4 | tokenizer train lines.jsonl -o never.json --vocab-size 258 --field body --json | 'lines.jsonl', line 1: no text in field 'body'
END
check_not "nothing is written" [ -e never.json ]
trainmark tokenizer info --json $gpt2
check "256 bytes, merges and added tokens" [ "$(members vocab)" -eq $((256 + $(members merges) + $(members added))) ]
check "what is a beginning, an end, a filler" [ "$(members bos) $(members eos) $(members pad) $(members unk)" = "420 421 422 -1" ]

# --- files of tokenizers that are none -----------------------------------------------------------------------------------------

says 0 '^model +Unigram$' tokenizer info --tokenizer "$fixtures/t5.json"
"$TRAINMARK" tokenizer encode $gpt2 - >"$out" 2>"$err" <&-
check "an input that is closed is empty" [ "$? $(cat "$out")" = "0 []" ]
says 4 "--pattern llama3" tokenizer encode --tokenizer "$fixtures/ranks.tiktoken" hello
says 4 "no pattern is named 'x'" tokenizer encode --pattern x --tokenizer "$fixtures/ranks.tiktoken" hello

# hostile WORDS CONTENT: a tokenizer file that must be refused, with a message that has these words.
hostile()
{
    printf "$2" >bad.json # shellcheck disable=SC2059
    says 4 "bad.json.*$1|$1.*bad.json" tokenizer info --tokenizer bad.json
}
hostile "is empty" ''
hostile "line 1" '{"model":'
hostile "neither a tokenizer.json" '{"a":1}'
hostile "not a SentencePiece model" '\n\020\n'
hostile "merges.0. is neither" '{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b c"]}}'
hostile "both have id 0" '{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}'
hostile "duplicate" '{"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}}'
hostile "has id -1" '{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}'
hostile "has id 99999999999" '{"model":{"type":"BPE","vocab":{"a":99999999999},"merges":[]}}'
hostile "is not an integer" '{"model":{"type":"BPE","vocab":{"a":"x"},"merges":[]}}'
hostile "without tokens" '{"model":{"type":"BPE","vocab":{},"merges":[]}}'
hostile "vocab.0. is not" '{"model":{"type":"Unigram","unk_id":0,"vocab":[["a"]]}}'
hostile "config needs pattern" '{"config":{"pattern":"a"},"vocab":[]}'
hostile "line 2: not 'base64 rank'" 'YQ== 0\nYg== x\n'
printf 'YQ== 0\n' >bad.tiktoken
says 4 "byte 0x00 is not a token" tokenizer info --pattern gpt2 --tokenizer bad.tiktoken

# --- chats ----------------------------------------------------------------------------------------------------------------------

mkdir chat
cp "$fixtures/gpt2.json" chat/tokenizer.json
cat >chat/tokenizer_config.json <<'END'
{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": [{"name": "default", "template":
"{{ bos_token }}{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content|trim }}{% endgeneration %}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"},
{"name": "other", "template": "{{ greeting }} {{ messages|length }}"}]}
END
echo '[{"role": "user", "content": " hello "}, {"role": "assistant", "content": "so"}]' >talk.json
echo '{"messages": [{"role": "user", "content": "x"}], "greeting": "welcome"}' >object.json
echo '[{"role": "user", "content": "x"}, {"role": 3}]' >role.json
text='<s>user: hello</s>
assistant: so</s>'
prints "$text" tokenizer chat chat --messages talk.json
prints '{"text": "<s>user: hello</s>\nassistant: so</s>\n", "generated": [[9, 14], [30, 32]]}' tokenizer chat chat --messages talk.json --json
prints '{"text": "welcome 1", "generated": []}' tokenizer chat chat --messages object.json --template other --json
table <<'END'
4 | tokenizer chat chat --messages role.json | 'role.json': message 2 has no 'role'
END

finish
