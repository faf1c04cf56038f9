#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark bench`: the list of workloads, their options, their results in every format.
# shellcheck disable=SC1091,SC2016,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

trainmark bench
check "without a name it lists the workloads" [ "$code" -eq 0 ]
for name in gemm stream; do check "$name is listed" has "$out" "^  $name +[a-z]"; done
for name in gemm stream; do
    trainmark bench "$name" --help
    check "$name tells its options" has "$out" "^ +--rep-ms +milliseconds"
done
trainmark bench strem
failed_with 2 "an unknown workload" "did you mean 'stream'"
trainmark bench stream --durration 3
failed_with 2 "an unknown option" "durration.*did you mean 'duration'"
trainmark bench stream --xyzzy 3
failed_with 2 "an option that is like no other" "trainmark bench stream --help"
trainmark bench stream --rep-ms soon
failed_with 4 "a value of the wrong kind" "rep-ms.*must be a number, found 'soon'"
trainmark bench stream --threads 5000
failed_with 4 "a value out of range" "threads.*5000"
trainmark bench stream --output-file result.doc
failed_with 2 "an unknown file format is refused before measuring" "result.doc.*\.md"
trainmark bench stream --isa avx1024
failed_with 4 "an unknown set of instructions" "avx1024"

# --- stream -----------------------------------------------------------------------------------------------------------

trainmark bench stream --elements 100000 --rep-ms 1 --warmup-ms 0 --threads 1 --output-file stream.csv
check "stream runs" [ "$code" -eq 0 ]
check "stream: small arrays are not taken for main memory" has "$out" "smaller than four times the last-level cache"
for kernel in copy mul add triad dot; do
    check "stream: $kernel is right" has stream.csv "^[^,]*,$kernel,(ordinary|none),1,100000,.*,true,"
done

trainmark bench stream --elements 1e12 --threads 1
failed_with 4 "stream: arrays larger than the memory" "need 21\.83 TiB.*--elements"
trainmark bench stream --elements 100000 --budget 0.01 --threads 1 --warmup-ms 20 --output-file late.csv
check "stream: rows that the budget has no time for say so" [ "$code$(grep -c 'the budget ended' late.csv)" != 00 ]

# --- ops of pictures --------------------------------------------------------------------------------------------------

trainmark bench ops --case pictures --passes 1 --threads 1 --output-file pictures.csv
check "ops of pictures run" [ "$code" -eq 0 ]
check "ops: eight convolutions and their rate" has pictures.csv "^[^,]*,convolution,8,[0-9.]+,[0-9.e-]*,[0-9.e-]+,"
check "ops: five group norms" has pictures.csv "^[^,]*,group_norm,5,"
check "ops: what they are fitted to" has "$out" "fitted to calls of an autoencoder; error_pct"

# --- hardware files ---------------------------------------------------------------------------------------------------

# A disturbed machine has no numbers today: then there is no file either.
measured() { trainmark bench "$@" --threads 1 --write-hardware box.yaml; [ "$code" -eq 0 ]; }
trainmark bench mlp --threads 1 --write-hardware box.yaml
failed_with 2 "a benchmark that finds no numbers of hardware" "--write-hardware.*gemm, stream, attention, collectives, ops"
if measured stream --elements 100000 --rep-ms 1 --warmup-ms 0; then
    check "the file has what was measured" has box.yaml '^memory_rate: \{ value: [0-9.]+, source: "measured by `trainmark bench stream` on '
    trainmark plan tiny-llama --platform ./box.yaml
    failed_with 4 "a file that is not complete" "no key '[a-z_0-9]+', which a CPU needs"
    trainmark bench stream --elements 100000 --threads 2 --write-hardware box.yaml
    failed_with 4 "another number of threads" "has 2 threads; add --threads 1"
    if measured gemm --shapes 64x64x256,64x64x32 --rep-ms 1 && measured attention --seq 64 --rep-ms 1 &&
        measured ops --case "tiny-llama --training.local_batch_size 1" --passes 1; then
        trainmark plan tiny-llama --training.local_batch_size 1 --platform ./box.yaml
        check "a file that is complete" [ "$code" -eq 0 ]
    fi
else
    check "no file of a disturbed machine" [ "$code$(ls box.yaml 2>/dev/null)" = 3 ]
fi

# --- gemm -------------------------------------------------------------------------------------------------------------

quick="--rep-ms 1 --warmup-ms 0 --precision 0 --threads 1"
# column FILE NAME: the values of a column of a csv file without quoted cells.
column() { awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }' "$1"; }

# shellcheck disable=SC2086
{
trainmark bench gemm --shapes 33x47x65,64x32x16:tn --trans_b $quick --cache both --output-file gemm.csv
check "gemm runs" [ "$code" -eq 0 ]
check "gemm: two shapes, cold and warm" [ "$(wc -l <gemm.csv)" -eq 5 ]
check "gemm: cases" [ "$(column gemm.csv case | sort -u | tr '\n' ' ')" = "33x47x65 64x32x16 " ]
check "gemm: transposes" [ "$(column gemm.csv trans_a | tr '\n' ' ')" = "false false true true " ]
check "gemm: cold and warm" [ "$(column gemm.csv cache | tr '\n' ' ')" = "cold warm cold warm " ]
check "gemm: checked" [ "$(column gemm.csv correct | sort -u)" = true ]
check "gemm: FLOP are counted" [ "$(column gemm.csv tflop | head -n 1)" = 2.0163e-07 ]
check "gemm: FLOP per byte" [ "$(column gemm.csv arith_intensity | head -n 1 | cut -c 1-5)" = 7.466 ]
check "gemm: the time, the rate and the bandwidth belong together" awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    function near(a, b) { return a > b * 0.999999 && a < b * 1.000001 }
    !near($at["tflops"] * $at["avg_time_ms"] / 1e3, $at["tflop"]) { exit 1 }
    !near($at["bandwidth_gbps"] * $at["arith_intensity"], $at["tflops"] * 1e3) { exit 1 }' gemm.csv
for format in md tsv.gz json jsonl; do
    trainmark bench gemm --M 16 --N 16 --K 16 $quick --output-file "result.$format"
    check "a result as $format" [ "$code" -eq 0 ]
    case $format in *.gz) gzip -dc "result.$format" >plain ;; *) cp "result.$format" plain ;; esac
    case $format in
    md*) check "$format holds a row" has plain '^\| .*\| 16x16x16 ' ;;
    tsv*) check "$format holds a row" has plain "$(printf '\t16x16x16\t')" ;;
    json*) check "$format holds a row" has plain '"case": *"16x16x16"' ;;
    esac
done
trainmark bench gemm --M 16 --N 16 --K 16 $quick --json
check "--json prints JSON" has "$out" '"case": "16x16x16"'
trainmark bench gemm --dtype bf16 --M 40 --N 24 --K 56 $quick --output-file bf16.csv
check "gemm in bfloat16" [ "$code$(column bf16.csv c_dtype)$(column bf16.csv correct)" = 0bfloat16true ]
trainmark bench gemm --dtype fp16 --shapes 40x24x56,1x300x64:nt,200x9x600:tn $quick --output-file fp16.csv
check "gemm in float16" [ "$code$(column fp16.csv c_dtype | uniq)$(column fp16.csv correct | uniq)" = 0float16true ]
trainmark bench gemm --model tiny-llama --seq 16 $quick --output-file model.csv
check "gemm: a model's products" [ "$code$(column model.csv name | tr '\n' ,)" = "0qkv forward,qkv dgrad,qkv wgrad,out \
forward,out dgrad,out wgrad,gate+up forward,gate+up dgrad,gate+up wgrad,down forward,down dgrad,down wgrad,vocab \
forward,vocab dgrad,vocab wgrad," ]
trainmark bench gemm --shapes llama70b --budget 0.01 $quick --output-file skipped.csv
check "gemm: what takes too long is skipped" [ "$(grep -c 'needs about' skipped.csv)" = 7 ]
failed_with 3 "gemm: a table without a number is no result" "nothing was measured: .*needs about"
check "gemm: a skipped row has no rate" [ -z "$(column skipped.csv tflops | tr -d '\n')" ]
trainmark bench gemm --M 4194304 --N 4194304 --K 4194304 $quick
check "gemm: what does not fit is skipped" has "$out" 'needs [0-9.]+ TiB of memory'
trainmark bench gemm --shapes llama70b --scale 512 $quick --output-file scaled.csv
check "gemm: a scaled shape has a name of its own" has scaled.csv '32x16x16,"llama70b 2, each side / 512"'
trainmark bench gemm --shapes llama71b $quick
failed_with 4 "gemm: an unknown list of shapes" "llama71b.*--shapes.*llama70b"
trainmark bench gemm --shapes 1x2x3 --M 4 $quick
failed_with 4 "gemm: shapes and sizes" "give one"
trainmark bench gemm --batch 4 $quick
failed_with 4 "gemm: a batch without a model" "--model"
trainmark bench gemm --model tiny-lama $quick
failed_with 4 "gemm: an unknown model" "tiny-llama"
trainmark bench gemm --device null $quick
failed_with 4 "gemm: a device without products" "null.*--device"
trainmark bench gemm --library atlas $quick
failed_with 4 "gemm: an unknown library" "atlas.*oneDNN, OpenBLAS, BLIS, MKL"
trainmark bench gemm --library mkl --libraries $quick
failed_with 4 "gemm: one library and all" "give one"
}

# Stopped by the user. --foreground: the signal comes once; a second one would end the program at once.
timeout --foreground --preserve-status -s INT 1 "$TRAINMARK" bench gemm --M 64 --N 64 --K 64 --threads 1 --duration 50 \
    >"$out" 2>"$err"
code=$?
failed_with 130 "gemm: stopped by the user" "interrupted"

# --- libraries: ones that the test makes, one of them wrong -----------------------------------------------------------

cat >shim.c <<'END'
#include <stdint.h>
static int threads = 1;
char *openblas_get_config(void) { return "shim 1.0"; }
char *openblas_get_corename(void) { return "Plain"; }
int openblas_get_parallel(void) { return 0; }
int openblas_get_num_threads(void) { return threads; }
void openblas_set_num_threads(int n) { threads = n; }
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc)
{
    (void)order;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int p = 0; p < k - MISSING; p++)
                sum += (ta == 112 ? a[p * lda + i] : a[i * lda + p]) * (tb == 112 ? b[j * ldb + p] : b[p * ldb + j]);
            c[i * ldc + j] = alpha * sum + (beta != 0 ? beta * c[i * ldc + j] : 0);
        }
}
END
mkdir right wrong empty
if cc -shared -fPIC -O1 -DMISSING=0 -o right/libopenblas.so.0 shim.c 2>/dev/null &&
    cc -shared -fPIC -O1 -DMISSING=1 -o wrong/libopenblas.so.0 shim.c 2>/dev/null; then
    # shellcheck disable=SC2086
    {
    small="--M 48 --N 40 --K 96 $quick"
    LD_LIBRARY_PATH=$work/right trainmark bench gemm --library OpenBLAS $small --output-file right.csv
    check "a library that is right" [ "$code$(column right.csv correct)" = 0true ]
    check "a library tells its version and core type" has "$out" \
        "OpenBLAS: shim 1\.0, core type Plain, threads: 1 \(none: one thread\), $work/right/libopenblas\.so\.0"
    LD_LIBRARY_PATH=$work/right OPENBLAS_CORETYPE=Other trainmark bench gemm --library OpenBLAS $small
    check "a core type that the environment dictates is named so" has "$out" "core type Plain \(OPENBLAS_CORETYPE=Other\), threads"
    LD_LIBRARY_PATH=$work/right trainmark bench gemm --library openblas --trans_a --trans_b $small --output-file right.csv
    check "a library gets transposes right" [ "$code$(column right.csv correct)" = 0true ]
    LD_LIBRARY_PATH=$work/wrong trainmark bench gemm --library OpenBLAS $small --output-file wrong.csv
    failed_with 3 "a library that leaves out a term is caught" "OpenBLAS 48x40x96:nn: wrong result: C\[[0-9]+\]\[[0-9]+\]"
    check "the row of a wrong result says so" [ "$(column wrong.csv correct)" = false ]
    check "the table is printed all the same" has "$out" "^invalid: OpenBLAS 48x40x96:nn: wrong result"
    LD_LIBRARY_PATH=$work/right trainmark bench gemm --libraries $small --output-file all.csv
    check "all libraries in turns" [ "$code" -eq 0 ]
    check "our kernel, the library and the reference have rows" \
        [ "$(column all.csv engine | grep -cE '^(trainmark|OpenBLAS|reference)$')" -eq 3 ]
    check "all of them are right" [ "$(column all.csv correct | sort -u)" = true ]
    LD_LIBRARY_PATH=right trainmark bench gemm --library OpenBLAS $small
    failed_with 4 "a library path below the current folder is refused" "LD_LIBRARY_PATH.*'right'.*absolute"
    cd right || exit 1
    LD_LIBRARY_PATH=:/usr/lib trainmark bench gemm --library OpenBLAS $small
    failed_with 4 "the current folder as library path is refused" "LD_LIBRARY_PATH.*absolute"
    cd "$work" || exit 1
    LD_LIBRARY_PATH=$work/right trainmark bench gemm --library OpenBLAS --dtype bf16 $small --output-file no.csv
    check "a library without bfloat16 is skipped" has no.csv "offers no bfloat16"
    LD_LIBRARY_PATH=$work/right trainmark bench gemm --library OpenBLAS --dtype fp16 $small --output-file no.csv
    check "a library without float16 is skipped" has no.csv "offers no float16"
    }
else
    skip "libraries" "no C compiler that makes shared libraries"
fi

# The budget is over before the first iteration: one is measured all the same, and what was not is not 0.
trainmark bench mlp --dims 2048-2048 --batch 4 --iterations 50 --budget 0.01 --json --store none
check "mlp: a budget that is over at once" [ "$code" -eq 0 ]
check "the first loss is one" has "$out" '"loss_first": [0-9.]*[1-9]'
check "of one iteration the last" sh -c "! grep -q '\"n\": 1,' '$out' || grep -q '\"cv\": null' '$out'"
finish
