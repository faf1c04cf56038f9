#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run --scaling: the same experiment on several numbers of ranks, and its table.
# shellcheck disable=SC1091,SC2154,SC2086,SC2046
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive
short="--training.steps 12"
column() { awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { printf "%s ", $at }' "$1"; }
sound() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && b > 0 && b < 1.001 * a && b > 0.999 * a) }'; }

# --- refused before anything is started ---------------------------------------------------------------------------------

trainmark run $tiny --scaling 1,zero
failed_with 2 "sizes that are no numbers" "--scaling takes up to 16 numbers of ranks, 1 to 256 each, as in 1,2,4; found '1,zero'"
trainmark run $tiny --scaling 2,1,2
failed_with 2 "a size twice" "--scaling has 2 twice"
trainmark run $tiny --scaling 1,2 --ranks 2
failed_with 2 "a size and a list of sizes" "--scaling cannot be given with --ranks"
trainmark run $tiny --scaling 1,2 --dry-run
failed_with 2 "a plan" "--scaling cannot be given with --dry-run"
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 trainmark run $tiny --scaling 1,2
failed_with 4 "under a launcher that starts no MPI" "without torchrun or its like"

# --- one size takes no MPI; one that cannot be is said -------------------------------------------------------------------

trainmark run $tiny $short --scaling 1,3 --scaling-mode strong --training.global_batch_size 4 --out uneven
failed_with 4 "a batch that does not divide" "on 3 ranks the run ended with exit code 4"
check "the other size ran" [ "$(column uneven/scaling.csv status)" = "done failed " ]
check "why is below the table" has "$out" "3 ranks: a step of 4 sequences cannot be divided among 3 ranks"
check "its exit code is in it" [ "$(column uneven/scaling.csv exit_code)" = "0 4 " ]

# --- with an MPI ---------------------------------------------------------------------------------------------------------

trainmark run $tiny --ranks 2 --training.steps 1 --out probe
if [ "$code" -eq 4 ]; then
    skip "scaling over ranks" "no MPI is here"
    finish
    exit
fi
trainmark run $tiny $short --scaling 1,2 --out weak --json
check "weak scaling runs" [ "$code" -eq 0 ]
check "prints its table as JSON" has "$out" '"scaling_efficiency_pct": *100[,.]'
check "every rank has the same batch" [ "$(column weak/scaling.csv global_batch)" = "2 4 " ]
set -- $(column weak/scaling.csv tokens_per_second) $(column weak/scaling.csv tokens_per_second_per_rank) \
    $(column weak/scaling.csv scaling_efficiency_pct) $(column weak/scaling.csv speedup)
check "tokens of all ranks" sound "$(awk "BEGIN { print 2 * $4 }")" "$2"
check "efficiency is that of a rank" sound "$(awk "BEGIN { print 100 * $4 / $3 }")" "$6"
check "speedup is that of all" sound "$(awk "BEGIN { print $2 / $1 }")" "$8"
check "losses of other batches are not compared" [ -z "$(column weak/scaling.csv loss_difference | tr -d ' ')" ]
check "the runs are there" [ -f weak/ranks-1/result.json -a -f weak/ranks-2/result.json ]

trainmark run $tiny $short --scaling 1,2 --scaling-mode strong --training.global_batch_size 4 --out strong
check "strong scaling runs" [ "$code" -eq 0 ]
check "with the same global batch" [ "$(column strong/scaling.csv global_batch)" = "4 4 " ]
check "and equal losses" [ "$(column strong/scaling.csv losses_equal)" = " true " ]
trainmark run $tiny --ranks 2 --training.steps 1000000 --timeout 1.5 --out short
failed_with 130 "all ranks stop when the time is over" "stopped by --timeout after 1.5 s"
check "and the steps so far are a result" [ -f short/result.json ]
finish
