#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model whose optimizer states lie in a file, under a memory limit that the resident form exceeds: same weights, and
# what it costs.
#
#   MODEL=gpt-medium   STEPS=4   LIMIT_MIB=1650   BATCH=1   SEQ=256   FOLDER=(a temporary one)   TRAINMARK=./trainmark
#   CGROUP=folder of the memory controller in which a group may be made (default: this process's own)
# Where no group can be made, RLIMIT_DATA limits the memory that is not a file's.
set -eu
trainmark=${TRAINMARK:-./trainmark} model=${MODEL:-gpt-medium} steps=${STEPS:-4} limit=${LIMIT_MIB:-1650}
work=$(mktemp -d)
folder=${FOLDER:-$work}
group=

# The folder of this process's memory controller, version 1 or 2.
own_group()
{
    path=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
    if [ -n "$path" ]; then
        echo "/sys/fs/cgroup/memory$path"
    else
        echo "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)"
    fi
}

make_group()
{
    made=${CGROUP:-$(own_group)}/trainmark-offload-$$
    mkdir "$made" 2>/dev/null || return 1
    group=$made
    for file in memory.limit_in_bytes memory.max; do
        [ -w "$group/$file" ] && echo $((limit << 20)) >"$group/$file" && return 0
    done
    rmdir "$group"
    group=
    return 1
}

clean_up()
{
    [ -z "$group" ] || rmdir "$group" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

field() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$1" | head -n 1; }

# median FILE KEY: of all steps but the first.
median()
{
    sed -n 's/.*"'"$2"'": *\([0-9.e+-]*\).*/\1/p' "$1" | tail -n +2 | sort -g |
        awk '{ s[NR] = $1 } END { if (NR) printf "%.2f", s[int((NR + 1) / 2)]; else print "-" }'
}

# train NAME OFFLOAD WITH-LIMIT: one line of the table.
train()
{
    out=$work/$1
    path="--training.offload_path $folder"
    [ "$2" != none ] || path=
    # shellcheck disable=SC2086
    set -- "$1" "$2" "$3" "$trainmark" run "$model" --training.offload "$2" $path --training.steps "$steps" --training.local_batch_size "${BATCH:-1}" --training.seq_len "${SEQ:-256}" \
        --training.stop_at_target false --validation.enable false --out "$out"
    name=$1 limited=$3
    shift 3
    code=0
    if [ "$limited" = no ]; then
        "$@" >"$work/log" 2>&1 || code=$?
    elif [ -n "$group" ]; then
        sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$@" >"$work/log" 2>&1 || code=$?
    else
        # shellcheck disable=SC3045
        (ulimit -d $((limit << 10)) && exec "$@") >"$work/log" 2>&1 || code=$?
    fi
    if [ "$code" -ne 0 ]; then
        printf '%-20s %-8s exit %s: %s\n' "$name" "$limited" "$code" "$(tail -n 1 "$work/log" | cut -c 1-110)"
        return
    fi
    arena=$(($(field "$out/result.json" planned_bytes) >> 20))
    printf '%-20s %-8s %-17s %9s %9s %9s\n' "$name" "$limited" "$(field "$out/result.json" weights_hash)" "$arena" \
        "$(median "$out/metrics.jsonl" seconds)" "$(median "$out/metrics.jsonl" copies)"
}

if make_group; then
    echo "limit: $limit MiB of memory and page cache, control group $group"
else
    echo "limit: $limit MiB of memory that is not a file's (RLIMIT_DATA): no control group can be made here"
fi
printf '%-20s %-8s %-17s %9s %9s %9s\n' form limited weights 'arena MiB' s/step copies
train resident none no
train optimizer optimizer no
train resident-limited none yes
train optimizer-limited optimizer yes
train all-limited all yes
[ -z "$group" ] || [ ! -r "$group/memory.max_usage_in_bytes" ] ||
    echo "largest use of the group: $(($(cat "$group/memory.max_usage_in_bytes") >> 20)) MiB"
