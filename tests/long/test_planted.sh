#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Defects of training (tests/planted/defects.txt), planted one at a time into a copy of the sources: who sees them, the run
# (its verdict without certificates), its certificates, the test that judges the changed line? Each must be seen by those
# that the file names.
#
#   DEFECTS='rope|clip' tests/long/test_planted.sh   only those whose name matches
#   PLANTED=write tests/long/test_planted.sh         the file says what was seen
# shellcheck disable=SC1091,SC2086,SC2154
which=${DEFECTS:-.} mode=${PLANTED:-} # lib.sh forgets them
. "$(dirname "$0")/../cli/lib.sh"

list=$root/tests/planted/defects.txt
tree=$work/tree
steps=100
common="tiny-llama --training.local_batch_size 2 --training.seq_len 32 --model.n_layers 2 --model.dim 64 --model.n_heads 4
    --model.n_kv_heads 2 --training.stop_at_target false --validation.steps 4 --training.grad_accumulation 4 --store.path none"

mkdir "$tree"
(cd "$root" && tar -cf - --exclude=./build --exclude=./.git .) | tar -C "$tree" -xf -
mkdir -p "$tree/build" && cp -a "$root/build/release" "$tree/build/" 2>/dev/null
build() { (cd "$tree" && make --no-print-directory -j2 VARIANT=release "$@") >"$work/build.log" 2>&1; }
build build/release/trainmark || { tail -5 "$work/build.log" && exit 1; }

# words NAME: the values of that word in the block of the defect, a line each.
words() { awk -v name="$1" '$1 == name { sub(/^[a-z]+ */, ""); print }' "$work/defect"; }

# plant N: the N-th change; fails unless the text is there.
plant()
{
    awk -v from="$(words from | sed -n "$1p" | sed 's/\\/\\\\/g')" -v to="$(words to | sed -n "$1p" | sed 's/\\/\\\\/g')" '
        !done && (at = index($0, from)) { $0 = substr($0, 1, at - 1) to substr($0, at + length(from)); done = 1 }
        { print }
        END { exit !done }' "$tree/$(words file | sed -n "$1p")" >"$work/planted.c" &&
        cp "$work/planted.c" "$tree/$(words file | sed -n "$1p")"
}

# judge ARGUMENTS: the exit code of the planted program for the defect's run.
judge()
{
    kind= rest=
    for word in $(words run); do
        case $word in ranks | again | text | groups) kind=$word ;; *) rest="$rest $word" ;; esac
    done
    rm -rf "$work/run"
    set -- $common $rest --out "$work/run" "$@"
    case $kind in
    ranks) timeout 120 "$tree/build/release/trainmark" run --ranks 2 --training.steps $steps "$@" ;;
    text) timeout 60 "$tree/build/release/trainmark" run --training.steps $steps --data.source text --data.path "$root/docs" \
        --data.validation_fraction 0.1 "$@" ;;
    groups) timeout 60 "$tree/build/release/trainmark" run --training.steps $steps \
        --optimizer.groups '[{params: "*norm*", lr_scale: 0.1}]' "$@" ;;
    again)
        timeout 60 "$tree/build/release/trainmark" run --training.steps 60 --checkpoint.enable true "$@"
        timeout 60 "$tree/build/release/trainmark" run --training.steps 120 --checkpoint.enable true "$@"
        ;;
    *) timeout 60 "$tree/build/release/trainmark" run --training.steps $steps "$@" ;;
    esac >"$work/said" 2>&1 </dev/null
}

# One defect, in $work/defect; sets seen.
try()
{
    seen=
    n=0
    for file in $(words file); do
        n=$((n + 1))
        plant $n || { seen=lost && return; }
    done
    if build build/release/trainmark; then
        judge --debug.certificate false || seen="$seen run"
        judge
        [ $? -eq 0 ] || case $seen in *run*) ;; *) seen="$seen certificate" ;; esac
        reason=$(sed -n 's/^trainmark: invalid numbers: //p' "$work/said" | head -1)
        for test in $(words tests); do
            room=${test%/*}
            build "build/release/tests/$test" && (cd "$tree" && timeout 300 "build/release/tests/$test") >/dev/null 2>&1 ||
                seen="$seen tests"
        done
    else
        seen=unbuilt
    fi
    for file in $(words file); do cp -p "$root/$file" "$tree/$file" && touch "$tree/$file"; done
}

awk -v work="$work" 'BEGIN { RS = "" } /(^|\n)defect / { n++; file = work "/defects." n; print > file; close(file) }
    END { print n }' "$list" >"$work/count"
i=0
while [ $i -lt "$(cat "$work/count")" ]; do
    i=$((i + 1))
    cp "$work/defects.$i" "$work/defect"
    name=$(words defect)
    wanted=$(words seen)
    echo "$name" | grep -qE "$which" || continue
    if [ "$(words run | cut -d ' ' -f 1)" = ranks ] && ! command -v mpirun >/dev/null; then
        skip "$name" "there is no MPI"
        continue
    fi
    reason=
    try
    seen=$(echo $seen)
    echo "# $name: ${seen:-nobody}${reason:+ ($reason)}"
    if [ "$mode" = write ]; then
        awk -v name="$name" -v seen="${seen:-nobody}" '
            $1 == "defect" { mine = $0 == "defect " name }
            mine && $1 == "seen" { next }
            { print }
            mine && $1 == "tests" { print "seen  " seen }' "$list" >"$work/list" && cp "$work/list" "$list"
    else
        check "$name is seen by ${wanted:-somebody}" [ "${seen:-nobody}" = "$wanted" ]
    fi
done
finish
