#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/judge_headers.sh: NVRTC's own header, where its package is here; and headers that the test makes, with one thing
# wrong each, which has to be told. Those that differ in one word are functions of the test: a header of a maker is not here.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"

judge()
{
    env "$@" "$root/tools/judge_headers.sh" >"$out" 2>"$err"
    code=$?
}

if ! "${CXX:-c++}" --version >/dev/null 2>&1; then
    skip "makers' headers" "no ${CXX:-c++}"
    finish
    exit
fi

found=
for folder in "$root"/build/venv/lib/python3*/site-packages/nvidia/*/include; do
    [ -f "$folder/nvrtc.h" ] && found=$folder
done
if [ -n "$found" ]; then
    judge CUDA_INCLUDE="$found"
    check "NVRTC's own header" [ $code = 0 ]
    check "all calls of it" grep -q " 16 calls, " "$out"
else
    skip "NVRTC's own header" "no nvrtc.h in build/venv (make setup)"
fi

mkdir made
cat >made/nvrtc.h <<'EOF'
#include <stddef.h>
typedef enum { NVRTC_SUCCESS = 0, NVRTC_OTHER = 1 } nvrtcResult;
typedef struct program *nvrtcProgram;
extern "C" {
nvrtcResult nvrtcVersion(int *major, int *minor);
nvrtcResult nvrtcCreateProgram(nvrtcProgram *made, const char *text, const char *name, int n, const char *const *texts, const char *const *names);
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *which);
nvrtcResult nvrtcCompileProgram(nvrtcProgram which, int n, const char *const *options);
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram which, size_t *bytes);
nvrtcResult nvrtcGetCUBIN(nvrtcProgram which, char *code);
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram which, size_t *bytes);
nvrtcResult nvrtcGetProgramLog(nvrtcProgram which, char *log);
}
EOF

tells() { grep -qF -- "$1" "$out"; }

# NAME, what of the header becomes what (sed), the line that tells it.
wrong()
{
    mkdir -p other
    sed "$2" made/nvrtc.h >other/nvrtc.h
    if cmp -s made/nvrtc.h other/nvrtc.h; then
        fail "$1" "nothing was changed"
        return
    fi
    judge CUDA_INCLUDE="$work/other"
    check "$1" [ $code = 5 ]
    check "$1: what differs" tells "$3"
}

judge CUDA_INCLUDE="$work/made"
check "a header that agrees" [ $code = 0 ]
wrong "a pointer to other bytes" 's/GetCUBINSize(nvrtcProgram which, size_t/GetCUBINSize(nvrtcProgram which, int/' \
    'compile_calls.h: nvrtcGetCUBINSize: here int32(void*, int64*), there int32(object*, int32*)'
judge CUDA_INCLUDE="$work"
check "no header is no agreement" [ $code = 1 ]
if [ -n "${TM_TEST_FULL:-}" ]; then
    wrong "an argument more" 's/char \*log)/char *log, size_t bytes)/' 'compile_calls.h: nvrtcGetProgramLog: '
    wrong "arguments in another order" 's/nvrtcProgram which, int n, const/int n, nvrtcProgram which, const/' ' nvrtcCompileProgram: '
    wrong "a wider integer" 's/which, int n,/which, long n,/' 'here int32(void*, int32, int8**), there int32(object*, int64, int8**)'
    wrong "another result" 's/nvrtcResult nvrtcVersion/long nvrtcVersion/' 'nvrtcVersion: here int32(int32*, int32*), there int64(int32*, int32*)'
    wrong "another number" 's/NVRTC_SUCCESS = 0/NVRTC_SUCCESS = 2/' 'here 0, there 2 (NVRTC_SUCCESS)'
    wrong "a call that is missing" '/nvrtcGetCUBIN(/d' 'nvrtcGetCUBIN is missing'
    wrong "a number that is missing" 's/NVRTC_SUCCESS = 0, //' 'NVRTC_SUCCESS is missing'
    wrong "arguments without end" 's/char \*log)/char *log, ...)/' 'there a function of another kind'
    wrong "a header that is none" 's/size_t \*bytes/size_type *bytes/' 'nvrtc: the comparison does not compile'
    wrong "an address less" 's/nvrtcProgram \*which/nvrtcProgram which/' 'nvrtcDestroyProgram: here int32(void**), there int32(object*)'
fi
finish
