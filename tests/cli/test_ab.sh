#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two programs that take turns: verdicts of large planted differences, records, whole runs, and that nothing is left behind.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive TMPDIR="$work/tmp"
mkdir "$work/tmp"
args=$(echo $tiny)

# none_left MARK: does no process hold MARK among its words, at the latest after a minute?
none_left()
{
    for _ in $(seq 600); do
        grep -las -e "$1" /proc/[0-9]*/cmdline >"$work/.left"
        [ -s "$work/.left" ] || return 0
        sleep 0.1
    done
    return 1
}
some_left() { [ -n "$(grep -las -e "$1" /proc/[0-9]*/cmdline)" ]; } # its exit code tells of processes that ended meanwhile, too

# A command that prints a step every so many turns of an empty loop, with other lines between them.
cat >steps.sh <<'END'
echo begin $2
n=0
while :; do
    i=0
    while [ $i -lt "$1" ]; do i=$((i + 1)); done
    n=$((n + 1))
    echo "step $n"
    echo "other words"
done
END

# --- sessions of six rounds, however long those take, two at a time, beside what is checked meanwhile: what they look for is far larger than what one
# does to the other

# at_once NAME COMMAND...: runs it in the background, again if it had no time for six rounds; its folder is NAME. When it has
# ended, `finished NAME` sets $code, $out and $err.
at_once()
{
    name=$1
    shift
    {
        for _ in 1 2 3; do
            rm -rf "${work:?}/$name"
            "$@" >"$work/$name.stdout" 2>"$work/$name.stderr" </dev/null
            echo $? >"$work/$name.code"
            grep -q "inconclusive" "$work/$name.stdout" || break
        done
    } &
}
finished()
{
    code=$(cat "$work/$1.code")
    cp "$work/$1.stdout" "$out"
    cp "$work/$1.stderr" "$err"
}
# compare FOLDER SETTING...
compare()
{
    folder=$1
    shift
    env WORKLOADS=tiny-llama EXTRA="$args" "$@" "$root/bench/ab_binaries.sh" ./old "$TRAINMARK" "$work/$folder"
}
# Sessions that run meanwhile write into these folders.
torn_files()
{
    find . \( -path ./binaries -o -path ./script -o -path ./tmp \) -prune -o \
        \( -name '*.tmp*' -o -name '*.old' \) -print | sort | tr '\n' ' '
}

cp "$TRAINMARK" old
cat >slower <<'END'
#!/bin/sh
[ "$1" = run ] && exec "$TRAINMARK" "$@" --debug.slowdown_pct 900
exec "$TRAINMARK" "$@"
END
chmod +x slower
export TRAINMARK
six_rounds="--turn 0.05 --budget 30 --target 1000 --min-pairs 6"

at_once binaries "$TRAINMARK" ab --a "$args" --b-binary ./slower $six_rounds --out binaries
at_once script compare script TURN=0.05 BUDGET=30 TARGET=1000 LEAST=1000000

# --- what goes wrong ------------------------------------------------------------------------------------------------------

trainmark ab --a "$args" --b-binary /bin/true
failed_with 4 "a binary that is no trainmark" "--b-binary: '/bin/true' is not a trainmark" "--b-command"
says 4 "use --turn run" ab --a "llama3.1_405B" --b "llama3.1_405B" --turn 0.5

# --- two binaries -----------------------------------------------------------------------------------------------------------

commit=$("$TRAINMARK" version -v | sed -n 's/^ *"commit": "\{0,1\}\([^",]*\)"\{0,1\},$/\1/p')
[ "$commit" = null ] && commit=unknown
wait
finished binaries
check "a slower binary is seen" has "$out" "^verdict +B is slower: \+[0-9.]+ % time per token$"
cp "$out" live.txt
trainmark ab --from binaries
check "and the record" cmp -s "$out" live.txt
says 5 "B is slower by [0-9.]+ %, the limit \(--fail-if-slower\) is 20 %" ab --from binaries --fail-if-slower 20

finished script
check "the script that compares two builds" has "$out" \
    "^\| tiny-llama \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ to [0-9.]+ \| [0-9.]+ % \| [0-9]+ \| [a-z ]+ \| (kept|slower) \|"
check "names them" has "$out" "^old: \./old: trainmark [0-9.]+, commit $commit$"
check "says in its exit code what it found" [ "$code" -eq "$(if has "$out" '\| slower \|$'; then echo 5; else echo 0; fi)" ]

# --- signals --------------------------------------------------------------------------------------------------------------

# begin MARK ARGUMENTS...: a session in the background whose children are there.
begin()
{
    mark=$1
    shift
    "$TRAINMARK" ab "$@" --budget 100 >"$out" 2>"$err" </dev/null &
    session=$!
    for _ in $(seq 600); do
        [ "$(grep -las -e "$mark" /proc/[0-9]*/cmdline | wc -l)" -ge 4 ] && break
        sleep 0.1
    done
    sleep 0.7
}

begin "int $$" --a-command "sh steps.sh 1000 'int $$'" --b-command "sh steps.sh 1000 'int $$'" --out stopped
kill -INT $session
wait $session
code=$?
failed_with 130 "an interrupted session" "stopped after [0-9.]+ s"
check "no child survives an interrupt" none_left "int $$"
check "what was done is kept" has stopped/session.jsonl '"end": "interrupted"'
says 0 '' ab --from stopped

begin "$work/own" --a "$args" --b "$args" --out "$work/own"
kill -KILL $session
wait $session 2>/dev/null
check "no run survives a kill" none_left "$work/own"

finish
