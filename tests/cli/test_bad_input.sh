#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Wrong arguments, configurations, data, folders and checkpoints: each has its exit code and a message that says what is
# wrong, where, and the way out; nothing half written is left.
# shellcheck disable=SC1091,SC2016,SC2059,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# A tiny run; arguments may replace its own.
tiny_run() { trainmark run $tiny --training.steps 3 --out run "$@"; }

# yaml TEXT: the run of a configuration file c.yaml with these lines.
yaml()
{
    printf "$1" >c.yaml
    trainmark run c.yaml --out run
}

# --- usage: exit 2 --------------------------------------------------------------------------------------------------------

trainmark
check "no command: exit code 2" [ "$code" -eq 2 ]
check "no command: how to use it" has "$err" "usage: trainmark COMMAND"
check_not "no command: nothing on standard output" [ -s "$out" ]
trainmark runn
failed_with 2 "unknown command" "unknown command 'runn'" "did you mean 'run'" "trainmark help"
trainmark nothing-like-it
failed_with 2 "unknown command, none near" "unknown command 'nothing-like-it'; .trainmark help"
trainmark help nothing-like-it
failed_with 2 "help of an unknown command" "unknown command 'nothing-like-it'"
tiny_run --outt x
failed_with 2 "unknown option" "unknown option '--outt'; did you mean '--out'\?" "trainmark run --help"
tiny_run --training.steps
failed_with 2 "key without a value" "'--training.steps' needs a value: --training.steps VALUE"
tiny_run --training.steps --dry-run
failed_with 2 "key followed by an option" "'--training.steps' needs a value"
trainmark run --out
failed_with 2 "option without a value" "'--out' needs a value: --out DIR"
trainmark run --out --dry-run
failed_with 2 "option followed by an option" "'--out' needs a value"
trainmark run --out=
failed_with 2 "option with an empty value" "'--out' needs a value"
trainmark run --dry-run=yes
failed_with 2 "option that takes no value" "'--dry-run' takes no value"
trainmark explain --out x
failed_with 2 "explain writes nothing" "unknown option '--out'"
tiny_run tiny-llama gpt-small
failed_with 2 "two models" "cannot use argument 'gpt-small'" "wanted --key VALUE"
tiny_run '=5'
failed_with 2 "value without a key" "cannot use argument '=5'"
tiny_run -x
failed_with 2 "single dash" "unknown option '-x'"
trainmark models --jsn
failed_with 2 "unknown option of models" "unknown option '--jsn'; did you mean '--json'" "trainmark models --help"
trainmark keys trainink
failed_with 2 "unknown section of keys" "no key begins with 'trainink.'" "trainmark keys"
trainmark version now
failed_with 2 "argument of version" "unexpected 'now'" "trainmark version --help"

# --- values: exit 4 -------------------------------------------------------------------------------------------------------

trainmark run lama3.1_8B
failed_with 4 "unknown model" "unknown model 'lama3.1_8B'" "did you mean 'llama3.1_8B'" "trainmark models"
tiny_run --training.stepz 5
failed_with 4 "unknown key" "unknown key 'training.stepz'" "command line" "did you mean 'training.steps'"
tiny_run '--training={stepz: 3}'
failed_with 4 "unknown key in a map" "unknown key 'training.stepz'" "did you mean 'training.steps'"
tiny_run --training.steps abc
failed_with 4 "text for a number" "'training.steps' \(command line\) must be an integer, found 'abc'"
tiny_run --training.steps=
failed_with 4 "empty number" "'training.steps' \(command line\) must be an integer, found ''"
tiny_run --training.steps 1.5
failed_with 4 "fraction for an integer" "must be an integer, found '1.5'"
tiny_run --training.steps 99999999999999999999
failed_with 4 "number beyond 64 bits" "is out of range: found '99999999999999999999'"
tiny_run --optimizer.lr nan
failed_with 4 "nan" "'optimizer.lr' \(command line\) must be a number, found 'nan'"
tiny_run --training.steps null
failed_with 4 "null for a number" "'training.steps' .*must have a value, found null" "default is"
tiny_run --checkpoint.enable maybe
failed_with 4 "word for a boolean" "'checkpoint.enable' \(command line\) must be true or false, found 'maybe'"
tiny_run --training.steps 0
failed_with 4 "below the range" "'training.steps' \(command line\) is out of range: found 0, wanted 1 to"
tiny_run --optimizer.beta1 1.5
failed_with 4 "above the range" "'optimizer.beta1' \(command line\) is out of range: found 1.5, wanted 0 to"
tiny_run --metrics.log_style titann
failed_with 4 "unknown choice" "'metrics.log_style' .*must be one of titan, megatron; found 'titann'; did you mean 'titan'"
PRIMUS_SEQ_LENGTH=abc
export PRIMUS_SEQ_LENGTH
trainmark run
unset PRIMUS_SEQ_LENGTH
failed_with 4 "wrong environment variable" "'training.seq_len' \(environment PRIMUS_SEQ_LENGTH\) must be an integer, found 'abc'"
tiny_run --device nonsense
failed_with 4 "unknown device" "unknown device 'nonsense' \(--device\)" "cpu, cuda\[:N\], hip\[:N\], reference, null"
tiny_run --isa nonsense
failed_with 4 "unknown instruction set" "no 'nonsense' kernels \(--isa\)" "this machine runs: base"
tiny_run --device null --isa base
failed_with 4 "instruction set of another device" "--isa base is for device cpu, found device null"

# --- values that do not fit together --------------------------------------------------------------------------------------

tiny_run --model.n_heads 3
failed_with 4 "heads that do not divide" "model.dim 32 .*not a multiple of model.n_heads 3 \(command line\)" "change one"
tiny_run --model.n_heads 4 --model.n_kv_heads 3
failed_with 4 "key heads that do not divide" "model.n_heads 4 .*not a multiple of model.n_kv_heads 3"
tiny_run --model.head_dim 15
failed_with 4 "odd head width" "head width 15 .*odd" "make it even"
trainmark run gpt-small --training.seq_len 1024 --out run
failed_with 4 "more positions than the table" "training.seq_len 1024 \(command line\) exceeds model.max_seq_len 512 \(preset gpt-small\)"
tiny_run --training.global_batch_size 3
failed_with 4 "global batch not a multiple" "global_batch_size 3 \(command line\) is not a multiple of training.local_batch_size 2"
tiny_run --training.local_batch_size 16777216 --training.seq_len 16777216
failed_with 4 "more tokens than can be counted" "is more than 2147483648 tokens" "lower one of them"
tiny_run --training.local_batch_size 4000000
failed_with 4 "batch that cannot fit" "does not fit in memory" "the plan needs .*available" "lower training.local_batch_size"
check_not "the batch that cannot fit leaves no folder" [ -e run ]
trainmark run llama3.1_405B --out run
failed_with 4 "model that cannot fit" "does not fit in memory: weights, gradients and the optimizer.s state alone need" "smaller model"
check_not "no batch would help" has "$err" "local_batch_size"

# --- what is not supported ----------------------------------------------------------------------------------------------------

tiny_run --model.converters quantize.dense.float8
failed_with 4 "float8 by another converter" "'model.converters'" "float8.* is not supported" "there are quantize.linear.float8"
tiny_run --model.converters quantize.grouped_mm.mx --quantize.grouped_mm.mx.fqns experts
failed_with 4 "experts of a model without" "recipe mxfp8 is for experts, and the model has none"
tiny_run --fp8_wgrad false
failed_with 4 "float8 of some products" "'fp8_wgrad' = 'false' .*float8 without its gradients of weights is not supported"
tiny_run --quantize.recipe mxfp4 --training.seq_len 20 --training.local_batch_size 1
failed_with 4 "blocks that do not fit" "recipe mxfp4 does not fit" "summed over 20 elements" "quantize.filter_fqns"
tiny_run --quantize.recipe fp8_rowwise --quantize.filter_fqns attention.wk
failed_with 4 "a part of a fused product" "is one product of 3 linear layers, and only 2 of them"
tiny_run --parallelism.tensor_parallel_degree 2
failed_with 4 "tensor parallelism" "start 2 ranks, or change one"
tiny_run --optimizer.name Adam
failed_with 4 "another optimizer" "'optimizer.name' = 'Adam'" "not supported; set it to AdamW"
tiny_run --optimizer.momentum 0.9
failed_with 4 "a number of another optimizer" "'optimizer.momentum' \(command line\) is of optimizer.name SGD, this run has AdamW"
WORLD_SIZE=8
export WORLD_SIZE
tiny_run
unset WORLD_SIZE
failed_with 4 "eight processes" "environment WORLD_SIZE" "ranks are started with" "unset the variable"
tiny_run --quantize.linear.float8.recipe_name rowwise
failed_with 4 "float8 recipe" "quantize.linear.float8" "has an effect only with model.converters"

# --- configuration files --------------------------------------------------------------------------------------------------

trainmark run nothing.yaml
failed_with 4 "missing file" "cannot open configuration 'nothing.yaml'" "No such file" "check the path"
mkdir folder
trainmark run ./folder
failed_with 4 "folder for a file" "'./folder' is a directory; name a YAML file"
mkfifo fifo.yaml
trainmark run fifo.yaml
failed_with 4 "fifo for a file" "'fifo.yaml' is not a regular file"
truncate -s 3G huge.yaml
trainmark run huge.yaml
failed_with 4 "huge file" "'huge.yaml' has 3221225472 bytes, more than the limit"
printf 'training: \000\377\n' >binary.yaml
trainmark run binary.yaml
failed_with 4 "binary file" "'binary.yaml' is not a YAML text file" "wanted: UTF-8 text without control characters"
yaml 'training:\n  steps: [1, 2\n'
failed_with 4 "open bracket" "c.yaml:3:1: not valid YAML" "check brackets"
yaml 'training:\n\tsteps: 5\n'
failed_with 4 "tab" "c.yaml:2:1: not valid YAML" "spaces, not with tabs"
yaml 'model: tiny-llama\ntraining:\n  steps: 5\n  steps: 6\n'
failed_with 4 "key given twice" "c.yaml:4: duplicate key 'steps', first given in line 3" "remove one"
yaml 'model: tiny-llama\ntraining:\n  steps: 5\ntrain_iters: 6\n'
failed_with 4 "key and its synonym" "'training.steps' \(c.yaml:4\) is given twice, as 'train_iters' and before in c.yaml:3"
yaml 'model: tiny-llama\ntraining:\n  stepz: 5\n'
failed_with 4 "unknown key in a file" "unknown key 'training.stepz' \(c.yaml:3\); did you mean 'training.steps'"
yaml 'model: tiny-llama\ntraining:\n  steps: many\n'
failed_with 4 "wrong type in a file" "'training.steps' \(c.yaml:3\) must be an integer, found 'many'"
yaml 'training: {steps: 5}\n'
failed_with 4 "file without a model" "'model.dim' is not given" "name a preset"
{
    echo 'a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]'
    for pair in ab bc cd de ef fg gh hi; do
        to=${pair#?} from=${pair%?}
        echo "$to: &$to [*$from, *$from, *$from, *$from, *$from, *$from, *$from, *$from, *$from, *$from]"
    done
} >bomb.yaml
trainmark run bomb.yaml
failed_with 4 "alias bomb" "bomb.yaml:[0-9]+: its aliases .*expand to more than" "shorten"
awk 'BEGIN { for (i = 0; i < 5000; i++) printf "[" }' >deep.yaml
trainmark run deep.yaml
failed_with 4 "deep nesting" "deep.yaml:1: nested deeper than"
echo 'extends: two.yaml' >one.yaml
echo 'extends: [one.yaml]' >two.yaml
trainmark run one.yaml
failed_with 4 "extends in a circle" "extends is circular: 'two.yaml' extends 'one.yaml'"
yaml 'extends: nowhere.yaml\n'
failed_with 4 "extends a missing file" "'nowhere.yaml', named by c.yaml" "check the path"
yaml 'model: tiny-llama\ntraining:\n  steps: ${NOT_SET_ANYWHERE}\n'
failed_with 4 "unset variable" "'NOT_SET_ANYWHERE' \(c.yaml:3\) is not set" 'write \$\{NOT_SET_ANYWHERE:default\}'
yaml 'model: tiny-llama\ntraining:\n  steps: "${NOT_CLOSED"\n'
failed_with 4 "variable without its brace" "c.yaml:3\) has no closing brace"
yaml 'modules: {pre_trainer: {framework: torchtitan}}\n'
failed_with 4 "experiment without its group" "'c.yaml' lacks 'work_group'; add a line"
yaml 'work_group: a\nuser_name: b\nexp_name: c\nworkspace: w\nmodules:\n  pre_trainer:\n    framework: jax\n'
failed_with 4 "unknown framework" "framework 'jax' \(c.yaml:7\)" "wanted torchtitan"
EXP=nothing.yaml
export EXP
trainmark run
unset EXP
failed_with 4 "EXP names a missing file" "'nothing.yaml'" "No such file"

# --- data -----------------------------------------------------------------------------------------------------------------

seq 1 5000 >text.txt
trainmark run $tiny --training.mock_data false --out run
failed_with 4 "no mock data, no path" "training.mock_data is false \(command line\)" "give data.path"
tiny_run --data.source text
failed_with 4 "text without a path" "data.path names no file or directory; give --data.path"
tiny_run --data.path nowhere
failed_with 4 "missing text" "cannot reach 'nowhere': No such file"
mkdir empty with_fifo loop self dangling
tiny_run --data.path empty
failed_with 4 "empty folder" "no text in 'empty'" "give data.path"
mkfifo with_fifo/pipe
tiny_run --data.path with_fifo
failed_with 4 "fifo in a folder" "'with_fifo/pipe' is a fifo" "remove it"
ln -s . loop/again
tiny_run --data.path loop
failed_with 4 "folder that contains itself" "'loop/again' is a symbolic link .*loop; remove it"
ln -s me self/me
tiny_run --data.path self
failed_with 4 "link to itself" "'self/me' is a symbolic link that leads back to itself; remove it"
ln -s nowhere dangling/link
tiny_run --data.path dangling
failed_with 4 "link to nothing" "'dangling/link' is a dangling symbolic link"
tiny_run --data.path /dev/zero
failed_with 4 "device for a text" "'/dev/zero' is a device"
echo short >short.txt
tiny_run --data.path short.txt
failed_with 4 "text shorter than a window" "'short.txt' has .* tokens to train on, wanted at least 33" "give more text"
tiny_run --data.path text.txt --model.vocab_size 100
failed_with 4 "vocabulary smaller than bytes" "model.vocab_size is 100 \(command line\), but data.source text needs 257"
# Root may do everything: these are of a user who may not.
program=$TRAINMARK
if [ "$(id -u)" -eq 0 ]; then
    chmod 755 .
    printf '#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups "%s" "$@"\n' "$program" >unprivileged
    chmod 755 unprivileged
    TRAINMARK=$work/unprivileged
fi
if ! "$TRAINMARK" version >/dev/null 2>&1; then
    skip "unreadable folder" "root cannot become another user here"
    skip "unreadable file" "root cannot become another user here"
    skip "run directory that cannot be written" "root cannot become another user here"
else
    mkdir closed
    cp text.txt closed/a
    [ "$(id -u)" -ne 0 ] || chown -R 65534 closed
    chmod 0 closed
    tiny_run --data.path closed
    failed_with 4 "unreadable folder" "cannot read directory 'closed': Permission denied; give read permission"
    chmod 700 closed
    chmod 0 closed/a
    tiny_run --data.path closed
    failed_with 4 "unreadable file" "cannot read 'closed/a': Permission denied; give read permission"
    chmod 500 closed
    tiny_run --out closed/run
    failed_with 4 "run directory that cannot be written" "cannot create directory 'closed/run': Permission denied"
fi
TRAINMARK=$program
check_not "no wrong configuration or data made a run directory" [ -e run ]

# --- what is written ------------------------------------------------------------------------------------------------------

tiny_run --out text.txt
failed_with 4 "file for a run directory" "'text.txt' exists and is not a directory; name another"
tiny_run --out text.txt/below
failed_with 4 "run directory below a file" "cannot create directory 'text.txt/below': Not a directory"
tiny_run --perf-csv text.txt
failed_with 4 "perf.csv with another header" "cannot append to 'text.txt': header is \"1\", wanted \"model,n_gpus" 
tiny_run --perf-csv empty
failed_with 4 "folder for perf.csv" "'empty' is not a regular file"
tiny_run --perf-csv nowhere/perf.csv
failed_with 4 "perf.csv in a missing folder" "cannot write to 'nowhere' \(--perf-csv nowhere/perf.csv\)" "name another file"
check_not "none of these made a run directory" [ -e run ]
check "the file with another header is as it was" [ "$(wc -l <text.txt)" -eq 5000 ]

# to_full NAME ARGUMENTS...: standard output is a full disk.
to_full()
{
    name=$1
    shift
    : >"$out"
    timeout -k 5 "$seconds" "$TRAINMARK" "$@" >/dev/full 2>"$err" </dev/null
    code=$?
    failed_with 1 "full disk behind standard output: $name" "cannot write to"
}
if [ -c /dev/full ]; then
    to_full run run $tiny --training.steps 3 --out full
    check "the run itself was recorded all the same" [ -s full/result.json ]
    for command in "run --dry-run" "explain" "explain --json" "models" "keys" "version" "help" "run --help"; do
        to_full "$command" $command
    done
else
    skip "full disk behind standard output" "there is no /dev/full"
fi

# limited BLOCKS ARGUMENTS...: with a limit on the size of files (512 bytes a block). What the program says must not meet
# the limit itself, so it goes through a pipe.
limited()
{
    blocks=$1
    shift
    : >"$out"
    (
        ulimit -f "$blocks"
        timeout -k 5 "$seconds" "$TRAINMARK" run $tiny --store.path none "$@" 2>&1 >/dev/null </dev/null
        echo "exit $?"
    ) | cat >"$err"
    code=$(sed -n 's/^exit \([0-9]*\)$/\1/p' "$err")
}

limited 1 --training.steps 40 --out limit1
failed_with 1 "file-size limit: settings" "cannot write 'limit1/config.yaml.*File too large"
limited 20 --training.steps 80 --out limit2
failed_with 1 "file-size limit: records" "cannot write to 'limit2/metrics.jsonl': File too large"
check_not "no torn line is in metrics.jsonl" grep -qv '^{.*}$' limit2/metrics.jsonl
limited 64 --training.steps 40 --checkpoint.enable true --checkpoint.interval 5 --out limit3
failed_with 1 "file-size limit: checkpoint" "tensors.safetensors': File too large; raise the file-size limit"

# --- checkpoints ----------------------------------------------------------------------------------------------------------

saved() { trainmark run $tiny --training.steps 6 --checkpoint.enable true --checkpoint.interval 2 --out "$@"; }
saved good
check "a run with three checkpoints" [ "$code" -eq 0 ]
# copy NAME: good as it was after step 4 of 6.
copy()
{
    rm -rf "$1"
    cp -r good "$1"
    rm -r "$1/checkpoint/step-00000006"
}

copy cut
truncate -s 1000 cut/checkpoint/step-00000004/tensors.safetensors
saved cut
check "truncated checkpoint: the run goes on" [ "$code" -eq 0 ]
check "truncated checkpoint: it says which one it took instead" has "$err" \
    "loaded step 2 .*'cut/checkpoint/step-00000004': its file tensors.safetensors has 1000 bytes, [0-9]+ wanted"
check "truncated checkpoint: the same end as without a stop" \
    [ "$(grep -o '"step": 6, "loss": [^,]*' good/metrics.jsonl)" = "$(grep -o '"step": 6, "loss": [^,]*' cut/metrics.jsonl)" ]

# flip FILE AT: the lowest bit of a byte.
flip()
{
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "\\$(printf %03o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
for file in tensors.safetensors index.bin complete; do
    copy flipped
    at=40
    [ $file = index.bin ] || [ $file = complete ] || at=5000 # behind the header
    flip flipped/checkpoint/step-00000004/$file $at
    saved flipped
    check "bit flipped in $file: the older checkpoint is taken" has "$err" "resumed from step 2"
done
copy flipped
flip flipped/checkpoint/step-00000004/tensors.safetensors 5000
saved flipped --checkpoint.load_step 4
failed_with 4 "named checkpoint is damaged" "cannot load checkpoint 'flipped/checkpoint/step-00000004'" "checksum" "name another step"
rm -r flipped/checkpoint/step-00000002
cp flipped/config.yaml config.before
saved flipped --optimizer.lr 0.5
failed_with 4 "the only checkpoint is damaged" "no checkpoint in 'flipped/checkpoint' is usable" "checksum" "start again"
check "a run that could not resume leaves the settings of the earlier one" cmp -s flipped/config.yaml config.before
saved flipped --checkpoint.load_step 3
failed_with 4 "named checkpoint is missing" "there is no checkpoint of step 3 in 'flipped/checkpoint'"
copy other
saved other --model.dim 64
failed_with 4 "checkpoint of another model" "'other/checkpoint/step-00000004' does not fit: tensor '.*'" \
    "found .*\(64, 32\).*wanted .*\(64, 64\)" "use the configuration it was made with"
saved other --debug.seed 7
failed_with 4 "checkpoint of another seed" "debug.seed 1, this run has 7" "give the same seed"
mkdir filed
: >filed/checkpoint
saved filed
failed_with 1 "file for a checkpoint folder" "'filed/checkpoint': Not a directory"
check_not "no failure was a bug of the program" grep -rqs "assertion\|Assertion" "$err"

finish
