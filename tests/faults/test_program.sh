#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program with planted faults (tests/faults/): without one it is the program; each description acts in a whole run.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"
unset TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE GROUP_RANK TM_FAULT TM_FAULT_LOG
export OMP_WAIT_POLICY=passive
plain=$TRAINMARK
TRAINMARK=$(dirname "$(readlink -f "$plain")")/tests/faults/trainmark
short="$tiny --training.steps 4 --debug.certificate false"
port=$((20000 + $$ % 12000))
hash_of() { grep -o '"weights_hash": *"[^"]*"' "$1/result.json"; }
# The times of a run's steps and phases, in nanoseconds.
times_of() { sed 's/, "used_bytes".*//; s/.*"seconds"/"seconds"/' "$1/metrics.jsonl"; }
seconds_of() { sed -n "s/^{\"step\": $2,.*\"seconds\": \([0-9.e-]*\),.*/\1/p" "$1/metrics.jsonl"; }
phase_of() { sed -n "s/^{\"step\": $2,.*\"$3\": \([0-9.e-]*\),.*/\1/p" "$1/metrics.jsonl"; }
# is FORMULA: of awk
is() { awk "BEGIN { exit !($1) }"; }

# two FOLDER: two ranks of the program.
two()
{
    port=$((port + 1))
    for rank in 1 0; do
        ( export RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 NNODES=1 NODE_RANK=0 MASTER_ADDR=127.0.0.1 \
            MASTER_PORT=$port
          exec timeout -k 5 "$seconds" "$TRAINMARK" run $short --out "$1" >out.$rank 2>err.$rank </dev/null ) &
        echo $! >pid.$rank
    done
    wait "$(cat pid.0)" && wait "$(cat pid.1)"
    code=$?
    cat out.0 >"$out"
    cat err.0 err.1 >"$err"
}

# --- without a fault ----------------------------------------------------------------------------------------------------

"$plain" run $short --out plain >"$out" 2>"$err"
trainmark run $short --out none
check "nothing planted: the weights of the program" [ "$code" -eq 0 -a -n "$(hash_of none)" -a "$(hash_of none)" = "$(hash_of plain)" ]
two ranks
check "two ranks train" [ "$code" -eq 0 -a -n "$(hash_of ranks)" ]
TM_FAULT=flop,at=1 trainmark version
failed_with 4 "an unknown kind is named" "'flop' is no kind of fault; the kinds are flip, stuck, slow, link, .*full_disk.sh"

# --- faults -------------------------------------------------------------------------------------------------------------

export TM_FAULT_LOG="$work/log"
TM_FAULT='flip,op=linear,step=2,at=3;seed=3' trainmark run $short --out flipped
check "a flip changes the weights" [ "$code" -eq 0 -a "$(hash_of flipped)" != "$(hash_of plain)" ]
check "and is told once" [ "$(sed 's/"out.*//' log)" = '{"fault": "flip", "rank": 0, "step": 2, "event": 3, "where": "result", "op": "linear", ' ]
rm -f log
TM_FAULT='flip,where=memory,step=2,at=1;seed=3' trainmark run $short --out weight
check "a weight's bit, in the second step" [ "$(grep -c '"step": 2, "event": 1, "where": "memory", "tensor": ".*weight"' log)" = 1 ]
check "changes what is trained from there on" [ "$(grep -c . weight/metrics.jsonl)" -ge 4 -a "$(hash_of weight)" != "$(hash_of plain)" ]
rm -f log
TM_FAULT='stale,of=1,op=all_reduce,at=3' two stale
check "stale zeros in a sum of two ranks" [ "$(grep -c '"fault": "stale".*"of": 1' log)" = 2 -a "$code" -eq 0 ]
rm -f log
TM_FAULT=hang,before=launch,at=5 "$TRAINMARK" run $short --out hung >"$out" 2>"$err" </dev/null &
hung=$!
while [ ! -s log ] && kill -0 $hung 2>/dev/null; do sleep 0.05; done
check "a rank that hangs says so, and stays" kill -9 $hung
wait $hung 2>/dev/null
check "before its fifth launch" has log '"fault": "hang", "rank": 0, .*"event": 5'

# --- the made-up clock --------------------------------------------------------------------------------------------------

made='clock=made,noise=1;seed=5'
for run in 1 2; do TM_FAULT=$made trainmark run $short --out made$run; done
check "a run takes the same time again" [ "$code" -eq 0 -a "$(grep -c . made1/metrics.jsonl)" -ge 4 -a "$(times_of made1)" = "$(times_of made2)" ]
check "its weights are as ever" [ "$(hash_of made1)" = "$(hash_of plain)" ]
for run in 1 2; do TM_FAULT=$made two two$run; done
check "so do two ranks" [ "$code" -eq 0 -a -n "$(seconds_of two1 3)" -a "$(times_of two1)" = "$(times_of two2)" ]
check "with their weights" [ "$(hash_of two1)" = "$(hash_of ranks)" ]
# Rank 0 updates more of the weights than rank 1, which waits for it there.
TM_FAULT=clock=made two even
TM_FAULT="clock=made;slow,rank=0,percent=3" two slow0
own="($(seconds_of even 3) - $(phase_of even 3 communication))"
more0="($(seconds_of slow0 3) - $(seconds_of even 3))"
check "a step of two ranks is as much longer as its slow rank is slower" is "$more0 > 0.0295 * $own && $more0 < 0.03 * $own"

# --- drawn faults -------------------------------------------------------------------------------------------------------

"$here/draw.sh" 1 52 >drawn
"$here/draw.sh" 1 52 | cmp -s - drawn
check "the same seed draws the same faults" [ $? -eq 0 ]
check_not "another one others" sh -c '"$1/draw.sh" 2 52 | cmp -s - drawn' sh "$here"
check "four of each kind" [ "$(cut -d ' ' -f 2 drawn | sort | uniq -c | awk '$1 == 4' | wc -l)" -eq 13 ]
while read -r number kind tool who text; do
    [ "$kind" = full ] || TM_FAULT=$text "$TRAINMARK" version >/dev/null || echo "$number $tool $who"
done <drawn >"$out" 2>"$err"
check "the program takes them all" [ ! -s "$out" -a ! -s "$err" ]
finish
