#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two programs that take turns: the script that compares two builds sees a large planted difference, its record is judged again, and
# nothing is left behind. Sessions: tests/bench/test_ab_live.c; options: test_ab_command.c.
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

# --- a slower build --------------------------------------------------------------------------------------------------------

cat >slower <<'END'
#!/bin/sh
[ "$1" = run ] && exec "$TRAINMARK" "$@" --debug.slowdown_pct 900
exec "$TRAINMARK" "$@"
END
chmod +x slower
export TRAINMARK
for _ in 1 2 3; do # again where it had no time for six rounds
    rm -rf script
    WORKLOADS=tiny-llama EXTRA="$args" TURN=0.05 BUDGET=30 TARGET=1000 "$root/bench/ab_binaries.sh" "$TRAINMARK" ./slower script >"$out" 2>"$err"
    code=$?
    grep -q inconclusive "$out" || break
done
commit=$("$TRAINMARK" version -v | sed -n 's/^ *"commit": "\{0,1\}\([^",]*\)"\{0,1\},$/\1/p')
[ "$commit" != null ] || commit=unknown
check "the script sees it, and says so in its exit code" [ "$code" -eq 5 ]
check "in its table" has "$out" \
    "^\| tiny-llama \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ to [0-9.]+ \| [0-9.]+ % \| [0-9]+ \| [a-z ]+ \| slower \|"
check "names the builds" has "$out" "^new: \./slower: trainmark [0-9.]+, commit $commit$"
sed -n '/^A  /,/^verdict/p' "$out" >live
trainmark ab --from script/tiny-llama
check "its record says the same" [ -s live -a "$(sed -n '/^A  /,/^verdict/p' "$out")" = "$(cat live)" ]
says 5 "B is slower by [0-9.]+ %, the limit \(--fail-if-slower\) is 20 %" ab --from script/tiny-llama --fail-if-slower 20

trainmark ab --a "$args" --b-binary /bin/true
failed_with 4 "a binary that is no trainmark" "--b-binary: '/bin/true' is not a trainmark" "--b-command"
says 4 "use --turn run" ab --a "llama3.1_405B" --b "llama3.1_405B" --turn 0.5

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

# A command that prints a step every so often.
echo 'while :; do sleep 0.01; n=$((n + 1)); echo "step $n"; done' >steps.sh
begin "int $$" --a-command "sh steps.sh 'int $$'" --b-command "sh steps.sh 'int $$'" --out stopped
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
