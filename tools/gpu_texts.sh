#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/gpu_texts.sh TEXT.cu ... - the kernels of GPUs, which are compiled where they run, as arrays of lines in C:
# tm_gpu_text_TEXT. A part of another text (#include "part.cu") comes in its place; messages of compilers name the files.
set -eu
for text; do
    name=tm_gpu_text_$(basename "$text" .cu)
    echo "extern const char *const $name[]; const char *const $name[] = {"
    awk -v dir="$(dirname "$text")/" '
        function part(file,    line, n, word) {
            print "#line 1 \"" file "\""
            while ((getline line < (dir file)) > 0) {
                n++
                if (line !~ /^#include "/) { print line; continue }
                split(line, word, "\"")
                part(word[2])
                print "#line " n + 1 " \"" file "\""
            }
            close(dir file)
        }
        BEGIN { part(ARGV[1]) }' "$(basename "$text")" | sed 's/[\\"]/\\&/g; s/.*/    "&",/'
    echo '    0,'
    echo '};'
done
