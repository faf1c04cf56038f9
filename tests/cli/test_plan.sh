#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# trainmark plan: what it prints, its JSON and trace, other trainers, published rows, the search beside all layouts one by
# one, and inputs that are wrong.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

# field NAME: of the JSON in $out, by a path with dots.
field() { sed -n "s/^ *\"$1\": \(.*[^,]\),\{0,1\}$/\1/p" "$out" | head -n 1; }

# --- one layout -------------------------------------------------------------------------------------------------------
says 0 "^FITS: [0-9.]+ GiB of 189.00 GiB on the rank with the most; " plan llama3.1_8B --platform 8xMI300X
check "what limits it" has "$out" "^what limits it: backward linear, [0-9]+ % of the time$"
check "that nothing was measured" has "$out" "^nothing was measured: "
says 0 '' plan llama3.1_8B --platform 8xMI300X --json --price 2 --tokens 15T
check "a verdict" [ "$(field verdict)" = '"FITS"' ]
awk -v step="$(field step_s)" -v rate="$(field tokens_per_second)" 'BEGIN { exit !(step * rate > 262143 && step * rate < 262145) }'
check "tokens/s x step is the tokens of a step" [ $? -eq 0 ]
awk -v days="$(field days)" -v usd="$(field usd)" 'BEGIN { x = days * 24 * 8 * 2 / usd; exit !(x > 0.999 && x < 1.001) }'
check "days, devices and prices are the cost" [ $? -eq 0 ]
awk -v days="$(field days)" -v mwh="$(field mwh)" 'BEGIN { x = days * 24 * 8 * 750e-6 / mwh; exit !(x > 0.999 && x < 1.001) }'
check "and with the watts of a device the energy" [ $? -eq 0 ]
bytes=$(field plan_bytes)
says 0 '' plan llama3.1_8B --platform 8xMI300X --price 1 --watts 1000
check "a kilowatt for a dollar: as many kWh as dollars" [ "$(sed -n 's/^cost: \([^ ]*\) .*/\1/p' "$out")" = "$(sed -n 's/^energy: \([^ ]*\) .*/\1/p' "$out")" ]
says 0 "^a failure every 24 h: a checkpoint every 37[.0-9]* min leaves 9[0-9.]+ % of the time$" plan llama3.1_8B --platform 8xMI300X --failures 1000
trainmark run llama3.1_8B --training.mock_data true --training.dtype bfloat16 --platform 8xMI300X --dry-run --json
check "the memory is that of a dry run" [ "$(field plan_bytes)" = "$bytes" ]
says 4 "^OUT OF MEMORY: " plan llama3.1_70B --platform 2xH100
check "with a way out" has "$err" "and a rank has 77.00 GiB; --search finds a layout that fits"
says 0 "^AT RISK: " plan llama3.1_8B --platform 8xMI300X --memory 115GiB
says 0 '' plan tiny-llama --platform 2xMI300X --trace trace.json
# The picture has the same pieces: a bar for every run of a program, a row for every stage and stream.
two="tiny-llama --platform 2xMI300X --parallelism.pipeline_parallel_degree 2 --training.local_batch_size 4 --parallelism.pipeline_parallel_microbatch_size 1"
trainmark plan $two --trace trace.json
trainmark plan $two --trace trace.svg
check "a trace as a picture" has trace.svg '<svg xmlns="http://www.w3.org/2000/svg"'
programs=$(grep -o '"tid": *"programs"' trace.json | wc -l)
check "with a bar for each of $programs programs" [ "$(grep -c 'class="p"' trace.svg)" -eq "$programs" ]
check "of 4 micro-batches forward and backward of 2 stages, and 2 updates" [ "$programs" -eq 18 ]
check "with a row for the second stage" has trace.svg '>stage 1 programs<'
says 0 " parameters, float32; " plan tiny-llama --platform 2xEPYC-9654

experts="tiny-llama --platform 2xH100 --model.n_experts 4 --model.n_experts_per_token 2 --parallelism.expert_parallel_degree 2"
trainmark plan $experts --json
even=$(field step_s)
trainmark plan $experts --json --expert-imbalance 2
more=$(field "fullest experts")
awk -v even="$even" -v now="$(field step_s)" -v more="$more" 'BEGIN { exit !(more > 0 && now >= even + more * 0.999) }'
check "the fullest experts take longer ($even s, $more s more)" [ $? -eq 0 ]
trainmark plan $experts --json --loader-rate 1000
tokens=$(field micro_batches)
awk -v step="$(field step_s)" -v n="$(field local_batch_size)" -v t="$(field seq_len)" -v m="$tokens" \
    'BEGIN { x = step * 1000 / (n * t * m); exit !(x > 0.9999 && x < 1.0001) }'
check "a slow loader is the time of a step" [ $? -eq 0 ]

# --- other trainers ---------------------------------------------------------------------------------------------------
says 0 "^llama3.1_8B as ptb " plan llama3.1_8B --platform 8xMI300X --as ptb --training.local_batch_size 3
says 4 "ptb would need [0-9.]+ TiB, and a device has 192.00 GiB" plan llama3.1_8B --platform 8xMI300X --as ptb --training.local_batch_size 30

# --- rows -------------------------------------------------------------------------------------------------------------
head -n 4 "$root/configs/calibration/training.csv" >rows.csv
says 0 '' plan --rows rows.csv --json
check "as many as the file has" [ "$(grep -c '"row":' "$out")" -eq 3 ]
says 0 "^speed: 146 rows, 1 not predicted; " plan --rows "$root/configs/calibration/training.csv" --leave-out
says 0 "^fits or does not: [0-9]+ of 39 are said right, " plan --rows "$root/configs/calibration/memory.csv"

# --- runs as tests of it ------------------------------------------------------------------------------------------------
says 4 '' plan --accuracy
cp "$root/configs/hardware/2xEPYC-9654.yaml" . # a short name: the report breaks long lines
says 0 '' run $tiny --training.steps 6 --prediction.hardware ./2xEPYC-9654.yaml --out run
check "both speeds in its report" has "$out" "^  predicted   [0-9,.]+ tokens/s by .*2xEPYC-9654.yaml; measured [0-9,.]+ \([-+][0-9.]+ %\)$"
predicted=$(sed -n 's/^    "tokens_per_second": \(.*\),$/\1/p' run/result.json | head -n 1)
says 0 "\"predicted\": $predicted" plan --accuracy --json
measured=$(sed -n 's/^ *"measured": \(.*\),$/\1/p' "$out")
awk -v p="$predicted" -v m="$measured" -v e="$(sed -n 's/^ *"error_percent": \(.*\)$/\1/p' "$out")" \
    'BEGIN { x = 100 * (m / p - 1) - e; exit !(x < 0.01 && x > -0.01) }'
check "with its error" [ $? -eq 0 ]

# --- search: beside all layouts, one by one -----------------------------------------------------------------------------
model="llama3.2_1B --training.seq_len 4096 --model.n_layers 4"
# All degrees and a batch that may be cut in more ways take seconds.
[ -n "${TM_TEST_FULL:-}" ] && degrees="1 2 4" batch=16 largest=4 || degrees=2 batch=4 largest=1
says 0 '' plan $model --platform 4xH100 --search --training.global_batch_size $batch --training.local_batch_size $largest --json
found=$(field tokens_per_second)
check_not "nothing is moved to the host where there is room" has "$out" "training.offload=[^n]"
best=0
for tp in $degrees; do
    for pp in $degrees; do
        [ $((tp * pp)) -le 4 ] || continue
        for order in 1F1B Interleaved1F1B ZBVZeroBubble; do
            [ $pp -gt 1 ] || [ $order = 1F1B ] || continue
            [ $pp -gt 1 ] && of="--parallelism.pipeline_parallel_schedule $order" || of=
            for share in optim optim_grads_params; do
                for micro in 1 2 4; do
                    [ $((micro * 4 / tp / pp)) -le $batch ] || continue
                    trainmark plan $model --platform 4xH100 --parallelism.tensor_parallel_degree $tp \
                        --parallelism.pipeline_parallel_degree $pp --parallelism.data_parallel_shard_strategy $share $of \
                        --training.local_batch_size $micro --training.global_batch_size $batch --json
                    [ "$code" -eq 0 ] || continue
                    best=$(awk -v a="$best" -v b="$(field tokens_per_second)" 'BEGIN { print (a > b ? a : b) }')
                done
            done
        done
    done
done
awk -v a="$found" -v b="$best" 'BEGIN { exit !(b > 0 && a >= 0.999 * b) }'
check "the search finds what is best of all, or better ($found, $best)" [ $? -eq 0 ]
says 0 "^all others are slower by their bounds$" plan $model --platform 4xH100 --search --training.global_batch_size 2 --training.local_batch_size 1
# What lies with the host is moved only where there is no room without.
alone="$model --platform H100 --training.global_batch_size 4"
trainmark plan $alone --training.local_batch_size 1 --activation_checkpoint.mode full --json
room=$(awk -v b="$(field plan_bytes)" 'BEGIN { printf "%.0f", b * 0.85 }')
says 0 '"--training.offload=(optimizer|activations|all)"' plan $alone --search --training.local_batch_size 1 --memory "$room" --json
check_not "nothing fits as it is" has "$out" '"--training.offload=none"'
awk -v need="$(sed -n 's/^ *"plan_bytes": \(.*\),$/\1/p' "$out" | sort -n | tail -n 1)" -v room="$room" 'BEGIN { exit !(need > 0 && need <= room) }'
check "what is moved makes room" [ $? -eq 0 ]
says 4 "layouts of models of images are not searched" plan flux.1_dev --platform 8xMI300X --search
says 4 "no layout of 8 devices fits: .*take more devices" plan llama3.1_405B --platform 8xH100 --search --training.local_batch_size 1

# --- wrong inputs -----------------------------------------------------------------------------------------------------
says 2 "a prediction needs hardware: add --platform" plan llama3.1_8B
says 4 "there is no hardware 'MI999'; wanted one of .*MI300X" plan llama3.1_8B --platform 8xMI999
says 2 "nodes are 1 to [0-9]+, devices of a node 1 to 72" plan llama3.1_8B --platform 0xMI300X
sed 's/^product_f32:.*//' "$root/configs/hardware/H100.yaml" >bad.yaml
says 4 "has no 'product_f32', which" plan llama3.1_8B --platform ./bad.yaml --training.dtype float32 --model.n_layers 1
says 4 "'--as|--as 'keras': wanted one of ptb, " plan llama3.1_8B --platform 8xMI300X --as keras
says 2 "--as describes another program's step; --search" plan llama3.1_8B --platform 8xMI300X --as ptb --search
sed '2s/,8,bf16/,eight,bf16/' rows.csv >bad.csv
says 4 "bad.csv:2: gpus is 'eight'" plan --rows bad.csv
says 4 "cannot create 'no/such/folder/trace.json'" plan tiny-llama --platform MI300X --trace no/such/folder/trace.json
finish
