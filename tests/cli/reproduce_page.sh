# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# A page of four rows with its figures, in the working folder: page.yaml, figures.csv.
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
