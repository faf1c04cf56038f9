# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What the command-line tests share: runs of the program in a folder of their own, and lines of TAP.
#
# A test file sources this, calls `trainmark ARGUMENTS` and then checks what came of it; `finish` is its last line.
# After `trainmark`: $code is the exit code, $out and $err are files with what was printed.
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
TRAINMARK=${TRAINMARK:-$root/trainmark}
work=$(mktemp -d) || exit 1
out=$work/.stdout
err=$work/.stderr
code=0
tests=0
failures=0
seconds=${TM_TEST_SECONDS:-240} # of one run of the program: as long as the runner waits for the script
trap 'chmod -R u+rwX "$work" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1

# Nothing of the caller's environment may change a run.
# Results go into a store of the test, never into the user's.
export TRAINMARK_STORE="$work/.results.db"
unset EXP SEED RANK WORLD_SIZE NNODES NODE_RANK GPUS_PER_NODE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
unset TRAINMARK_SECRET TRAINMARK_SECRET_FILE
unset PRIMUS_TEAM PRIMUS_USER PRIMUS_EXP_NAME PRIMUS_WORKSPACE PRIMUS_SEQ_LENGTH PRIMUS_GLOBAL_BATCH_SIZE PRIMUS_TP
unset PRIMUS_PP PRIMUS_EP PRIMUS_NUM_LAYERS PRIMUS_LOG_LEVEL PRIMUS_LOG_COLOR PRIMUS_DETERMINISTIC TRAIN_LOG
unset MAD_MODEL_BATCH_SIZE MAD_RUNTIME_NGPUS SLURM_NNODES SLURM_NODEID SLURM_PROCID SLURM_LOCALID
unset pipeline BUILD_NUMBER OMP_NUM_THREADS OPENBLAS_CORETYPE
export TRAINMARK_CUDNN=none # own attention, unless a test wants the stand-in
export TRAINMARK_CUBLAS=none TRAINMARK_ROCBLAS=none
unset HF_HUB_OFFLINE TRANSFORMERS_OFFLINE
export HF_HUB_CACHE="$work/.hub" # there is none, unless a test gives one
unset MAKEFLAGS MFLAGS MAKELEVEL VARIANT ISA BUILD V DRAW EXTRA_CFLAGS EXTRA_LDFLAGS

# A model and a batch that train a step in milliseconds. $tiny is split into words on purpose, everywhere.
# shellcheck disable=SC2034
tiny="--model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 --training.seq_len 32
      --training.local_batch_size 2 --training.threads 1 --training.stop_at_target false --validation.steps 1
      --metrics.log_freq 1"

# Runs the program; standard output and error go to $out and $err.
trainmark()
{
    timeout -k 5 "$seconds" "$TRAINMARK" "$@" >"$out" 2>"$err" </dev/null
    code=$?
}

pass() { tests=$((tests + 1)); echo "ok $tests - $1"; }

# fail NAME WHAT...: what was wrong, then what the program said.
fail()
{
    tests=$((tests + 1))
    failures=$((failures + 1))
    echo "not ok $tests - $1"
    shift
    for fail_line; do echo "# $fail_line"; done
    for fail_file in "$out" "$err"; do
        [ -s "$fail_file" ] && echo "# ${fail_file##*/.}:" && tail -n 12 "$fail_file" | cut -c 1-400 | sed 's/^/#   /'
    done
}

skip() { tests=$((tests + 1)); echo "ok $tests - $1 # SKIP $2"; }

# check NAME COMMAND...: passes if the command does.
check()
{
    check_name=$1
    shift
    if "$@"; then pass "$check_name"; else fail "$check_name" "false: $*"; fi
}

# The same for the opposite.
check_not()
{
    check_name=$1
    shift
    if "$@"; then fail "$check_name" "true: $*"; else pass "$check_name"; fi
}

# Does FILE have a line that matches the extended regular expression?
has() { grep -qE -e "$2" "$1"; }

# Names of files that a write left half done below the working folder.
torn_files() { find . -name '*.tmp*' -o -name '*.old' | sort | tr '\n' ' '; }

# failed_with CODE NAME PATTERN...: the exit code is CODE, standard error has every pattern (extended regular expressions),
# is one message of at most 12 lines without leftovers of a format, and no half-written file is left.
failed_with()
{
    failed_code=$1
    failed_name=$2
    shift 2
    if [ "$code" -ne "$failed_code" ]; then
        fail "$failed_name" "exit code $code, wanted $failed_code"
        return
    fi
    for failed_pattern; do
        if ! has "$err" "$failed_pattern"; then
            fail "$failed_name" "standard error lacks: $failed_pattern"
            return
        fi
    done
    failed_left=$(torn_files)
    if [ "$(wc -l <"$err")" -gt 12 ]; then
        fail "$failed_name" "more than 12 lines on standard error"
    elif grep -qE '\(null\)|%[sdlz]| [,;]|;;' "$err"; then
        fail "$failed_name" "the message has leftovers of a format"
    elif [ -n "$failed_left" ]; then
        fail "$failed_name" "half-written files are left: $failed_left"
    else
        pass "$failed_name"
    fi
}

# says CODE PATTERN WORD...: runs the program; it ends with CODE, and what it prints or complains of has the pattern (if any).
says()
{
    says_code=$1
    says_pattern=$2
    shift 2
    trainmark "$@"
    if [ -n "$says_pattern" ] && ! has "$out" "$says_pattern" && ! has "$err" "$says_pattern"; then
        fail "$*" "exit code $code, wanted $says_code" "nothing says: $says_pattern"
    elif [ "$says_code" -ne 0 ]; then
        failed_with "$says_code" "$*"
    else
        check "$*" [ "$code" -eq 0 ]
    fi
}

# table: rows "CODE | WORDS | TEXT [| TEXT...]" of standard input. The command, whose words are split as a shell does, ends with
# the code, and what it prints or complains of has each text, whatever the number of blanks. Lines with # are for readers.
table()
{
    sed '/^#/d; /^ *$/d' >.table
    while IFS= read -r table_row <&3; do
        table_code=${table_row%% | *}
        table_rest="${table_row#* | } | "
        table_line=${table_rest%% | *}
        table_rest=${table_rest#* | }
        eval "trainmark $table_line"
        table_problem=
        [ "$code" -eq "$table_code" ] || table_problem="exit code $code, wanted $table_code"
        cat "$out" "$err" | tr -s ' ' >.said
        while [ "$table_rest" ]; do
            grep -qF -e "${table_rest%% | *}" .said || table_problem=${table_problem:-"nothing says: ${table_rest%% | *}"}
            table_rest=${table_rest#* | }
        done
        if [ -z "$table_problem" ]; then pass "$table_line"; else fail "$table_line" "$table_problem"; fi
    done 3<.table
}

# members NAME: the values of all members of that name in the JSON in $out, each in a line of its own there.
# shellcheck disable=SC2005,SC2046
members() { echo $(sed -n "s/^ *\"$1\": \(.*[^,]\),*\$/\1/p" "$out"); }

# value FILE NAME: of the first line `"NAME": value` of a JSON file, without quotes.
value() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" | head -n 1; }
# losses FOLDER: of every step that a run has recorded.
losses() { sed -n 's/^{"step": [0-9]*, "loss": \([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
# column FILE NAME: the cells of a column of a CSV file without quotes, each with a blank behind it.
column() { awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { printf "%s ", $at }' "$1"; }

# prints TEXT WORD...: the command ends well, and this is all that it prints.
prints()
{
    prints_text=$1
    shift
    trainmark "$@"
    if [ "$code" -eq 0 ] && [ "$(cat "$out")" = "$prints_text" ]; then
        pass "$*"
    else
        fail "$*" "exit code $code" "wanted: $prints_text"
    fi
}

# start N WORD...: the program as N ranks, as a launcher that only sets the environment starts them; rank R with the words of the
# file words.R behind these, and ./program.R instead if that is there. HOSTS=1: each on a host of its own. Sets $codes; $out is
# that of rank 0, $err has all; out.R and err.R are those of rank R.
start()
{
    start_n=$1
    shift
    rm -f out.[0-9]* err.[0-9]*
    start_port=$((${start_port:-$((20000 + $$ % 12000))} + 2)) # below those that the system gives to anybody
    for start_rank in $(seq $((start_n - 1)) -1 0); do
        start_program=$TRAINMARK
        [ ! -f "program.$start_rank" ] || start_program=./program.$start_rank
        ( export RANK="$start_rank" WORLD_SIZE="$start_n" MASTER_ADDR=127.0.0.1 MASTER_PORT=$start_port
          if [ -n "${HOSTS:-}" ]; then
              export LOCAL_RANK=0 GROUP_RANK="$start_rank"
          else
              export LOCAL_RANK="$start_rank" LOCAL_WORLD_SIZE="$start_n" NNODES=1 NODE_RANK=0
          fi
          # shellcheck disable=SC2046
          exec timeout -k 5 "$seconds" "$start_program" "$@" $(cat "words.$start_rank" 2>/dev/null) >"out.$start_rank" \
              2>"err.$start_rank" </dev/null ) &
        echo $! >"pid.$start_rank"
    done
    codes=
    for start_rank in $(seq 0 $((start_n - 1))); do
        wait "$(cat "pid.$start_rank")"
        codes="${codes:+$codes }$?"
    done
    cp out.0 "$out"
    cat err.* >"$err"
}
ended() { [ "$codes" = "$1" ] || { echo "# exit codes: $codes"; false; }; }

finish()
{
    echo "1..$tests"
    [ "$failures" -eq 0 ] && [ "$tests" -gt 0 ]
    exit
}
