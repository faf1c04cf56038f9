#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The panel of a run and of watch on a terminal of script(1): there when it should be, gone at the end, however the run
# ends. What stands on the screen after each frame: tests/record/test_panel.c.
# shellcheck disable=SC1091,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
job="run $tiny --training.steps 40 --debug.certificate false --store.path none --out r"

job=$(echo $job) # one line

# Runs the words on a terminal of 100 columns; what it got is in `typed`. Variables: in front of the words.
on_terminal()
{
    env -u LC_ALL -u LC_CTYPE -u NO_COLOR TERM=xterm LANG=C.UTF-8 script -qec "stty columns 100 rows 40; env $*" typed >/dev/null 2>&1
}
coded() { LC_ALL=C grep -aq "$(printf "$1")" typed; }
if ! command -v script >/dev/null || ! on_terminal true || [ ! -s typed ]; then
    skip "a panel" "no script(1), or it makes no terminal"
    finish
fi
on_terminal $TRAINMARK $job
check "there is a panel" coded 'step 40/40  100 %%.*ETA 0:00'
check "in color" coded '\033\[36m'
check "the report follows, and no frame" sh -c "tail -n 40 typed | grep -aq 'whole process' && ! tail -n 40 typed | grep -aq ETA"
on_terminal NO_COLOR=1 $TRAINMARK $job
check "NO_COLOR: a panel" coded ETA
check_not "without colors" coded '\033\[[0-9;]*m'
on_terminal TERM=dumb $TRAINMARK $job
check_not "TERM=dumb: none" coded '\033'
check "but the lines" coded 'step: 40 '

# Stopped by a signal: the line of the panel is gone, the report is there.
long="run $tiny --training.steps 100000 --debug.certificate false --store.path none --out s"
long=$(echo $long)
{
    echo timeout --foreground --preserve-status -s INT 3 $TRAINMARK $long
    echo 'echo "code $?"'
} >stopped.sh
on_terminal sh stopped.sh
check "Ctrl-C: a panel was there" coded ETA
check "the run is told as interrupted" coded 'interrupted: stopped after step'
check "its report comes last" sh -c "tail -n 30 typed | grep -aq '^code 130' && ! tail -n 30 typed | grep -aq ETA"

# watch
$TRAINMARK $long --out w >/dev/null 2>&1 &
pid=$!
i=0
while [ ! -s w/metrics.jsonl ] && [ $i -lt 100 ]; do
    sleep 0.1
    i=$((i + 1))
done
kill -STOP $pid # what it has written is enough
on_terminal "timeout --foreground -s INT 2 $TRAINMARK watch w --interval 0.2"
check "watch: a panel" coded 'step [0-9]*/100000'
check "gone at the end" sh -c "! tail -n 1 typed | grep -aq tokens"
kill -INT $pid
kill -CONT $pid
wait $pid 2>/dev/null
finish
