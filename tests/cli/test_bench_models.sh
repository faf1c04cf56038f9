#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark bench` of models and their parts: gpt, attention, mlp, startup.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

cat >tiny.yaml <<'END'
model:
  family: gpt
  name: tiny
  n_layers: 8
  dim: 64
  n_heads: 2
  ffn_dim: 128
  vocab_size: 96
  max_seq_len: 32
  tied: true
  init: gpt2
training:
  local_batch_size: 2
  seq_len: 32
END

# field FILE ROW COLUMN: a cell of a tsv file, rows counted from 1
field() { awk -F '\t' -v row="$2" -v name="$3" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
    NR == row + 1 { print $at[name] }' "$1"; }
is() { [ "$(field "$1" "$2" "$3")" = "$4" ]; }
positive() { field "$1" "$2" "$3" | grep -qE '^[0-9.e-]+$' && [ "$(field "$1" "$2" "$3")" != 0 ]; }
rows() { [ "$(($(wc -l <"$1") - 1))" -eq "$2" ]; }

# --- gpt --------------------------------------------------------------------------------------------------------------

# Far apart and many steps: noise must not make more layers look faster.
slices="--layers 1,3,6 --max-rounds 5 --turn-ms 20 --threads 1 --output-file gpt.tsv"
# On a busy machine it may all the same, which is said and ends with exit code 3: then once more.
calm()
{
    for _ in 1 2 3 4; do
        trainmark "$@"
        [ "$code" -eq 3 ] && has "$out" "measurements of the slices are too noisy" || return 0
    done
}
# shellcheck disable=SC2086
calm bench gpt --sizes tiny.yaml --validate always $slices
check "gpt: a model that fits, validated" [ "$code" -eq 0 ]
check "gpt: three slices, the model, the prediction" rows gpt.tsv 5
row=0
for layers in 1 3 6; do
    row=$((row + 1))
    check "gpt: the slice with $layers layer(s) is no row of the model" is gpt.tsv $row case "tiny.yaml, $layers of 8 layers"
    check "gpt: it has a residual" [ -n "$(field gpt.tsv $row residual_pct)" ]
done
check "gpt: the model is measured" is gpt.tsv 4 tag measured
check "gpt: the prediction says so" is gpt.tsv 5 tag predicted
check "gpt: the prediction has an error" [ -n "$(field gpt.tsv 5 error_pct)" ]
check "gpt: the prediction has an interval" positive gpt.tsv 5 tokens_per_second_lo
check "gpt: it took the rounds that were asked for" is gpt.tsv 5 n 5
check "gpt: the line is printed" has "$out" "predicted step = -?[0-9.]+ ms \+ [0-9.]+ ms x 8 layers"
parameters=$(field gpt.tsv 4 parameters)
check "gpt: TFLOP/s by the named convention" awk -v rate="$(field gpt.tsv 4 tokens_per_second)" \
    -v tflops="$(field gpt.tsv 4 tflops_6n)" -v n="$parameters" \
    'BEGIN { wanted = rate * 6 * n * 1e-12; exit !(tflops > 0.9999 * wanted && tflops < 1.0001 * wanted) }'

# A few steps: until the interval is narrow takes the whole budget, 600 s, on a busy machine.
trainmark bench gpt --sizes tiny.yaml --validate never --precision 100 --batch 1 --threads 1 --output-file whole.tsv
check "gpt: a model that fits is measured" [ "$code" -eq 0 ]
check "gpt: whole" rows whole.tsv 1
check "gpt: with the batch that was asked for" is whole.tsv 1 batch 1
check "gpt: memory is the plan's" positive whole.tsv 1 memory_gb

# shellcheck disable=SC2086
calm bench gpt --sizes tiny.yaml --memory-gib 0.004 $slices
check "gpt: what does not fit is predicted" [ "$code" -eq 0 ]
check "gpt: from the slices that fit" rows gpt.tsv 4
check "gpt: the last row is the prediction" is gpt.tsv 4 tag predicted
check "gpt: without a measured model there is no error" [ -z "$(field gpt.tsv 4 error_pct)" ]

# shellcheck disable=SC2086
calm bench gpt --sizes tiny.yaml --memory-gib 0.003 $slices
check "gpt: two slices make a line without residuals" has "$out" "only two slices"

trainmark bench gpt --sizes tiny.yaml --memory-gib 0.00001 --threads 1 --output-file gpt.tsv
check "gpt: where no slice fits, the size is skipped" is gpt.tsv 1 tag skipped
check "gpt: with the reason in bytes" has gpt.tsv "needs [0-9.]+ MiB, and no slice fits either"
check "gpt: a table of nothing but skipped rows is no result" [ "$code" -eq 3 ]

trainmark bench gpt --sizes 13b --budget 2 --batch 1 --threads 1
check "gpt: no time for two steps of the smallest slice" has "$out" "(two steps of its smallest slice|no slice fits)"
trainmark bench gpt --sizes nosuch
failed_with 4 "gpt: an unknown size" "nosuch"
trainmark bench gpt --sizes small,,large
failed_with 2 "gpt: an empty size" "--sizes must be names"
trainmark bench gpt --layers 3,1
failed_with 2 "gpt: layers that do not ascend" "--layers is '3,1'"
trainmark bench gpt --layers 1,x
failed_with 2 "gpt: layers that are no numbers" "--layers is '1,x'"

# --- attention --------------------------------------------------------------------------------------------------------

short="--rep-ms 2 --warmup-ms 0 --threads 1 --output-file attention.tsv"
for more in "--causal false --cache warm" "--window 20 --dtype bfloat16 --kv-heads 2" ""; do
    # shellcheck disable=SC2086
    trainmark bench attention --seq 70 --heads 4 --head-dim 24 $more $short
    check "attention $more: right" is attention.tsv 1 correct true
    check "attention $more: both directions" positive attention.tsv 1 bwd_tflops
done
check "attention: the convention has a name" is attention.tsv 1 convention causal-half
trainmark bench attention --model tiny.yaml --rep-ms 2 --threads 1 --output-file attention.tsv
check "attention: a model's heads" is attention.tsv 1 num_head_q 2
check "attention: and its length" is attention.tsv 1 seqlen_q 32
trainmark bench attention --window 5 --causal false
failed_with 4 "attention: a window needs a causal mask" "--window 5 needs causal"
trainmark bench attention --heads 6 --kv-heads 4
failed_with 4 "attention: groups must be whole" "--heads 6 is not a multiple of --kv-heads 4"
trainmark bench attention --seq 16777216 --batch 1048576
failed_with 4 "attention: more elements than can be counted" "elements"
trainmark bench attention --seq 1000000 --heads 64 --head-dim 256
check "attention: what cannot be done is skipped with the reason" has "$out" "needs .*available|budget has"

# --- mlp --------------------------------------------------------------------------------------------------------------

trainmark bench mlp --dims 24-40-56-17 --batch 13 --iterations 30 --lr 0.005 --threads 1 --output-file mlp.tsv
check "mlp runs" [ "$code" -eq 0 ]
check "mlp: right" is mlp.tsv 1 correct true
check "mlp: every iteration is there" awk -v n="$(field mlp.tsv 1 n)" -v w="$(field mlp.tsv 1 warmup)" \
    'BEGIN { exit !(n + w == 30) }'
for column in samples_per_second step_ms fwd_ms bwd_ms update_ms loss_first loss_last; do
    check "mlp: $column" positive mlp.tsv 1 $column
done
trainmark bench mlp --dims 24-40-17 --batch 13 --iterations 5 --optimizer none --activation gelu --bias false --threads 1 \
    --dtype bfloat16 --output-file mlp.tsv
check "mlp: forward and backward only" [ -z "$(field mlp.tsv 1 update_ms)" ]
check "mlp: other formats and activations are right, too" is mlp.tsv 1 correct true
trainmark bench mlp --dims 24
failed_with 2 "mlp: one width is no network" "--dims is '24'"
trainmark bench mlp --dims 24-x-3
failed_with 2 "mlp: widths are numbers" "--dims is '24-x-3'"
trainmark bench mlp --dims 1000000-1000000
check "mlp: what does not fit is skipped with the reason" has "$out" "needs .* available"

# --- startup ----------------------------------------------------------------------------------------------------------

trainmark bench startup --runs 2 --cache warm --threads 1 --output-file startup.tsv \
    --arguments "model.n_layers=1 model.dim=32 model.n_heads=2 model.n_kv_heads=1 training.local_batch_size=1"
check "startup runs" [ "$code" -eq 0 ]
for column in first_step_s step_s startup_s exit_s bytes_read resident_bytes executable_bytes; do
    check "startup: $column" positive startup.tsv 1 $column
done
check "startup: two starts" is startup.tsv 1 n 2
trainmark bench startup --runs 1 --cache warm --model nosuch
failed_with 4 "startup: what the started run says" "ended with exit code 4.*nosuch"
left=$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'trainmark-startup-*' -user "$(id -u)" -newer tiny.yaml 2>/dev/null | wc -l)
check "startup leaves nothing behind" [ "$left" -eq 0 ]

finish
