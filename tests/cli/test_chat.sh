#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A conversation: what a model says in a turn is what `generate` goes on with from the ids of the whole conversation.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# A folder with a tokenizer and a chat template, and a model that has learned to answer in it.
mkdir folder
for i in $(seq 1 300); do echo "line $i of a text, number $i"; done >text.txt
trainmark tokenizer train text.txt --vocab-size 320 --special '<end>' --special '<user>' --special '<model>' --out folder/tokenizer.json
template='{% for m in messages %}{% if m.role == \"user\" %}<user>{% else %}<model>{% endif %}{{ m.content }}{% if m.role != \"user\" %}<end>{% endif %}{% endfor %}{% if add_generation_prompt %}<model>{% endif %}'
printf '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "chat_template": "%s"}\n' "$template" >folder/tokenizer_config.json
for i in $(seq 1 200); do
    printf '{"messages": [{"role": "user", "content": "line %d"}, {"role": "assistant", "content": "number %d of a text"}]}\n' "$i" "$i"
done >rows.jsonl
trainmark run $tiny --training.steps 120 --training.stop_at_target false --optimizer.lr 0.01 --lr_scheduler.warmup_steps 5 \
    --data.source sft --data.path rows.jsonl --data.tokenizer folder --checkpoint.enable true --validation.enable false --out run
check "a model learns to answer" [ "$code" -eq 0 -o "$code" -eq 3 ]
options="--max-tokens 12 --temperature 0.9 --seed 5"

# talk WORD...: what it answers, from the lines of $lines.
talk() { printf '%s\n' "$@" >lines; "$TRAINMARK" chat run $options <lines >"$out" 2>"$err"; code=$?; cp "$out" said; }
# goes_on MESSAGES: the same by ids, without a conversation.
goes_on()
{
    echo "$1" >messages.json
    trainmark tokenizer chat folder --messages messages.json --add-generation-prompt --ids --json
    sed -n 's/.*"ids": \(\[[0-9, ]*\]\).*/\1/p' "$out" >ids.json
    trainmark generate run --prompt-ids ids.json $options --json
    sed -n 's/.*"tokens": \[\([0-9, ]*\)\].*/\1/p' "$out" | tr -d , >ids.txt
    trainmark tokenizer decode --special --tokenizer folder ids.txt
    printf "%s\n" "$(sed "s/<end>.*//" "$out")" >"$2"
}
message() { printf '{"role": "%s", "content": "%s"}' "$1" "$2"; }

talk "line 1"
check "a turn" [ "$code" -eq 0 -a -s said ]
goes_on "[$(message user 'line 1')]" wanted
check "it says what goes on from the ids of the conversation" [ -s said -a "$(cat said)" = "$(cat wanted)" ]
first=$(sed 's/\\/\\\\/g; s/"/\\"/g' said)
talk "line 1" "line 2"
goes_on "[$(message user 'line 1'), $(message assistant "$first"), $(message user 'line 2')]" second
check "a second turn reads the whole conversation" [ -s second -a "$(cat said)" = "$(cat wanted second)" ]
talk "line 2" "/new" "line 1"
check "/new begins another conversation" [ -s said -a "$(tail -n 1 said)" = "$(tail -n 1 wanted)" ]

for i in $(seq 1 300); do echo "line $i of a text"; done >text.txt
trainmark run $tiny --training.steps 3 --validation.enable false --data.path text.txt --checkpoint.enable true --out bytes
printf 'line 1\nline 1\n' >lines
"$TRAINMARK" chat bytes --max-tokens 8 --temperature 0 <lines >said 2>"$err"
check "without a template it is said" has "$err" "no chat template: every line is a prompt of its own"
printf 'line 1 of a text that is too long for so little room\n' >lines
"$TRAINMARK" chat bytes --context 52 <lines >"$out" 2>"$err"
code=$?
failed_with 4 "a conversation that is too long" "has 52 tokens, there is room for 52; /new begins another, --context N"

finish
