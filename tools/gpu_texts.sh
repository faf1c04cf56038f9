#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/gpu_texts.sh TEXT.cu ... - the kernels of GPUs, which are compiled where they run, as arrays of lines in C:
# tm_gpu_text_TEXT, and tm_gpu_texts, a table of all. A part of another text (#include "part.cu") comes in its place;
# messages of compilers name the files.
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
echo 'struct tm_gpu_text { const char *name; const char *const *lines; }; extern const struct tm_gpu_text tm_gpu_texts[];'
echo 'const struct tm_gpu_text tm_gpu_texts[] = {'
for text; do
    name=$(basename "$text" .cu)
    echo "    { \"$name\", tm_gpu_text_$name },"
done
echo '    { 0, 0 },'
echo '};'
