#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark reproduce`: the pages that are compiled in, and page files that are wrong.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

head="workload,row,device,devices,scope,dtype,batch,seq,column,value,unit,convention,source,date,note"
cat >figures.csv <<END
$head
run,micro-llama,cpu,1,device,float32,2,32,tokens_per_second,5000,tokens/s,,Us,2026,
run,micro-llama,cpu,1,device,float32,2,32,tflops_titan,0.02,TFLOP/s,titan,Us,2026,
run,micro-llama,cpu,1,device,float32,2,32,memory_gb,0.013,GB (1e9 bytes),,Us,2026,
run,micro-llama,cpu,1,device,float32,2,32,step_ms,10,ms,,Us,2026,
run,micro-llama,cpu,1,device,float32,1,32,tflops_other,0.02,TFLOP/s,other,Us,2026,counted in another way
run,llama3.1_70B,MI300X,8,all,bfloat16,4,8192,tokens_per_second,8000,tokens/s,,Us,2026,
mlp,64-64-64,cpu,1,device,float32,8,,samples_per_second,50000,samples/s,,Us,2026,
END
cat >page.yaml <<'END'
title: A page of ours
source: Us
figures: figures.csv
common: --training.threads 1 --validation.enable false --training.stop_at_target false
rows:
  micro:
    hardware: cpu
    theirs: ./train.sh "two words"
    ours: run micro-llama --training.steps 8 --training.local_batch_size 2 --training.seq_len 32
    figure: run micro-llama float32 2 32
  big:
    hardware: 8xMI300X
    theirs: bash run_llama_train.sh
    figure: run llama3.1_70B bfloat16 4 8192
  huge:
    hardware: cpu
    theirs: train everything
    ours: run micro-llama --training.local_batch_size 1000000
  mlp:
    hardware: cpu
    theirs: python mlp.py
    ours: bench mlp --dims 64-64-64 --batch 8 --iterations 20 --threads 1
    figure: mlp 64-64-64
END

# --- page files that are wrong ------------------------------------------------------------------------------------------------

# wrong SED NAME PATTERN: page.yaml changed.
wrong()
{
    sed "$1" page.yaml >wrong.yaml
    trainmark reproduce wrong.yaml --dry-run
    failed_with 4 "$2" "$3"
}
wrong 's/^    ours: run micro/    our: run micro/' "an unknown key" "wrong.yaml:9: unknown key 'our' of a row; known are hardware,theirs,"
wrong 's/^common/comon/' "of the page, too" "wrong.yaml:4: unknown key 'comon' of a page"
wrong 's/float32 2 32/float32 3 32/' "a figure that nobody published" "wrong.yaml:6: row 'micro': no published figure 'run micro-llama float32 3 32' of cpu by Us"
wrong 's/^source: Us/source: Them/' "a figure of somebody else" "wrong.yaml:6: row 'micro': no published figure .* of cpu by Them"
wrong 's/figure: mlp.*/figure: mlp/' "half a figure" "wrong.yaml:19: figure 'mlp' of 'mlp': wanted WORKLOAD ROW"
wrong '0,/    hardware: cpu/{//d}' "a row without hardware" "wrong.yaml:6: row 'micro' has no 'hardware'"
wrong 's/8xMI300X/8xMI3/' "unknown hardware" "wrong.yaml:11: hardware of 'big': .*nothing is known of this GPU"
wrong 's/^title.*//' "no title" "wrong.yaml:.*has no 'title'"
wrong '/^rows/,$d' "no rows" "wrong.yaml:1: a page has title: TEXT and rows:"
wrong 's/^  big:/  ..\/big:/' "a name that leaves the folder" "wrong.yaml:11: row '../big': its name is that of a folder"
wrong 's/figures.csv/none.csv/' "no figures" "none.csv"
wrong 's/^rows:/rows: [/' "no YAML" "wrong.yaml:[0-9]+:[0-9]+: not valid YAML"

# --- the pages that are compiled in ---------------------------------------------------------------------------------------

trainmark reproduce
check "lists the pages" [ "$(grep -cE '^\| (amd-v25.3|amd-v25.5|bring-up-mi350x|mlperf-v5.1|primus-v25.10) ' "$out")" -eq 5 ]
check "and their rows" has "$out" "^\| amd-v25.3 .* 15 \| +15 \|$"

finish
