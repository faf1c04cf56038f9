#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two programs that take turns: verdicts of large planted differences, records, whole runs, and that nothing is left behind.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive TMPDIR="$work/tmp"
mkdir "$work/tmp"
args=$(echo $tiny)

# value FILE NAME: of the first line `"NAME": value` of a JSON file.
value() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" | head -n 1; }
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
# One that ends: $1 steps of $2 seconds.
cat >short.sh <<'END'
i=0
while [ $i -lt "$1" ]; do sleep "$2"; i=$((i + 1)); echo $i; done
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
    find . \( -path ./kept -o -path ./commands -o -path ./binaries -o -path ./script -o -path ./tmp \) -prune -o \
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
at_once kept "$TRAINMARK" ab --a "$args" --b "$args --debug.slowdown_pct 900" $six_rounds --out kept
at_once commands "$TRAINMARK" ab --a-command "sh steps.sh 1000 'mark $$'" --b-command "sh steps.sh 10000 mark\\ $$" \
    --step-pattern '^step [0-9]+$' $six_rounds --out commands

# --- what goes wrong ------------------------------------------------------------------------------------------------------

trainmark ab --a-command "sh -c 'echo one; echo two; echo the reason >&2; exit 3'" --b-command "sh steps.sh 1000"
failed_with 4 "a command that dies" "(A|Control copy of A) \(sh -c .*\) exited after [0-9]+ steps \(exit code 3\)" "^ *the reason$"
trainmark ab --a-command "sh -c 'echo one; echo two'" --b-command "sh steps.sh 1000"
failed_with 4 "a command that is done" "exited after [0-9]+ steps \(exit code 0\); a command must keep printing steps until it is stopped"
trainmark ab --a "$args" --b-command "/no/such/program x"
failed_with 4 "a program that is not there" "cannot execute '/no/such/program': No such file"
trainmark ab --a "$args" --b-binary ./nowhere
failed_with 4 "a binary that is not there" "--b-binary: cannot execute './nowhere': No such file"
trainmark ab --a "$args" --a-binary "$work"
failed_with 4 "a binary that is a folder" "--a-binary: cannot execute '$work': Permission denied"
trainmark ab --a "$args" --b-binary /bin/true
failed_with 4 "a binary that is no trainmark" "--b-binary: '/bin/true' is not a trainmark" "--b-command"
LC_ALL=C sed 's/trainmark-turns 1/trainmark-turns 2/g' old >newer
chmod +x newer
trainmark ab --a "$args" --b-binary ./newer
failed_with 4 "a binary that takes turns in another way" \
    "B \(./newer run .*\) uses another turn protocol: it sends 'trainmark-turns 2', this program knows 'trainmark-turns 1'" \
    "--b-command"
LC_ALL=C sed 's/TRAINMARK_TURN_FD/TRAINMARK_TURN_NO/g' old >older
chmod +x older
trainmark ab --a "$args --training.steps 3" --a-binary ./older --b-binary ./old
failed_with 4 "a binary that takes no turns" "A( again)? .*does not know the turn protocol" "--a-command"
trainmark ab --a "$args --no.such_key 3" --a-binary ./old --b-binary ./old
failed_with 4 "arguments that a binary does not know" "A( again)? \(\./old run " "unknown key 'no.such_key'"
trainmark ab --a "$args" --b-binary ./old --b-command x
failed_with 2 "a binary and a command" "--b-command cannot be given with --b or --b-binary"
trainmark ab --a-command "sh short.sh 3 0.01" --b-command "sh -c 'exit 7'" --turn run
failed_with 4 "a whole run that fails" "B \(.*\) failed after 0 steps \(exit code 7\)"
trainmark ab --a-command "sleep 100" --b-command "sleep 100" --budget 1
failed_with 4 "no step within the budget" "the budget of 1 s ended before the first block" "raise --budget$"
trainmark ab --a "$args --model.layers 3" --b "$args"
failed_with 4 "a key that is none" "model.layers"
trainmark ab --a "$args --out x" --b "$args"
failed_with 2 "an output folder is not the caller's to give" "--out"
trainmark ab --a "llama3.1_405B" --b "llama3.1_405B" --turn 0.5
failed_with 4 "more memory than there is" "use --turn run"
# Two processes of A, one of B, and 64 MiB that each needs outside of its plan.
plan_of()
{
    [ "$1" != none ] || return
    "$TRAINMARK" run "$1" --dry-run --json --memory 1000TiB | awk '/"plan_bytes"/ && !n++ { gsub(/[^0-9]/, ""); print }'
}
needs() { awk -v a="$(plan_of "$1")" -v b="$(plan_of "$2")" -v n="$3" 'BEGIN { printf "%.2f TiB", (2 * a + b + n * 67108864) / 1099511627776 }'; }
trainmark ab --a llama3.1_405B --b llama3.1_70B --turn 0.5
failed_with 4 "the memory of three" "A, B and A again need $(needs llama3.1_405B llama3.1_70B 3) at a time, [0-9.]+ [MG]iB are free; use --turn run$"
trainmark ab --a llama3.1_70B --b llama3.1_405B --turn 0.5
failed_with 4 "A counts twice" "A, B and A again need $(needs llama3.1_70B llama3.1_405B 3) at a time"
trainmark ab --a llama3.1_405B --b-command "exit" --turn 0.5
failed_with 4 "that of a command is not known" "A, B and A again need $(needs llama3.1_405B none 2) at a time"
trainmark ab --a llama3.1_405B --b llama3.1_405B --budget 2
failed_with 4 "turns become whole runs" "note: A, B and A again need $(needs llama3.1_405B llama3.1_405B 3) at a time, .* are free: a turn is a whole run$"
trainmark ab --a "$args" --b "$args --model.layers=3"
failed_with 4 "the last word counts" "model.layers"
trainmark ab --a "x 'y" --b ""
failed_with 4 "a quote without end" "--a: a quote is not closed"
trainmark ab
failed_with 2 "no program" "give A: --a, --a-binary or --a-command"
trainmark ab --a "" --a-command x --b ""
failed_with 2 "two programs" "--a-command cannot be given with"
trainmark ab --a "" --b "" --turn 0.01
failed_with 2 "a turn that is too short" "'--turn' must be a number from 0.05"
trainmark ab --a "" --b "" --budgett 1
failed_with 2 "an option that is none" "unknown option '--budgett'"
trainmark ab --a "" --a "" --b ""
failed_with 2 "an option given twice" "'--a' is given twice"
trainmark ab --a-command x --b-command y --step-pattern '('
failed_with 4 "a pattern that is none" "not an extended regular expression"
trainmark ab --a "$args" --least-difference -1
failed_with 2 "a least difference below nothing" "'--least-difference' is out of range: found -1, wanted 0 to 1000"
trainmark ab --from "$out"
failed_with 4 "a record that is none" "line 0: the file is empty|the file is empty"
TRAINMARK_TURN_FD=99 trainmark run $args --training.steps 1
failed_with 4 "a socket that is not open" "TRAINMARK_TURN_FD is 99"
TRAINMARK_TURN_FD=x trainmark run $args --training.steps 1
failed_with 4 "a socket that is no number" "TRAINMARK_TURN_FD must be the number of an open socket, found 'x'"

# --- our own runs ---------------------------------------------------------------------------------------------------------

wait
at_once binaries "$TRAINMARK" ab --a "$args" --b-binary ./slower $six_rounds --out binaries
at_once script compare script TURN=0.05 BUDGET=30 TARGET=1000 LEAST=1000000
finished kept
cp "$out" live.txt
check "a session ends with 0, whatever it says" [ "$code" -eq 0 ]
check "an injected slowdown is seen" has "$out" "^verdict +B is slower: \+[0-9.]+ % time per token$"
check "the machine's own difference stands beside it" has "$out" "^A / A +[0-9.]+ +\[[0-9.]+, [0-9.]+\]"
check "the smallest difference that would be seen" has "$out" "^floor .* detected in about 4 of 5 sessions: +[0-9.]+ %$"
check "warm-up turns are counted, not used" has "$out" "turns of live processes with [0-9]+ steps count; besides these, (3[6-9]|[4-9][0-9]) warm-up turns with [0-9]+ steps and 0 cut steps do not"
check "it says why it ended" has "$out" "^ended +after [0-9.]+ s: (the half-width reached the target|the budget ended)$"
check "rounds are what is independent" [ "$(value kept/result.json rounds)" -ge 6 ]
check "the steps are kept" [ "$(grep -c '"kind": "counted"' kept/session.jsonl)" -ge 36 ]
check "every turn is whole steps of at least 0.05 s" awk '
    /"kind": "counted"/ { s = 0; sub(/.*\[/, ""); sub(/\].*/, ""); n = split($0, x, ", "); for (i = 1; i <= n; i++) s += x[i]
        if (s < 0.05) bad = 1 }
    END { exit bad }' kept/session.jsonl
check "ABBA: a block reads the same from both ends" awk -F'"' '
    /"block": 0,/ { side[++n] = $8 }
    END { exit !(n == 6 && side[1] == side[6] && side[2] == side[5] && side[3] == side[4] && side[1] != side[2] &&
        side[2] != side[3] && side[1] != side[3]) }' kept/session.jsonl
check "the result is kept" [ "$(value kept/result.json verdict)" = slower ]
trainmark ab --from kept
check "the record says the same again" cmp -s "$out" live.txt
trainmark ab --from kept/session.jsonl --json
check "and as JSON" cmp -s "$out" kept/result.json
trainmark ab --from kept --fail-if-slower 20
failed_with 5 "a gate" "B is slower by [0-9.]+ %, the limit \(--fail-if-slower\) is 20 %"
check "by what the verdict says" awk -v said="$(sed -n 's/.*B is slower by \([0-9.]*\) %.*/\1/p' "$err")" \
    -v verdict="$(sed -n 's/^verdict .*slower: +\([0-9.]*\) %.*/\1/p' live.txt)" 'BEGIN { d = said - verdict; exit !(said > 0 && d < 1 && d > -1) }'
trainmark ab --from kept --fail-if-slower 100000
check "a gate that is wide enough" [ "$code" -eq 0 ]
check "no run is left" none_left "$work/kept/A"
trainmark ab --from kept --least-difference 1
failed_with 2 "a record is judged as it was made" "--from evaluates a recorded session"
trainmark ab --from kept/result.json
failed_with 4 "a result is no record" "'kept/result.json', line 1"

mkdir own
TMPDIR="$work/own" trainmark ab --a "$args --training.steps 12" --b "$args --training.steps 12" --turn run --budget 200 --target 1000 --min-pairs 6 --json
check "whole runs" [ "$code" -eq 0 ]
check "whole runs: each block is a round" [ "$(value "$out" pairs)" = "$(value "$out" rounds)" ]
check "whole runs: six pairs are enough" [ "$(value "$out" pairs)" -eq 6 ]
check "it ends early when the interval is narrow" [ "$(value "$out" ended_by)" = target ]
check "whole runs: all steps but the warm-up count" [ "$(($(value "$out" steps) + $(value "$out" warmup_steps)))" -eq 432 ]
check "the runs' folder is removed" [ -z "$(ls "$work/own")" ]

trainmark run $args --training.steps 3 --debug.slowdown_pct 50 --out slow
check "a slowdown is told on standard error" has "$err" "warning: every step is slowed down by 50 % on purpose"
check "a slowed run is not judged" [ "$(value slow/result.json verdict)" = not-judged ]
check "and says why" has slow/result.json '"reason": "slowed down by 50 % on purpose \(debug.slowdown_pct\)'
check "its time is in the ledger" has slow/metrics.jsonl '"injected slowdown": 0\.'

# --- any command ----------------------------------------------------------------------------------------------------------

finished commands
check "commands take turns" has "$out" "^verdict +B is slower: \+[0-9.]+ % time per step$"
check "steps that a stop cut are counted" [ "$(value commands/result.json cut_steps)" -ge 12 ]
check "no command is left" none_left "mark $$"
trainmark ab --a-command "sh short.sh 5 0.04" --b-command "sh short.sh 5 0.01" --turn run --budget 200 --target 1000 --min-pairs 6
check "commands as whole runs" has "$out" "^B / A +0\.[0-7]"
compare short TURN=0.2 BUDGET=8 >"$out" 2>"$err"
code=$?
check "and that it is not precise enough" [ "$code" -eq 5 ]
check "too few rounds tell nothing" has "$out" "^verdict +inconclusive: [0-5] of the 6 rounds .*; give --budget [0-9]+$"
check "that it is too short is told after the first round" has "$err" "note: a verdict takes 6 rounds, and one takes [0-9.]+ s: --budget 8 is too short; the verdict will say what it takes$"
check "it ends with the budget" has "$out" "^ended +after [0-9.]+ s: the budget ended$"
check "with the way out" has "$out" "not precise enough: raise BUDGET"
trainmark ab --from short/tiny-llama --fail-if-slower 1000
failed_with 3 "a gate without a verdict" "[0-5] of 6 rounds are too few for --fail-if-slower; give --budget [0-9]+$"

# --- two binaries -----------------------------------------------------------------------------------------------------------

commit=$("$TRAINMARK" version -v | sed -n 's/^ *"commit": "\{0,1\}\([^",]*\)"\{0,1\},$/\1/p')
[ "$commit" = null ] && commit=unknown
wait
finished binaries
check "a slower binary is seen" has "$out" "^verdict +B is slower: \+[0-9.]+ % time per token$"
check "it has the other side's arguments" has "$out" "^B .* \./slower run --model"
check "the report says which trainmark each is" [ "$(grep -cE "^ +trainmark [0-9.]+, commit $commit\$" "$out")" -eq 2 ]
check "and so does the result" \
    [ "$(grep -cE "^ +\"build\": \"trainmark [0-9.]+, commit $commit\",\$" binaries/result.json)" -eq 2 ]
cp "$out" live.txt
trainmark ab --from binaries
check "and the record" cmp -s "$out" live.txt

finished script
check "the script that compares two builds" has "$out" \
    "^\| tiny-llama \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ to [0-9.]+ \| [0-9.]+ % \| [0-9]+ \| [a-z ]+ \| (kept|slower) \|"
check "names them" has "$out" "^old: \./old: trainmark [0-9.]+, commit $commit$"
check "says in its exit code what it found" [ "$code" -eq "$(if has "$out" '\| slower \|$'; then echo 5; else echo 0; fi)" ]
check "nothing is left in the folder for temporary files" [ -z "$(ls "$work/tmp")" ]

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
check "children are at work" some_left "int $$"
kill -INT $session
wait $session
code=$?
failed_with 130 "an interrupted session" "stopped after [0-9.]+ s"
check "no child survives an interrupt" none_left "int $$"
check "what was done is kept" has stopped/session.jsonl '"end": "interrupted"'
trainmark ab --from stopped
check "and can be judged" [ "$code" -eq 0 ]

begin "kill $$" --a-command "sh steps.sh 1000 'kill $$'" --b-command "sh steps.sh 1000 'kill $$'"
kill -KILL $session
wait $session 2>/dev/null
check "no child survives a kill" none_left "kill $$"

begin "$work/own" --a "$args" --b "$args" --out "$work/own"
kill -KILL $session
wait $session 2>/dev/null
check "no run survives a kill" none_left "$work/own"

finish
