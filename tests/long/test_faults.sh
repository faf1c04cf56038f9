#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A campaign of planted faults (tests/faults/draw.sh): each is given to the tool that has to find it. It must be found, and
# who is named must be to blame. A fault that did not act does not count: the next one of its kind takes its place. Without
# a fault the same tools find nothing.
#
#   SEED=1 COUNT=50 tests/long/test_faults.sh      KINDS='swap|tail' only those whose name matches
# shellcheck disable=SC1091,SC2086,SC2154,SC2206
first=${SEED:-1} count=${COUNT:-50} only=${KINDS:-.} # lib.sh forgets SEED
. "$(dirname "$0")/../cli/lib.sh"
export OMP_WAIT_POLICY=passive TM_FAULT_LOG="$work/log" TRAINMARK_SECRET=faults-are-planted-here
program=$(dirname "$(readlink -f "$TRAINMARK")")/tests/faults/trainmark
ranks=4 steps=400 deadline=10 seconds=200 minutes=0.1 port=$((20000 + $$ % 20000))
train="run $tiny --training.steps $steps --debug.certificate false --store.path none --out $work/run"
certify="certify --json --store none --minutes $minutes --seed $first"

hosts=
for way in "unshare -Ur --uts" "unshare --uts"; do $way hostname faults 2>/dev/null && hosts=$way; done
cores=$(taskset -c 0,1 nproc 2>/dev/null)

# world KIND ARGUMENTS: all ranks; "hosts": each on a host of its own by its name. The first rank's output is in out.0.
world()
{
    local apart=$1 i r=() name=() of=()
    shift
    port=$((port + 1))
    for ((i = ranks - 1; i >= 0; i--)); do
        r=(RANK=$i WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port)
        of=(LOCAL_RANK=$i LOCAL_WORLD_SIZE=$ranks NNODES=1 NODE_RANK=0) name=()
        if [ "$apart" = hosts ]; then
            of=(LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=$i NNODES=$ranks NODE_RANK=$i)
            # shellcheck disable=SC2016
            name=($hosts sh -c "hostname h$i; exec \"\$@\"" sh)
        fi
        env "${r[@]}" "${of[@]}" "${name[@]}" timeout -k 1 "$seconds" "$program" "$@" >out.$i 2>err.$i </dev/null &
        pid[i]=$!
    done
    if [ "$apart" = hung ]; then # who hangs is not waited for
        for ((i = 0; i < ranks; i++)); do [ "$i" = "$who" ] || wait "${pid[i]}" 2>/dev/null; done
        kill "${pid[who]}" 2>/dev/null
    fi
    for ((i = ranks - 1; i >= 0; i--)); do
        wait "${pid[i]}" 2>/dev/null
        code=$?
    done
}

# The findings of a certificate: a line each, "place: text".
findings()
{
    awk '/"findings": \[$/ { on = 1 } /^ *\],?$/ { on = 0 }
        on && /"place": / { sub(/^ *"place": "/, ""); sub(/",$/, ""); place = $0 }
        on && /"text": / { sub(/^ *"text": "/, ""); sub(/"$/, ""); print place ": " $0 }' out.0
}

# give: the fault to the tool. What it found is in `found`: a line each, with whom it names.
give()
{
    case $tool in
    ledger) world ranks $train ;;
    replay) world ranks $train --debug.replay 4 ;;
    deadline) world hung $train --deadline $deadline ;;
    run) full $train --checkpoint.enable true --checkpoint.interval 2 --training.steps 40 ;;
    disk) mkdir run && full $certify --only disk --disk-path "$work/run" ;;
    collectives) world ranks $certify --all-ranks --only collectives ;;
    links) world hosts $certify --all-ranks --only links ;;
    *) taskset -c 0,1 timeout -k 1 "$seconds" "$program" $certify --only "$tool" >out.0 2>err.0 </dev/null; code=$? ;;
    esac
    case $tool in
    ledger) sed -n 's/^trainmark: warning: \(rank [0-9]* on .* is slow: .*\)/\1/p' err.? ;;
    replay) grep -hE 'warning: step [0-9]+: its gradients|warning: the loss or gradient norm is not finite' err.? ;;
    deadline) grep -hoE 'rank [0-9]+ of group [a-z]+ is late: .*' err.? ;;
    run) grep -hE "input/output error.*$work/run.*No space left" err.0 ;;
    *) findings ;;
    esac | sort -u >found
}
full()
{
    unset TM_FAULT
    timeout -k 1 "$seconds" "$root/tests/faults/full_disk.sh" "$text" "$work/run" "$program" "$@" >out.0 2>err.0 </dev/null
    code=$?
    echo "no room after $text bytes" >log
}

# names LINE: whom a finding names, a word each; nothing: nobody.
names()
{
    case $tool in
    ledger | deadline) sed 's/^rank \([0-9]*\) .*/\1/' ;;
    replay) sed -n 's/.* differ, by rank \([0-9]*\) .*/\1/p; s/.*not finite: step [0-9]*, rank \([0-9]*\),.*/\1/p' ;;
    memory) sed -n 's/.*the thread of processor \([0-9]*\) saw.*/c\1/p' ;;
    run | disk) grep -q "No space left" && echo "$who" ;;
    collectives | links) sed 's/: .*//' | grep -oE 'rank [0-9]+' | sed 's/rank //' ;;
    *) sed 's/: .*//; s/^core \([0-9]*\)$/c\1/; s/ /_/g' ;;
    esac <<<"$1"
}

# judge: "found" and "named" (yes, no: nobody, or whom wrongly).
judge()
{
    local line whom one hits all=" ${who/-/ } "
    found=no named=no
    [ ! -s found ] || found=yes
    case $tool in ledger) ;; *) [ "$code" -eq 0 ] && found=no ;; esac
    while read -r line; do
        whom=$(names "$line")
        [ -n "$whom" ] || continue
        hits=0
        for one in $whom; do [[ $all == *" $one "* ]] && hits=$((hits + 1)); done
        # Of a link both ends; else one: a link, and both of a pair, have another end that is not to blame.
        if [ "$hits" -eq 0 ] || { [ "$kind" = link ] && [ "$hits" -ne 2 ]; }; then
            named="wrongly: $line"
            return
        fi
        named=yes
    done <found
}

# The steps from the first deed of the fault to the first finding, or the tool's seconds.
time_of()
{
    local acted warned
    acted=$(sed -n 's/.*"step": \([0-9]*\),.*/\1/p' log 2>/dev/null | sort -n | head -n 1)
    [ "$tool" != ledger ] || acted=$(sed 's/.*step=\([0-9]*\).*/\1/; t; s/.*/1/' <<<"$text")
    case $tool in
    ledger) warned=$(grep '"event": "straggler"' run/metrics.jsonl | sed 's/.*"step": \([0-9]*\),.*/\1/;q') ;;
    replay) warned=$(grep -oE 'step [0-9]+' found | sort -k 2 -n | sed 's/step //;q') ;;
    *) echo "$took s"; return ;;
    esac
    echo "$((${warned:-0} - ${acted:-0})) steps"
}

[ "${cores:-0}" -ge 2 ] || { skip "planted faults" "needs taskset, and the processors 0 and 1"; finish; }
"$root/tests/faults/draw.sh" "$first" $((3 * count)) $ranks 3 $steps >drawn
"$root/tests/faults/draw.sh" "$first" "$count" $ranks 3 $steps | awk '{ print $2 }' | sort | uniq -c >quota
: >table
while read -r number kind tool who text <&3; do
    grep -qE "$only" <<<"$kind" || continue
    left=$(awk -v kind="$kind" '$2 == kind { print $1 }' quota)
    [ "${left:-0}" -gt "$(grep -c "^$kind " table)" ] || continue
    [ "$kind" != link ] || [ -n "$hosts" ] || { skip "$number $kind" "no unshare here, or it is not allowed"; continue; }
    rm -rf run log
    begun=$(date +%s%N)
    TM_FAULT=$text give
    took=$(awk -v ns=$(($(date +%s%N) - begun)) 'BEGIN { printf "%.0f", ns / 1e9 }')
    case $kind in slow* | link) ;; *) [ -s log ] || { echo "# $number $kind: did not act"; continue; } ;; esac
    judge
    time=$(time_of)
    echo "$kind $tool $found ${named%%:*} $time" >>table
    if [ "$found $named" = "yes yes" ]; then
        pass "$number $kind by $tool: $text, $time"
    else
        fail "$number $kind by $tool: $text" "exit code $code; found: $found; $who named: $named" \
            "$(tail -n 3 err.0 | cut -c 1-300)"
    fi
done 3<drawn

echo "# seed $first"
echo "# | kind | by | planted | found | culprit named | time to find: median | longest |"
sort -k 1,2 -k 5,5n table | awk '
    function line()
    {
        if (!n) return
        printf "# | %s | %s | %d | %d | %d | ", kind, tool, n, found, named
        printf "%s | %s %s |\n", times[int((n + 1) / 2)], times[n], unit
    }
    $1 " " $2 != key { line(); n = found = named = 0; key = $1 " " $2; kind = $1; tool = $2; unit = $6 }
    { times[++n] = $5; found += $3 == "yes"; named += $4 == "yes" }
    END { line() }'
# The clocks are those of the faults above.
[ "$only" != . ] || for tool in ledger replay collectives links step product curve memory; do
    text="" who=0
    [ $tool != ledger ] || text="clock=made,noise=0.5,gflops=0.2,gigabytes=0.04,latency_us=0;seed=$first"
    case $tool in links | curve | product) text="clock=made,noise=0.5,gflops=5,wire=0.05;seed=$first" ;; esac
    rm -rf run log
    TM_FAULT=$text give
    check "$tool without a fault: nothing is found" [ ! -s found -a \( "$code" -eq 0 -o "$code" -eq 3 \) ]
done
[ "$only" != . ] || check "$count faults have acted" [ "$(grep -c . table)" -eq "$count" ]
finish
