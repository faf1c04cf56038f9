#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The pages under docs/: each is in the index, each link leads somewhere, the tables of the program are the program's.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
docs=$root/docs

for page in "$docs"/*.md; do
    name=${page##*/}
    [ "$name" = README.md ] || check "$name is in the index" grep -q "]($name)" "$docs/README.md"
done
check "the first page leads to the index" grep -q '](docs/README.md)' "$root/README.md"
bad=
for page in "$root/README.md" "$docs"/*.md; do
    folder=$(dirname "$page")
    grep -o ']([^)]*)' "$page" | sed 's/^](//; s/)$//; s/#.*//' | grep -v -e '^http' -e '^$' >links
    while read -r link; do
        [ -e "$folder/$link" ] || bad="$bad ${page##*/}:$link"
    done <links
done
check "every link leads to a file" [ -z "$bad" ]
[ -z "$bad" ] || echo "#$bad"
for group in Start Train Measure MLPerf Internals; do
    check "the index has $group" grep -q "^## $group\$" "$docs/README.md"
done
trainmark models --markdown
sed -n '/^| model /,$p' "$docs/models.md" >table
check "docs/models.md has the table of the program" cmp -s table "$out"
trainmark keys --combinations
sed -n '/^| this | cannot/,$p' "$docs/parallelism.md" >table
check "docs/parallelism.md has the table of what cannot be combined" cmp -s table "$out"

finish
