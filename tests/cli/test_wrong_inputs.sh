#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The table wrong_inputs.txt: command lines that are wrong, with the exit code and the words of the message. Nothing is written,
# nothing is on standard output, the message is one of a few lines.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

mkdir docs
echo "some text" >docs/a.txt
echo "some text" >text.txt
: >empty.yaml
head -c 300 /dev/zero | tr '\0' '\377' >binary.yaml
head -c 300 /dev/zero >zeros
mkdir mixed lines
cp docs/a.txt zeros mixed
printf 'GGUF\003\000\000\000' >short.gguf
printf 'GGUF\003\000\000\000\000\000\000\000\000\000\000\000\377\377\377\377\377\377\377\377' >huge.gguf
: >empty.gguf
printf '{"text": "some text"}\n' >lines/a.jsonl

# Rows for fine-tuning, line by line: NAME and what is in it.
while IFS="|" read -r name content; do printf "%b\n" "$content" >"$name"; done <<'END'
pairs.jsonl|{"prompt": "a", "chosen": "b", "rejected": "c"}\n{"prompt": "d", "chosen": "e", "rejected": "f"}
good.jsonl|{"prompt": "a", "completion": "b"}
long.jsonl|{"prompt": "a prompt of more than sixteen bytes", "completion": "b"}
talk.jsonl|{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
number.jsonl|{"prompt": "a", "completion": "b"}\n7
prose.jsonl|hello there
cut.jsonl|{"prompt": "a", "completion": "b"}\n{"prompt": "a", "comp
utf8.jsonl|{"prompt": "a", "completion": "b"}\n\n{"prompt": "a", "completion": "\0377"}
columns.jsonl|{"title": "a", "body": "b"}
missing.jsonl|{"prompt": "a", "completion": "b"}\n{"prompt": "a"}
type.jsonl|{"prompt": "a", "completion": 4}
null.jsonl|{"instruction": null, "output": "b"}
answer.jsonl|{"instruction": "a", "output": " "}
prompt.jsonl|{"prompt": "", "completion": "b"}
role.jsonl|{"messages": [{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}]}
from.jsonl|{"conversations": [{"from": "alice", "value": "a"}]}
silent.jsonl|{"messages": []}
talker.jsonl|{"messages": "hello"}
nobody.jsonl|{"messages": [{"content": "a"}]}
nothing.jsonl|{"messages": [{"role": "user"}]}
parts.jsonl|{"messages": [{"role": "user", "content": ["a"]}]}
mute.jsonl|{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]}
words.jsonl|{"messages": ["a", "b"]}
turns.jsonl|{"data": ["a", ""]}
twice.jsonl|{"prompt": "a", "prompt": "b"}
pretty.json|{\n  "prompt": "a"\n}
array.json|[{"prompt": "a", "completion": "b"},\n {"prompt": "a"
nested.json|[{"prompt": "a", "completion": "b"}, ["a", "b"]]
blank.jsonl|{"text": ""}\n{"text": "   "}
broken.parquet|PAR1 and nothing else PAR1
packed.jsonl.gz|no gzip
tag.jinja|{% include "x" %}
open.jinja|{% for m in messages %}
no.jinja|{{ raise_exception("no robots") }}
upper.jinja|{% for m in messages %}{{ m.content.upper() }}{{ messages|length }}{% endfor %}
member.jinja|{{ nobody.name }}
model.json|{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}
END
printf '{"num_layers": 2,\n' >cut.json
mkdir model
cp model.json model/tokenizer.json

# Reports of checks, thresholds, lists of hosts, kept logs: NAME and what is in it.
mkdir checks damaged_checks
while IFS="|" read -r name content; do printf "%b" "$content" >"$name"; done <<'END'
limits.json|{"MBS=1,GBS=1,PRECISION=x": {"gemm.gflops_per_sec": {"kind": "most", "value": 1}}}
nokind.json|{"MBS=1,GBS=1,PRECISION=x": {"gemm.gflops_per_sec": {"value": 1}}}
nocell.json|{}
nogate.json|{"MBS=1,GBS=1,PRECISION=x": {}}
gate.json|{"MBS=1,GBS=1,PRECISION=x": {"gemm.gflops_per_sec": 3}}
member.json|{"MBS=1,GBS=1,PRECISION=x": {"gemm.gflops_per_sec": {"kind": "min", "value": 1, "unit": "s"}}}
value.json|{"MBS=1,GBS=1,PRECISION=x": {"gemm.gflops_per_sec": {"kind": "min", "value": "1"}}}
cell.json|{"MBS=1": {"gemm.gflops_per_sec": {"kind": "min", "value": 1}}}
metric.json|{"MBS=1,GBS=1,PRECISION=x": {"gemm.gflops": {"kind": "min", "value": 1}}}
list.json|[1]
END

# An adapter, and what can be wrong with one.
adapt="$tiny --training.steps 1 --checkpoint.enable true --data.source mock --model.vocab_size 64 --debug.seed 3"
# shellcheck disable=SC2086
"$TRAINMARK" run $adapt --out full >/dev/null 2>&1
# shellcheck disable=SC2086
"$TRAINMARK" run $adapt --lora.rank 2 --out lora >/dev/null 2>&1
"$TRAINMARK" export full -o base >/dev/null 2>&1
"$TRAINMARK" export lora -o adapter >/dev/null 2>&1
# adapter NAME SED: a copy with another configuration.
adapter()
{
    cp -r adapter "$1"
    sed "$2" adapter/adapter_config.json >"$1/adapter_config.json"
}
adapter ranks 's/{/{"rank_pattern": {"q_proj": 4},/'
adapter unread 's/{/{"rank_pattern": {"q(proj": 4},/'
adapter blocks 's/{/{"layers_to_transform": [1],/'
adapter more 's/"q_proj"/"q_proj", "lm_head"/'
adapter biased 's/"bias": "none"/"bias": "all"/'
adapter ia3 's/"LORA"/"IA3"/'
adapter unranked 's/"r":/"revision":/'
adapter minus 's/"r": *[0-9]*/"r": -1/'
adapter prose 's/.*/hello/'
adapter saved 's/{/{"modules_to_save": ["lm_head"],/'
adapter weightless ''
rm weightless/adapter_model.safetensors
adapter pickled ''
mv pickled/adapter_model.safetensors pickled/adapter_model.bin
adapter damaged ''
head -c 100 adapter/adapter_model.safetensors >damaged/adapter_model.safetensors
before=$(ls)

# wrong CODE ARGUMENTS WORDS...: one line of the table.
wrong()
{
    wanted=$1
    line=$2
    shift 2
    eval "trainmark $line" # quotes in the table are a shell's
    name="trainmark $line"
    problem=
    [ "$code" -eq "$wanted" ] || problem="exit code $code, wanted $wanted"
    [ ! -s "$out" ] || problem=${problem:-"standard output is not empty"}
    [ "$(wc -l <"$err")" -le 6 ] || problem=${problem:-"more than 6 lines on standard error"}
    for words; do grep -qF -e "$words" "$err" || problem=${problem:-"standard error lacks: $words"}; done
    [ "$(ls)" = "$before" ] || problem=${problem:-"something was written: $(ls | tr '\n' ' ')"}
    grep -qE '\(null\)|%[sdlz]| [,;]|;;' "$err" && problem=${problem:-"the message has leftovers of a format"}
    if [ -n "$problem" ]; then fail "$name" "$problem"; else pass "$name"; fi
}

sed '/^#/d; /^ *$/d' "$here/wrong_inputs.txt" >.table
while IFS= read -r row <&3; do
    wanted=${row%% | *}
    rest=${row#* | }
    line=${rest%% | *}
    set --
    while [ "$rest" != "${rest#* | }" ]; do
        rest=${rest#* | }
        set -- "$@" "${rest%% | *}"
    done
    wrong "$wanted" "$line" "$@"
done 3<.table

check "the table has 100 wrong inputs at least" [ "$(wc -l <.table)" -ge 100 ]

finish
