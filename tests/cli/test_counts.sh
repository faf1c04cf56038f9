#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tokens, target tokens and rates mean one thing each, whatever the data: every figure of the step lines, metrics.jsonl,
# result.json and perf.csv is computed again from counts.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

for i in $(seq 1 120); do printf '{"prompt": "%d and %d?", "completion": "it is %d."}\n' "$i" "$i" $((i * i)); done >rows.jsonl
for i in $(seq 1 120); do printf '{"prompt": "%d?", "chosen": "it is %d.", "rejected": "no"}\n' "$i" $((i * i)); done >pairs.jsonl
for i in $(seq 1 900); do echo "line $i of a text that is not long"; done >text.txt
trainmark data pack text.txt --out set --format megatron
llama="micro-llama --training.seq_len 32 --training.threads 1"
flux="tiny-flux --training.threads 1"

# first FILE KEY, of nested members too: the first value.
member() { sed -n "s/^ *\"$2\": \(.*[^,]\),*$/\1/p" "$1" | head -n 1; }

# The same figures by counting: lines of `steps`, `tokens` of a step, and what the outputs say. $1: the run, $2: sequences
# of a step, $3: tokens of a sequence.
judge()
{
    check "$1: it trains" [ "$code" -eq 0 ]
    awk -v batch=$(($2 * $3)) '
        function field(name,  at) { at = index($0, "\"" name "\": "); return at ? substr($0, at + length(name) + 4) + 0 : -1 }
        function near(a, b) { return a - b < 1e-9 * b && b - a < 1e-9 * b }
        FILENAME ~ /jsonl$/ && /"event": "evaluation"/ { held[field("step")] = field("tokens") / field("seconds"); next }
        FILENAME ~ /jsonl$/ && /"event"/ { next }
        FILENAME ~ /jsonl$/ {
            n++
            tokens[n] = field("tokens"); seconds[n] = field("seconds"); targets += field("target_tokens")
            if (tokens[n] != batch || field("target_tokens") > batch) bad("tokens of a step: " $0)
            next
        }
        function bad(text) { print text; wrong = 1 }
        function grouped(text) { gsub(/,/, "", text); return text + 0 }
        /^step: / {
            step = $2; sum = time = 0
            for (i = last + 1; i <= step; i++) { sum += tokens[i]; time += seconds[i] }
            last = step; match($0, /tps: [0-9,]*/)
            rate = grouped(substr($0, RSTART + 5, RLENGTH - 5))
            if (rate - sum / time > 0.51 || sum / time - rate > 0.51) bad("step " step ": " rate " is not " sum / time)
            lines++
        }
        /^validate step: / {
            match($0, /tps: [0-9,]*/); rate = grouped(substr($0, RSTART + 5, RLENGTH - 5))
            if (rate - held[$3] > 0.51 || held[$3] - rate > 0.51) bad("validation: " rate " is not " held[$3])
            lines++
        }
        /^performance: / { told = $2 }
        END {
            getline mean <"mean"; getline median <"median"; getline performance <"performance"
            if (!near(mean, targets / n)) bad("target tokens: " mean " is not " targets / n)
            if (!near(performance, median)) bad("perf.csv: " performance " is not " median)
            if (told / median > 1.0001 || median / told > 1.0001) bad("performance: " told " is not " median)
            if (lines < 4) bad(lines " lines")
            exit wrong
        }' run/metrics.jsonl said >wrong
    check "$1: every figure is what the counts give: $(head -n 1 wrong)" [ $? -eq 0 -a ! -s wrong ]
}

# run NAME SEQUENCES TOKENS WORD...
run()
{
    name=$1 sequences=$2 each=$3
    shift 3
    rm -rf run
    trainmark run "$@" --training.steps 12 --metrics.log_freq 5 --training.stop_at_target false --training.local_batch_size 2 \
        --training.global_batch_size $sequences --validation.freq 6 --validation.steps 3 --out run
    cp "$out" said
    member run/result.json target_tokens_per_step >mean
    sed -n '/"tokens_per_second_per_device": {/,/}/s/^ *"median": \(.*[^,]\),*$/\1/p' run/result.json | head -n 1 >median
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "performance") at = i } END { print $at }' run/perf.csv >performance
    judge "$name" $sequences $each
}

run text 4 32 $llama --data.path text.txt
run megatron 4 32 $llama --data.source megatron --data.path set
run sft 4 32 $llama --data.source sft --data.path rows.jsonl
run preference 4 32 $llama --data.source preference --data.path pairs.jsonl --lora.rank 2
run gaussians 4 24 $flux
check "the validation of an image counts tokens, too" [ "$(sed -n 's/.*"tokens": \([0-9]*\), "target_tokens".*/\1/p' run/metrics.jsonl | tail -n 1)" -gt 0 ]

finish
