#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lists where single values belong make a sweep; `auto` finds the batch that fits.
# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

cat >experiment.yaml <<'END'
model: {vocab_size: 256, n_layers: 1, dim: 32, n_heads: 2, n_kv_heads: 1, ffn_dim: 64}
training: {seq_len: 32, local_batch_size: [2, 4, 8], threads: 1, stop_at_target: false, steps: 8}
optimizer: {lr: [0.001, 1.0e-4]}
validation: {steps: 1}
END

trainmark run experiment.yaml --out sweep --dry-run
check "a dry run lists the runs" [ "$code$(grep -c '| yes ' "$out")" = 06 ]
check "and trains none" [ ! -e sweep ]
says 0 '' run --out=sweep experiment.yaml
check "the last axis is the fastest" [ "$(column sweep/runs_summary.csv run_name)" = "local_batch_size=2_lr=0.001 \
local_batch_size=2_lr=0.0001 local_batch_size=4_lr=0.001 local_batch_size=4_lr=0.0001 local_batch_size=8_lr=0.001 \
local_batch_size=8_lr=0.0001 " ]
check "all succeed" [ "$(column sweep/runs_summary.csv status)" = "success success success success success success " ]
check "the parameters are columns" [ "$(column sweep/runs_summary.csv training.local_batch_size)" = "2 2 4 4 8 8 " ]
check "its folder" has "sweep/0003_local_batch_size=4_lr=0.001/result.json" '"training.local_batch_size": 4'
trainmark results --label 'sweep/*'
check "and its place in the store" [ "$(grep -c '| sweep/000' "$out")" -eq 6 ]
cp sweep/0003_config_local_batch_size=4_lr=0.001.yaml one.yaml
says 0 '' run one.yaml --out again
check "and trains to the same weights" [ "$(grep weights_hash again/result.json)" = \
    "$(grep weights_hash sweep/0003_local_batch_size=4_lr=0.001/result.json)" ]

# --- what does not fit ---

(
    ulimit -v 700000
    timeout "$seconds" "$TRAINMARK" run experiment.yaml '--training.local_batch_size=[2, 30000, 60000]' --out large >"$out" 2>"$err" </dev/null
    echo $? >code
)
check "what does not fit is no error of the sweep" [ "$(cat code)" -eq 0 ]
check "a larger batch is not tried, another rate is" [ "$(column large/runs_summary.csv status)" = \
    "success oom oom-skipped success oom oom-skipped " ]
mv large/runs_summary.csv before.csv
grep -v ',oom-skipped,' before.csv >large/runs_summary.csv
trainmark run experiment.yaml '--training.local_batch_size=[2, 30000, 60000]' --out large
check "nor when the sweep goes on" [ "$(column large/runs_summary.csv status)" = \
    "success oom oom-skipped success oom oom-skipped " ]
trainmark run experiment.yaml --training.local_batch_size 2 '--optimizer.lr=[0.001, 1e300]' --out error
check "a run that fails does not stop the others" [ "$(wc -l <error/runs_summary.csv)" -eq 3 ]
check_not "but the sweep has failed" [ "$code" -eq 0 ]

# --- lists and single values ---

says 0 '' run experiment.yaml --training.local_batch_size 2 --optimizer.lr 1e-3 --out single
check "that is one run" [ -s single/result.json ]

# --- the batch that fits ---

fit="--training.local_batch_size auto --optimizer.lr 1e-3"
says 0 " fit into 2.00 MiB" run experiment.yaml $fit --memory 2MiB --dry-run
size=$(sed -n 's/.*local_batch_size auto: \([0-9]*\)$/\1/p' "$err")
says 4 "the plan needs" run experiment.yaml $fit --training.local_batch_size $((size + 1)) --memory 2MiB --dry-run
says 0 '' run experiment.yaml $fit --memory 1MiB --training.global_batch_size 12 --out auto
check "auto: a divisor of the global batch" has auto/config.yaml "^  local_batch_size: (1|2|3|4|6|12) "
check "auto: it says what was found" has "$err" "local_batch_size auto: "
# A plan that fits, and a process that may not have so much: smaller ones are tried, each by a sixteenth.
(
    ulimit -v 750000
    timeout "$seconds" "$TRAINMARK" run experiment.yaml $fit --training.steps 2 \
        --memory 800MiB --out tight >"$out" 2>"$err" </dev/null
    echo $? >code
)
check "a smaller batch is found" [ "$(cat code)" -eq 0 ]
sed -n 's/.*a batch of \([0-9]*\) should fit by the plan, but did not run: trying a smaller one$/\1/p' "$err" >tried
check "after others" [ "$(wc -l <tried)" -ge 1 ]
check "the last of them is the one" awk -v last="$(tail -n 1 tried)" -v size="$(sed -n 's/^  local_batch_size: \([0-9]*\) .*/\1/p' tight/config.yaml)" \
    'BEGIN { exit size != last - int((last + 15) / 16) }'
check "nothing is left of the trials" [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'trainmark-batch*' -newer experiment.yaml)" ]
# Of several ranks the one that needs the most has to fit: of a pipeline the last, which has the head.
ranks="--parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2 --model.n_layers 2 --optimizer.lr 1e-3 --memory 2MiB --dry-run"
trainmark run experiment.yaml $ranks --training.local_batch_size auto
size=$(sed -n 's/.*local_batch_size auto: \([0-9]*\)$/\1/p' "$err")
says 4 "the plan needs .* and 2.00 MiB are available" run experiment.yaml $ranks --training.local_batch_size $((size + 1))
# A pipeline's micro-batch divides what is found.
parts="--optimizer.lr 1e-3 --training.local_batch_size auto --parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2 --model.n_layers 2"
parts="$parts --parallelism.pipeline_parallel_microbatch_size 3 --memory 8MiB --dry-run"
trainmark run experiment.yaml $parts --parallelism.pipeline_parallel_schedule GPipe
size=$(sed -n 's/.*local_batch_size auto: \([0-9]*\)$/\1/p' "$err")
check "auto: a multiple of the micro-batch ($size)" [ "${size:-1}" -ge 3 ] && check "auto: which divides it" [ $((size % 3)) -eq 0 ]
says 4 "the plan needs" run experiment.yaml ${parts% --dry-run} --dry-run --training.local_batch_size $((size + 3)) --parallelism.pipeline_parallel_schedule GPipe
says 0 "local_batch_size auto: (3|6|12)$" run experiment.yaml $parts --training.global_batch_size 12
says 4 "not even one sequence fits" run experiment.yaml $fit --memory 10KiB --out none

finish
