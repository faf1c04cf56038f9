#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The table wrong_inputs.txt: command lines that are wrong, with the exit code and the words of the message. Nothing is written,
# nothing is on standard output, the message is one of a few lines.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

mkdir docs checks model
echo "some text" >docs/a.txt
echo "some text" >text.txt
: >empty.yaml
head -c 300 /dev/zero | tr '\0' '\377' >binary.yaml
head -c 300 /dev/zero >zeros
printf 'GGUF\003\000\000\000' >short.gguf
printf 'GGUF\003\000\000\000\000\000\000\000\000\000\000\000\377\377\377\377\377\377\377\377' >huge.gguf
: >empty.gguf

# Line by line: NAME and what is in it.
while IFS="|" read -r name content; do printf "%b\n" "$content" >"$name"; done <<'END'
nobodys.yaml|modules: {pre_trainer: {framework: torchtitan}}
good.jsonl|{"prompt": "a", "completion": "b"}
long.jsonl|{"prompt": "a prompt of more than sixteen bytes", "completion": "b"}
talk.jsonl|{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
columns.jsonl|{"title": "a", "body": "b"}
silent.jsonl|{"messages": []}
broken.parquet|PAR1 and nothing else PAR1
tag.jinja|{% include "x" %}
cut.json|{"num_layers": 2,
model/tokenizer.json|{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}
limits.json|{"MBS=1,GBS=1,PRECISION=x": {"gemm.gflops_per_sec": {"kind": "most", "value": 1}}}
END

# An adapter, and what can be wrong with one.
adapt="$tiny --training.steps 1 --checkpoint.enable true --data.source mock --model.vocab_size 64 --debug.seed 3"
"$TRAINMARK" run $adapt --out full >/dev/null 2>&1
"$TRAINMARK" run $adapt --lora.rank 2 --out lora >/dev/null 2>&1
"$TRAINMARK" export full -o base >/dev/null 2>&1
"$TRAINMARK" export lora -o adapter >/dev/null 2>&1
cp -r adapter prose
echo hello >prose/adapter_config.json
cp -r adapter damaged
head -c 100 adapter/adapter_model.safetensors >damaged/adapter_model.safetensors
before=$(ls)

sed '/^#/d; /^ *$/d' "$here/wrong_inputs.txt" >.table
while IFS= read -r row <&3; do
    rest="${row#* | } | "
    line=${rest%% | *}
    rest=${rest#* | }
    eval "trainmark $line" # quotes in the table are a shell's
    said=$(cat "$err")
    problem=
    [ "$code" = "${row%% | *}" ] || problem="exit code $code"
    [ ! -s "$out" ] || problem=${problem:-"standard output is not empty"}
    [ "$(wc -l <"$err")" -le 6 ] || problem=${problem:-"more than 6 lines on standard error"}
    [ "$(ls)" = "$before" ] || problem=${problem:-"something was written: $(ls | tr '\n' ' ')"}
    case $said in
    *"(null)"* | *%[sdlz]* | *" ,"* | *" ;"* | *";;"*) problem=${problem:-"the message has leftovers of a format"} ;;
    esac
    while [ "$rest" ]; do
        case $said in *"${rest%% | *}"*) ;; *) problem=${problem:-"standard error lacks: ${rest%% | *}"} ;; esac
        rest=${rest#* | }
    done
    if [ -n "$problem" ]; then fail "trainmark $line" "$problem"; else pass "trainmark $line"; fi
done 3<.table

finish
