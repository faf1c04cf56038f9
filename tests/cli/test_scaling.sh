#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run --scaling: the same experiment on several numbers of ranks, and its table.
# shellcheck disable=SC1091,SC2154,SC2086,SC2046
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive
short="--training.steps 12"

# --- refused before anything is started ---------------------------------------------------------------------------------

says 2 "--scaling takes up to 16 numbers of ranks, 1 to 256 each, as in 1,2,4; found '1,zero'" run $tiny --scaling 1,zero
says 2 "--scaling has 2 twice" run $tiny --scaling 2,1,2
for other in "--ranks 2" --dry-run --evaluate --print-config; do
    says 2 "--scaling cannot be given with ${other% 2}; leave" run $tiny --scaling 1,2 $other
done
says 2 "--scaling cannot be given with several values of a key" run $tiny --scaling 1,2 '--debug.seed=[1,2]'

# --- one size takes no MPI; one that cannot be is said -------------------------------------------------------------------

says 4 "on 3 ranks the run ended with exit code 4" run $tiny $short --scaling 1,3 --scaling-mode strong --training.global_batch_size 4 --out uneven
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
says 0 '"scaling_efficiency_pct": *100[,.]' run $tiny $short --scaling=1,2 -o weak --json
check "every rank has the same batch" [ "$(column weak/scaling.csv global_batch)" = "2 4 " ]
check "losses of other batches are not compared" [ -z "$(column weak/scaling.csv loss_difference | tr -d ' ')" ]
check "the runs are there" [ -f weak/ranks-1/result.json -a -f weak/ranks-2/result.json ]

says 0 '' run $tiny $short --scaling 1,2 --scaling-mode strong --training.global_batch_size 4 --out strong
check "with the same global batch" [ "$(column strong/scaling.csv global_batch)" = "4 4 " ]
check "and equal losses" [ "$(column strong/scaling.csv losses_equal)" = " true " ]
says 130 "stopped by --timeout after 1 s" run $tiny --ranks 2 --training.steps 1000000 --timeout 1 --out short
check "and the steps so far are a result" [ -f short/result.json ]
finish
