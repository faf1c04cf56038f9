#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/embedded_set.sh [SET] - C that has this file's bytes inside, for src/gpu/embedded.h; without SET: none.
set -eu
echo '#include "gpu/embedded.h"'
if [ $# -eq 0 ]; then
    printf '%s\n' 'const void *tm_gpu_embedded_set(size_t *bytes)' '{' '    *bytes = 0;' '    return NULL;' '}'
    exit
fi
# The hash is a comment: other bytes are another text, which make then compiles anew.
echo "/* $(cksum <"$1") */"
cat <<C
__asm__(".pushsection .rodata\n\t.balign 16\ntm_gpu_set:\n\t.incbin \"$1\"\ntm_gpu_set_end:\n\t.popsection");
extern const unsigned char tm_gpu_set[], tm_gpu_set_end[];
const void *tm_gpu_embedded_set(size_t *bytes)
{
    *bytes = (size_t)(tm_gpu_set_end - tm_gpu_set);
    return tm_gpu_set;
}
C
