#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `run` as a rank of torchrun or its like, over TCP: what each rank says and leaves. With an MPI: test_ranks.sh.
# shellcheck disable=SC1091,SC2012,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
unset TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE GROUP_RANK
export OMP_WAIT_POLICY=passive
short="$tiny --training.steps 4"

start 2 run $short --out both
check "two ranks train" ended "0 0"
check "the first tells of it" has "$out" "^step: +4  loss:"
check "the other says nothing" [ ! -s out.1 -a ! -s err.1 ]
check "they leave what one leaves" [ "$(ls -A both | tr '\n' ' ')" = "config.yaml environment.csv metrics.jsonl perf.csv result.json " ]
check "what the launcher has told is no setting of the run" [ "$(sed -n '/^launch:/,/^log:/p' both/config.yaml)" = \
"launch:
  local_rank: 0  # torchrun or its like
  local_world_size: 1  # torchrun or its like
  nnodes: 1  # torchrun or its like
  node_rank: 0  # torchrun or its like
  rank: 0  # torchrun or its like
  world_size: 1  # torchrun or its like
log:" ]
check "but how many ranks there are" has both/config.yaml '^  ranks: 2  # torchrun or its like$'
trainmark run $short --training.global_batch_size 4 --training.separate_sums 2 --out alone
hash_of() { grep -o '"weights_hash": *"[^"]*"' $1/result.json; }
check "the weights are those of one rank that sums two parts apart" [ -n "$(hash_of both)" -a "$(hash_of both)" = "$(hash_of alone)" ]

start 2 run $short --out both --json
check "again, as JSON" ended "0 0"
check "the result and nothing else" cmp -s "$out" both/result.json
start 2 run $short --out /dev/null/x
check "the first cannot write" ended "4 4"
check "it says so, once" [ "$(cat err.0)$(wc -l <err.1)" = \
    "trainmark: rank 0: cannot create directory '/dev/null/x': Not a directory; name another one0" ]
start 2 run $tiny --training.steps 1000000 --timeout 0.5 --out stopped
check "both are stopped" ended "130 130"
check "it is said once, too" [ "$(grep -cE '^(stopped by --timeout after 0.5 s|trainmark: interrupted: .*|results in stopped;.*)$' err.0) \
$(wc -l <err.1)" = "3 0" ]
start 2 run $short '--debug.seed=[1,2]' --out never
check "a sweep" ended "4 4"
check "is told by both, too" [ "$(sort -u err.0 err.1)" = "trainmark: invalid configuration or input: a sweep starts the \
ranks of each run itself: use --ranks 2 instead of torchrun or its like" ]
check_not "nothing was begun" [ -e never ]

# Where both may use all processors, each takes its share; where they were given others, each keeps them.
model="--model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 --training.seq_len 32
       --training.local_batch_size 2 --training.stop_at_target false --validation.enable false --training.steps 2"
threads_of() { sed -n 's/^  "threads": \([0-9]*\),$/\1/p' "$1/result.json"; }
if command -v taskset >/dev/null && [ "$(nproc)" -ge 2 ]; then
    start 2 run $model --out shared
    check "a share of the processors" [ "$codes $(threads_of shared)" = "0 0 $(($(nproc) / 2))" ]
    cat >narrow <<END
#!/bin/sh
[ "\$RANK" = 1 ] && exec taskset -c "$(taskset -pc $$ | sed 's/.*: \([0-9]*\).*/\1/')" "$TRAINMARK" "\$@"
exec "$TRAINMARK" "\$@"
END
    chmod +x narrow
    whole=$TRAINMARK
    TRAINMARK=./narrow
    start 2 run $model --out apart
    TRAINMARK=$whole
    check "all that it was given" [ "$codes $(threads_of apart)" = "0 0 $(nproc)" ]
else
    skip "shares of the processors" "taskset or a second processor is not here"
fi

# Lines of ranks that come together do not mix: each is written as a whole. A pipe that has room for the beginning of a line
# only gets nothing of it.
mkfifo lines
exec 3<>lines
if dd if=/dev/zero of=lines bs=4096 count=15 oflag=nonblock 2>/dev/null; then
    head -c 4056 /dev/zero >&3
    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 "$TRAINMARK" run --no-such-option 2>&3 >"$out" </dev/null &
    writer=$!
    sleep 0.5
    kill -9 $writer
    wait $writer 2>/dev/null
    head -c $((16 * 4096 - 40)) <&3 >"$out"
fi
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 "$TRAINMARK" run --no-such-option 2>&3 >"$out" </dev/null
code=$?
head -n 1 <&3 >first
exec 3<&-
check "a line of a rank is written as a whole" [ "$code $(cut -c 1-57 first)" = \
    "2 trainmark: wrong usage: unknown option '--no-such-option'" ]
finish
