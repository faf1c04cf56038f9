#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every row of docs/coming-from.md: the command of another program, its launcher taken away, and ours plan the same training; those
# of MLPerf's tools, which are not here, are ours only.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive
page=$root/docs/coming-from.md

cp "$root/configs/experiments/llama3.1_8B-mock.yaml" exp.yaml
printf '[model]\nname = "llama3"\nflavor = "debugmodel"\n[training]\nlocal_batch_size = 1\nseq_len = 32\n' >job.toml
printf '{"num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "embedding_dim": 32, "max_seq_len": 32, "vocab_size": 64, "eps": 1e-05, "hidden_dim": 64}' >model.json
printf 'model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\nbatch_size: 2\nmax_steps_per_epoch: 3\n' >recipe.yaml
cp -r "$root/tests/mlperf/example" submission
ln -s submission/results/BOX/llama2_70b_lora result
gzip -dc result/result_0.txt.gz >result_0.txt

# launchers: what each leaves to the program that it starts.
mkdir bin
ln -s "$TRAINMARK" bin/trainmark
launcher() { printf '#!/bin/sh\n%s\n' "$2" >"bin/$1"; chmod +x "bin/$1"; }
launcher primus 'while [ "$1" != --config ]; do shift; done; shift; exec trainmark run "$@"'
launcher run_pretrain.sh 'exec trainmark run "$@"'
launcher run_train.sh 'exec trainmark run "$CONFIG_FILE" "$@"'
launcher tune 'while [ "$1" != --config ]; do shift; done; shift; exec trainmark run "$@"'
launcher report.sh 'exec trainmark run "$@"'
launcher madengine 'exec trainmark "$@"'
launcher torchrun 'while :; do case $1 in *.py) shift; break ;; --job.config_file) shift; break ;; esac; shift; done; exec trainmark run "$@"'
PATH=$work/bin:$PATH
export PATH

# execute COMMAND: standard output to $out.
execute()
{
    line=$(echo "$1" | sed 's,bash run_,run_,; s,\./,,')
    case $line in *" discover "* | *" mlperf "*) ;; *) line="$line --dry-run --memory 4TiB" ;; esac
    timeout 60 sh -c "$line" >"$out" 2>"$err" </dev/null
    code=$?
}

sed -n 's/^| \([^|]*\) | `\([^`]*\)` | `\(\(EXP=[^ ]* \)*trainmark [^`]*\)` |$/\1;\2;\3/p' "$page" >rows
check "the page has its rows" [ "$(wc -l <rows)" -ge 14 ]
while IFS=';' read -r program theirs ours <&3; do
    execute "$ours"
    if [ "$code" -ne 0 ]; then
        fail "$program: $ours" "exit code $code"
        continue
    fi
    cp "$out" ours
    if [ "$program" = MLPerf ]; then
        pass "$program: $ours"
        continue
    fi
    execute "$theirs"
    if [ "$code" -eq 0 ] && cmp -s ours "$out"; then pass "$program: $theirs"; else fail "$program: $theirs" "not what '$ours' does"; fi
done 3<rows

finish
