#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same faults, planted from outside, in front of programs that test nodes: who finds what (docs/certify.md). Each
# program gets the same time, memory and fault. Needs root, stress-ng, memtester, python3 and a C compiler.
#
#   EACH=20   MIB=1024   CORE=1   SEED=1   TRAINMARK=./trainmark   LOGS=a folder for what each program said
#   bench/compare_node_tools.sh [memory] [core] [disk]
#
# A row: fault, program, exit code, seconds until it first told something (until its end where it told nothing), and what.
set -u
each=${EACH:-20} mib=${MIB:-1024} core=${CORE:-1} seed=${SEED:-1}
trainmark=$(realpath "${TRAINMARK:-./trainmark}") here=$(realpath "$(dirname "$0")")
work=$(mktemp -d) logs=${LOGS:-}
[ "$logs" ] || logs=$work/logs
mkdir -p "$logs" "$work/disk"
logs=$(realpath "$logs")
export TRAINMARK_STORE=none
planted=
lift() { [ -z "$planted" ] || kill "$planted" 2>/dev/null; wait "$planted" 2>/dev/null; planted=; }
trap 'lift; umount "$work/disk" 2>/dev/null; rm -rf "$work"' EXIT
for word in stress-ng memtester python3 cc; do
    command -v $word >/dev/null || { echo "$0: no $word here" >&2; exit 4; }
done
cc -std=gnu11 -O2 -o "$work/slow_core" "$here/slow_core.c" || exit 1
minutes=$(awk -v s="$each" 'BEGIN { print s / 60 < 0.1 ? 0.1 : s / 60 }')

# told PATTERN FAULT TOOL CODE: the row of a log of stamped lines.
told()
{
    awk -v pattern="$1" -v fault="$2" -v tool="$3" -v code="$4" '
        { last = $1 }
        $0 ~ pattern { if (!n++) { at = $1; $1 = ""; text = $0 } }
        END { printf "%-22s %-22s %4s %6.1f %4d %s\n", fault, tool, code, n ? at : last, n, n ? substr(text, 1, 300) : "nothing" }' "$logs/log"
}

# beside FAULT TOOL PATTERN COMMAND...: the command, with what $turn says turned in what it writes; lines get the seconds.
beside()
{
    fault=$1 tool=$2 pattern=$3
    shift 3
    begun=$EPOCHREALTIME
    "$@" >"$work/said" 2>&1 </dev/null &
    tool_pid=$!
    turning=
    if [ "$turn" ]; then
        # shellcheck disable=SC2086
        python3 "$here/turn_bits.py" $tool_pid $turn >"$work/turned" &
        turning=$!
    fi
    tail -n +1 -F --pid=$tool_pid -s 0.1 "$work/said" 2>/dev/null | python3 -c '
import re, sys, time
begun, rest = float(sys.argv[1]), ""
while piece := sys.stdin.buffer.read1(1 << 16):
    rest += piece.decode(errors="replace")
    *lines, rest = re.split("[\b\r\n]+", rest)
    print(*(f"{time.time() - begun:.1f} {line}" for line in lines), sep="\n", flush=True)
' "$begun" >"$logs/log" &
    reading=$!
    wait $tool_pid
    code=$?
    awk -v a="$EPOCHREALTIME" -v b="$begun" 'BEGIN { printf "%.1f ends\n", a - b }' >"$work/end"
    [ -z "$turning" ] || wait $turning
    wait $reading
    cat "$work/end" >>"$logs/log"
    told "$pattern" "$fault${turning:+ ($(tail -n 1 "$work/turned"))}" "$tool" $code
    mv "$logs/log" "$logs/$(echo "$fault-$tool" | tr ' /' '__').log"
    [ -z "$turning" ] || cp "$work/turned" "$logs/$(echo "$fault-$tool" | tr ' /' '__').turned"
}

findings='fail +\\||reads 0x|worse than|words are not|no verdict +\\||checkpoint .* (was loaded|cannot)'

memory()
{
    kib=$((mib * 1024))
    for turn in "" "memory $seed 1"; do
        fault=${turn:+bits in memory}
        fault=${fault:-no fault}
        beside "$fault" memtester 'FAILURE' timeout "$each" stdbuf -oL memtester "$mib"
        beside "$fault" "stress-ng --vm" 'fail' stress-ng --vm 2 --vm-bytes "$((mib / 2))m" --vm-keep --verify -t "$each"
        # Address space: what trainmark itself maps, and the blocks.
        beside "$fault" "certify memory" "$findings" bash -c "ulimit -v $((kib + 1600000)); exec \"\$@\"" - \
            "$trainmark" certify --only memory --minutes "$minutes" --seed "$seed"
        beside "$fault" "certify step" "$findings" "$trainmark" certify --only step --minutes "$minutes" --seed "$seed"
        beside "$fault" "run, replay 2" 'replay|not finite|differ|invalid' timeout $((3 * each)) "$trainmark" run tiny-llama \
            --training.steps "${RUN_STEPS:-80}" --training.stop_at_target false --validation.enable false --debug.replay 2 \
            --out "$work/run"
        rm -rf "$work/run"
    done
}

# rates: bogo operations a second, by real and by processor time, of a metrics line.
rates() { awk '/metrc/ && $5 == "cpu" { print $10 "/s, by processor time " $11 "/s" }' "$1" | tail -n 1; }

slow()
{
    turn=
    for plant in none "busy 10" "busy 30" "interrupts 135" "interrupts 45"; do
        # shellcheck disable=SC2086
        if [ "$plant" != none ]; then "$work/slow_core" "$core" $plant & planted=$!; fi
        beside "$plant" "stress-ng --cpu" 'fail' stress-ng --cpu "$(nproc)" --cpu-method matrixprod --verify --metrics -t "$each"
        echo "    all: $(rates "$logs/$(echo "$plant-stress-ng --cpu" | tr ' ' _).log")"
        others=$(((core + 1) % $(nproc)))
        for c in "$others" "$core"; do
            stress-ng --taskset "$c" --cpu 1 --cpu-method matrixprod --metrics -t "$each" >"$logs/core-$c" 2>&1 &
            eval "one_$c=\$!"
        done
        for c in "$others" "$core"; do eval "wait \$one_$c"; done
        for c in "$others" "$core"; do sed 's/^/0 /' "$logs/core-$c" >"$logs/stamped"; echo "    core $c alone by --taskset: $(rates "$logs/stamped")"; done
        beside "$plant" "certify product" "$findings" "$trainmark" certify --only product --minutes "$minutes" --seed "$seed"
        grep -h -A3 '| product' "$logs/$(echo "$plant-certify product" | tr ' ' _).log" | sed 's/^/    /'
        lift
    done
    # From the middle on.
    for plant in none "interrupts 45"; do
        # shellcheck disable=SC2086
        if [ "$plant" != none ]; then (sleep $((each / 2)); exec "$work/slow_core" "$core" $plant) & planted=$!; fi
        beside "$plant from half on" "certify curve" "$findings" "$trainmark" certify --only curve --minutes "$minutes" --seed "$seed"
        lift
    done
}

# From 5 seconds on, nothing is left of the disk but what a program frees, for 0.2 s at most.
fill()
{
    sleep 5
    for i in $(seq 1000); do
        free=$(df --output=avail -k "$work/disk" | tail -n 1)
        [ "$free" -lt 64 ] || fallocate -l "${free}k" "$work/disk/filler$i" 2>/dev/null
        sleep 0.2
    done
}

disk()
{
    for fault in "no fault" "full after 5 s" "bytes in files"; do
        turn=
        truncate -s 4G "$work/image" && mkfs.ext4 -q -m 0 "$work/image" && mount -o loop "$work/image" "$work/disk" || return
        for tool in "stress-ng --hdd" "certify disk"; do
            [ "$fault" != "bytes in files" ] || turn="$work/disk $seed 0.2"
            if [ "$fault" = "full after 5 s" ]; then
                fill &
                planted=$!
            fi
            if [ "$tool" = "certify disk" ]; then
                beside "$fault" "$tool" "$findings|No space" "$trainmark" certify --only disk --minutes "$minutes" --disk-path "$work/disk" --seed "$seed"
            else
                beside "$fault" "$tool" 'fail|No space|ENOSPC|errno' stress-ng --hdd 1 --hdd-bytes 64m --verify --metrics \
                    --temp-path "$work/disk" -t "$each"
            fi
            lift
            rm -rf "$work/disk"/*
        done
        umount "$work/disk"
    done
}

stress-ng --version
memtester 2>/dev/null | head -n 1
uname -sr
for part in ${*:-memory core disk}; do
    case $part in
    memory) memory ;;
    core) slow ;;
    disk) disk ;;
    *) echo "$0: no part '$part': memory, core, disk" >&2; exit 2 ;;
    esac
done
