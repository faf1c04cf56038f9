#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/coming-from.md. Every row of its first table: the command of another program and ours plan the same training. Every line of
# the published pages (configs/reference/*.yaml): `trainmark run` in front plans it for its hardware, in as much memory as the line
# that `trainmark reproduce` runs instead; a slice of some trains, and the tables of the page hold the plans. TM_UPDATE_DOCS=1 in
# front of the test writes these tables anew.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive
page=$root/docs/coming-from.md
mkdir bin
ln -s "$TRAINMARK" bin/trainmark
PATH=$work/bin:$PATH
export PATH

# --- files like theirs ----------------------------------------------------------------------------------------------------

cp "$root/configs/experiments/llama3.1_8B-mock.yaml" exp.yaml
printf '[model]\nname = "llama3"\nflavor = "debugmodel"\n[training]\nlocal_batch_size = 1\nseq_len = 32\n' >job.toml
printf '{"num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "embedding_dim": 32, "max_seq_len": 32, "vocab_size": 64, "eps": 1e-05, "hidden_dim": 64}' >model.json
printf 'model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\nbatch_size: 2\nmax_steps_per_epoch: 3\n' >recipe.yaml
cp -r "$root/tests/mlperf/example" submission
ln -s submission/results/BOX/llama2_70b_lora result
gzip -dc result/result_0.txt.gz >result_0.txt

# Files of FluxBenchmark's launcher, and a diffusion model of Primus.
mkdir -p FluxBenchmark/config/train_args
: >FluxBenchmark/launcher.py
groups='defaults: [{launcher: defaults}, {accelerate_config: fsdp_config}, {train_args: flux-dev}, _self_]'
printf '%s\nhydra: {run: {dir: "${train_args.logging_dir}"}}\n' "$groups" >FluxBenchmark/config/single_run.yaml
printf '%s\naccelerate_config: {dynamo_config: {dynamo_backend: ["no", inductor]}}\ntrain_args: {train_batch_size: [1, 10, 17], num_iterations: 20}\n' \
    "$groups" >FluxBenchmark/config/flux_benchmark.yaml
printf 'defaults: [defaults, _self_]\nmodel: flux-dev\nresolution: 512\ntrain_batch_size: 10\ntrain_data_path: a/hub\n' \
    >FluxBenchmark/config/train_args/flux-dev.yaml
top='{work_group: us, user_name: us, exp_name: flux, workspace: ./output,'
printf '%s modules: {pre_trainer: {framework: megatron, config: pre_trainer.yaml, model: diffusion/flux_535m.yaml, trainer_class: FluxPretrainTrainer,\n  overrides: {mock_data: true, model_type: diffusion_model, micro_batch_size: 2, global_batch_size: 16, lr: 1.0e-4, train_iters: 100, lr_warmup_iters: 2}}}}\n' "$top" \
    >flux_535m.yaml
printf '%s modules: {pre_trainer: {framework: diffusion, config: pre_trainer.yaml, model: flux.1_dev_t2i.yaml}}}\n' "$top" >flux_t2i.yaml

# Model files of pytorch-training-benchmark.
mkdir configs
for model in llama-3.1-8b-4k:4096:128256 llama-3.1-8b-8k:8192:128256 mistral-7b-v0.1:8192:32000; do
    seq=${model#*:}
    case $model in mistral*) window=',"window_size": 1024, "arch_name": "mistral"' ;; *) window= ;; esac
    printf '{"num_layers": 32, "num_heads": 32, "num_kv_heads": 8, "embedding_dim": 4096, "hidden_dim": 14336, "max_seq_len": %s, "vocab_size": %s, "eps": 1e-05%s}\n' \
        "${seq%:*}" "${seq#*:}" "$window" >"configs/${model%%:*}.json"
done

# experiment GPU NAME MODEL BATCH MORE: of Primus, in its folders.
experiment()
{
    folder=examples/torchtitan/configs/$1
    mkdir -p "$folder"
    cat >"$folder/$2.yaml" <<END
work_group: us
user_name: us
exp_name: $2
workspace: ./output
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    model: $3.yaml
    overrides:
      training: {local_batch_size: $4, seq_len: 8192, steps: 50, mock_data: true}
      lr_scheduler: {warmup_steps: 10}
      $5
END
}
full='activation_checkpoint: {mode: full}'
fp8='model: {converters: [quantize.linear.float8, quantize.grouped_mm.float8]}
      quantize.linear.float8: {filter_fqns: [output], enable_fsdp_float8_all_gather: true}'
experts='training.seq_len: 4096
      training.debug_moe_force_load_balance: true
      parallelism: {expert_parallel_degree: 8}
      model: {converters: [turbo_fp8_linear]}
      primus_turbo: {use_turbo_grouped_mm: true, use_moe_fp8: false}'
for gpu in MI300X MI355X; do
    experiment $gpu llama3.1_8B-BF16-pretrain llama3.1_8B 3 ''
    experiment $gpu llama3.1_8B-FP8-pretrain llama3.1_8B 5 "$fp8"
    experiment $gpu llama3.1_70B-BF16-pretrain llama3.1_70B 2 "$full"
    experiment $gpu llama3.1_70B-FP8-pretrain llama3.1_70B 2 "$full
      $fp8"
    experiment $gpu deepseek_v3_16b-pretrain deepseek_v3_16B 8 "$experts"
done

# submission NAME: config_NAME.sh of MLPerf, with what standard input says besides.
submission()
{
    {
        echo '#!/bin/bash'
        printf '%s\n' 'export DGXSYSTEM=$(basename $(readlink -f ${BASH_SOURCE[0]}) | sed '"'s/^config_//;s/\\.sh\$//')" \
            'export WALLTIME=$(( (${NEXP:-1} * 50) ))' 'export TP=1' 'export PP=1;' 'export CP=1' \
            'export MLPERF_SUBMISSION_ORG="Us"' "export MLPERF_SUBMISSION_PLATFORM=\"${1%%_*}\"" 'export NCCL_MIN_CTAS=32;' \
            'export NVTE_FUSED_ATTN=1' 'export OMP_NUM_THREADS=1'
        cat
    } >"config_$1.sh"
}
for system in MI300X_1x8x1 MI325X_1x8x1 MI350X_1x8x1 MI355X_1x8x1; do
    submission $system <<END
export DGXNGPU=8
export DGXNNODES=1
export WARMUP=True
export MAX_STEPS=1024
export SP=False
export MBS=1
export LR=0.0004
export MINIBS=1
export SKIP_EVALS=3
export VAL_CHECK_INTERVAL=384
export LORA_A2A=1
export FP8=True
export FP8_DPA=0
export FP8_AMAX_ALGO=most_recent
export FP8_REDUCE_AMAX=False
export FP8_AMAX_HISTORY=4
export FP8_ACTIVATION=True
END
done
echo 'export ACG=full && export ACM=block && export ACL=21' >>config_MI300X_1x8x1.sh
for system in MI350X_1x8x1_8b MI355X_1x8x1_8b; do
    submission $system <<'END'
export NNODES=1
export GPUS_PER_NODE=8
export CONTINUAL_CKPT="${CONTINUAL_CKPT:-/data/model/saved_ckpts}"
export USE_CKPT=0
export FROM_HF=1
export SAVE_CKPT=0
export SIZE="8b"
export GBS=32
export MBS=2
export MAX_LR="8e-4"
export MAX_STEPS=1200000
export WARMUP_STEPS=128
export EVAL_EVERY=12288
export START_EVAL_AT=0
export START_STEPS="0"
export TARGET="3.3"
export FP8_PARAMS=1
END
done

# --- the same training by both commands -----------------------------------------------------------------------------------

# theirs COMMAND WORD...: `trainmark run` behind the variables that are in front of a command, the words behind it.
theirs()
{
    line=$1 before='' verb=run
    shift
    case $line in
    source*) # of MLPerf: trainings in a row
        before="${line%%; *};" line=${line#*; } verb='mlperf run'
        ;;
    esac
    variables=
    while :; do
        case $line in
        [A-Z]*=*) variables="$variables${line%% *} " line=${line#* } ;;
        *) break ;;
        esac
    done
    case $before in '') shell=sh ;; *) shell=bash ;; esac
    timeout "$seconds" $shell -c "$before $variables trainmark $verb $line $*" >"$out" 2>"$err" </dev/null
    code=$?
}

sed -n 's/^| \([^|]*\) | `\([^`]*\)` | `\(\([A-Z_]*=[^ ]* \)*trainmark [^`]*\)` |$/\1;\2;\3/p' "$page" >rows
check "the page has its rows" [ "$(wc -l <rows)" -ge 14 ]
while IFS=';' read -r program their ours <&3; do
    case $ours in *" discover "* | *" mlperf "*) more= ;; *) more="--dry-run --memory 4TiB" ;; esac
    timeout "$seconds" sh -c "$ours $more" >"$out" 2>"$err" </dev/null
    code=$?
    if [ "$code" -ne 0 ]; then
        fail "$program: $ours" "exit code $code"
        continue
    fi
    sed '/^launch:$/d; /^  gpus_per_node: /d' "$out" >ours # one, said or not
    if [ -z "$more" ]; then
        pass "$program: $ours"
        continue
    fi
    theirs "$their" "$more"
    sed '/^launch:$/d; /^  gpus_per_node: /d' "$out" >their
    if [ "$code" -eq 0 ] && cmp -s ours their; then pass "$program: $their"; else fail "$program: $their" "not what '$ours' does"; fi
done 3<rows

# What the page calls refused is: not for a wrong word, and with a way out.
sed -n '/^Refused, with what replaces it/,/^Terms that differ/s/^| \([^|]*\) | `\([^`]*\)` |.*/\1;\2/p' "$page" >refused
check "the page has its refusals" [ "$(wc -l <refused)" -ge 9 ]
while IFS=';' read -r program their <&3; do
    theirs "$their" "--dry-run"
    if [ "$code" -eq 4 ] && ! has "$err" "unknown"; then pass "refused: $their"; else fail "refused: $their" "exit code $code"; fi
done 3<refused

# --- the lines of published pages -----------------------------------------------------------------------------------------

# The plan is of kernels that every machine has, and of one thread.
alike="--isa base --training.threads 1"
steps="--training.steps 1 --training.local_batch_size 1 --training.grad_accumulation 1"
their_steps="--num_iteration 1 --batch_size 1 --grad_accumlate_pre_steps 1" # of pytorch-training-benchmark
slice="--training.global_batch_size -1 --training.seq_len 32 --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64
       --model.vocab_size 64 --launch.gpus_per_node 1 --training.threads 1 --training.mock_data true
       --validation.enable false --training.stop_at_target false"
slice=$(echo $slice)

# What the program says of the rows of a page: NAME, GiB of the plan, published figures, by tabs; a line for each row.
said_of()
{
    trainmark reproduce "$1" --dry-run --json $alike
    awk -F '": ' 'function out() { if (row) printf "%s\t%.2f\t%s\n", row, plan, figures ? figures : "-" }
        { v = $2; sub(/,$/, "", v); gsub(/"/, "", v) }
        / "row": / { if (v != row) { out(); figures = "" } row = v }
        / "plan_gib": / { plan = v }
        / "published": / { value = v }
        / "unit": / { if (value != "null") figures = figures (figures ? ", " : "") value " " v }
        END { out() }' "$out"
}

: >tables
number=0 kinds=" " # of lines that a slice was trained of
for page_file in "$root"/configs/reference/*.yaml; do
    name=$(basename "$page_file" .yaml)
    case $name in bring-up-*) continue ;; esac # its lines are words
    said_of "$name" >said.tsv
    check "$name is planned" [ "$code" -eq 0 ]
    printf '\n### %s\n\n| hardware | command | plan, GiB of a GPU | published |\n|---|---|---|---|\n' \
        "$(sed -n 's/^title: //p' "$page_file")" >>tables
    awk '/^  [a-zA-Z0-9].*:$/ { name = $1; sub(/:$/, "", name) }
        /^    hardware: / { hardware = $2 }
        /^    theirs: / { print name " :: " hardware " :: " substr($0, 13) }' "$page_file" >lines
    check "$name has all its rows" [ "$(wc -l <lines)" -eq "$(wc -l <said.tsv)" ]
    while IFS= read -r row <&3; do
        number=$((number + 1))
        id=${row%% :: *} row=${row#* :: }
        platform=${row%% :: *} command=${row#* :: }
        theirs "$command" "--dry-run --platform $platform $alike"
        plan=$(sed -n 's/^  plan  *\([0-9.]*\) GiB.*/\1/p' "$out")
        fits=$(sed -n 's/^[0-9.]* GiB \(do not fit into\|fit into\) .*/\1/p' "$out")
        case $code:$fits in 0:"fit into" | 4:"do not fit into") ;; *) plan= ;; esac
        if [ -n "$plan" ]; then pass "plans: $command"; else fail "plans: $command" "exit code $code"; fi
        ours=$(awk -F '\t' -v row="$id" '$1 == row { print $2 }' said.tsv)
        check "$id: as much memory as theirs" [ "$ours" = "$plan" ]
        [ "$code" -eq 0 ] || plan="$plan, does not fit"
        printf '| %s | `%s` | %s | %s |\n' "$platform" "$command" "$plan" \
            "$(awk -F '\t' -v row="$id" '$1 == row { print $3 }' said.tsv)" >>tables
        # A slice of the first line of each kind: its words without numbers, models' files and GPUs.
        kind=$(printf '%s' "$command" | sed 's/configs\/[^ ]*\///; s/MI[0-9]*X//g; s/_size [0-9]*//g; s/[^a-zA-Z ]//g' | tr ' ' '.')
        case "$kinds$command" in *" $kind "* | *"source "* | *lux* | *launcher.py* | *deepseek* | *"-N 4"* | *NNODES=4*) continue ;; esac
        kinds="$kinds$kind "
        case $command in *train_fsdp.py*) short=$their_steps ;; *) short=$steps ;; esac
        theirs "$command" "$short $slice --out slice$number"
        if [ "$code" -eq 0 ] && has "$out" "^step: +1 +loss: "; then pass "trains a slice: $command"; else fail "trains a slice: $command" "exit code $code"; fi
    done 3<lines
done

says 2 "run_with_docker.sh trains config_.DGXSYSTEM.sh, and DGXSYSTEM is not set; name that file instead" mlperf run bash run_with_docker.sh --dry-run

begin='<!-- generated from configs/reference/*.yaml; do not edit below -->'
end='<!-- end of what is generated -->'
awk -v begin="$begin" -v end="$end" '
    $0 == end { skipped = 0 }
    !skipped { print }
    $0 == begin { skipped = 1; while ((getline line <"tables") > 0) print line; print "" }' "$page" >page
check "the page has a place for its tables" grep -qxF -e "$begin" "$page"
[ "${TM_UPDATE_DOCS:-}" != 1 ] || cp page "$page"
if cmp -s page "$page"; then
    pass "docs/coming-from.md holds the plans"
else
    fail "docs/coming-from.md is out of date; run this test with TM_UPDATE_DOCS=1" "$(diff "$page" page | head -n 12)"
fi

finish
