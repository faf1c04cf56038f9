#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks beside one process: R ranks of one thread each (copies, ZeRO-1, fully sharded) against one rank of R threads with the
# same batch, and PyTorch's DistributedDataParallel and FSDP2 over gloo with as many processes; in turn, process by process.
#
#   CASES="gpt-small"   (bench/cases.sh)    RANKS=2    ROUNDS=2    STEPS=8    WARMUP=3 first steps left out (DDP
#         needs them)
#   SIDES="one copies shards ddp fsdp2"   which, also: optim, tp, pp (stages of a pipeline, 8 micro-batches or BATCH), one-micro (one
#         rank with the same micro-batches), pp-SCHEDULE (pp-InterleavedZeroBubble), pieces and pieces-SCHEDULE (the same with the
#         output layer divided among the stages), each with @N behind it: N blocks of a stage, else PER_STAGE
#   DTYPE=float32|bfloat16  bfloat16: float32 weights, bfloat16 compute; PyTorch by autocast or FSDP2's mixed precision
#   MPI=openmpi|mpich   the ranks' library
#   COMPILE=1  PyTorch compiled     PYTHON=  with torch      TRAINMARK=./trainmark
#   RECORDS=F  keep the raw records in F.CASE; what is there is not run again, so a measurement that was cut off goes on
#   DIM LAYERS HEADS KV_HEADS FFN VOCAB BATCH SEQ   other dimensions (BATCH: of all ranks)
#
# Two rounds of gpt-small take about twelve minutes on two slow cores (700 tokens/s). A process counts with batch tokens / median step time over its steps after WARMUP, a side with the median over its rounds.
set -eu
# shellcheck source=bench/cases.sh
. "$(dirname "$0")/cases.sh"
case_setup
ranks=${RANKS:-2} rounds=${ROUNDS:-2} steps=${STEPS:-8} warmup=${WARMUP:-3}
sides=${SIDES:-one copies shards ddp fsdp2} dtype=${DTYPE:-float32}
[ "$steps" -gt "$warmup" ] || { echo "STEPS $steps must be more than WARMUP $warmup" >&2; exit 2; }
records=${RECORDS:-$work/records}
degree=--parallelism.data_parallel

for case in ${CASES:-gpt-small}; do
    case_shape "$case"
    [ $((batch % ranks)) -eq 0 ] || { echo "BATCH $batch must be a multiple of RANKS $ranks" >&2; exit 2; }
    whole=$batch
    touch "$records.$case"
    round=1
    while [ "$round" -le "$rounds" ]; do
        for side in $sides; do
            threads=1 batch=$((whole / ranks)) own="--ranks $ranks ${MPI:+--mpi $MPI}"
            case $side in
            one) threads=$ranks batch=$whole own='' name="trainmark, 1 rank" ;;
            copies) own="$own ${degree}_replicate_degree $ranks ${degree}_shard_degree 1" name="trainmark, copies" ;;
            optim) own="$own ${degree}_shard_strategy optim" name="trainmark, ZeRO-1" ;;
            shards) name="trainmark, fully sharded" ;;
            tp) batch=$whole own="$own --parallelism.tensor_parallel_degree $ranks" name="trainmark, tensor parallel" ;;
            one-micro)
                micro=$((whole < 8 ? whole : 8)) batch=$((whole / micro)) threads=$ranks name="trainmark, 1 rank, $micro micro-batches"
                own="--training.grad_accumulation $micro"
                ;;
            pp | pp[-@]* | pieces | pieces[-@]*)
                schedule=${side#pp} schedule=${schedule#pieces} schedule=${schedule#-}
                each=${PER_STAGE:-}
                case $schedule in *@*) each=${schedule#*@} schedule=${schedule%%@*} ;; esac
                micro=$((whole < 8 ? whole : 8)) batch=$((whole / micro))
                name="trainmark, pipeline of $ranks${schedule:+ ($schedule)}, $micro micro-batches"
                case $side in
                pieces*)
                    own="$own --parallelism.pipeline_parallel_divide_head true"
                    name="trainmark, pipeline of $ranks${schedule:+ ($schedule)}, divided head, $micro micro-batches"
                    ;;
                esac
                name="$name${each:+, $each blocks a stage}"
                own="$own --parallelism.pipeline_parallel_degree $ranks --training.grad_accumulation $micro"
                own="$own ${schedule:+--parallelism.pipeline_parallel_schedule $schedule}"
                own="$own ${each:+--parallelism.pipeline_parallel_layers_per_stage $each}"
                ;;
            ddp | fsdp2) name="PyTorch $side" ;;
            *) echo "unknown side '$side'; one of: one one-micro copies optim shards tp pp pp-SCHEDULE pieces pieces-SCHEDULE ddp fsdp2" >&2; exit 2 ;;
            esac
            case_arguments
            rm -rf "$work/out"
            grep -qF "\"side\": \"$name\", \"round\": $round, " "$records.$case" && continue
            # shellcheck disable=SC2086,SC2154
            case $name in
            PyTorch*) set -- "$python" "$here/peers/torch_ranks.py" --mode "$side" --ranks "$ranks" $PEER_MODEL \
                --steps "$steps" --warmup "$warmup" --dtype "$dtype" ${COMPILE:+--compile} ;;
            *) set -- "$trainmark" run $TRAINMARK_MODEL --training.steps "$steps" --training.dtype "$dtype" $own --out "$work/out" ;;
            esac
            echo "$case, round $round of $rounds: $name" >&2
            "$python" "$here/measure.py" "$records.$case" "$case" "$name" "$round" "$warmup" "$work/out" -- "$@"
        done
        round=$((round + 1))
    done
    threads=$ranks batch=$whole
    "$python" "$here/report.py" sides "$records.$case" "$case: $(case_title), $dtype"
done
