#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark reproduce`: the pages that are compiled in, and page files that are wrong.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
. "$here/reproduce_page.sh"

# --- page files that are wrong ------------------------------------------------------------------------------------------------

# wrong SED PATTERN: page.yaml changed.
wrong()
{
    sed "$1" page.yaml >wrong.yaml
    says 4 "$2" reproduce wrong.yaml --dry-run
}
wrong 's/^    ours: run micro/    our: run micro/' "wrong.yaml:9: unknown key 'our' of a row; known are hardware,theirs,"
wrong 's/^common/comon/' "wrong.yaml:4: unknown key 'comon' of a page"
wrong 's/float32 2 32/float32 3 32/' "wrong.yaml:6: row 'micro': no published figure 'run micro-llama float32 3 32' of cpu by Us"
wrong 's/^source: Us/source: Them/' "wrong.yaml:6: row 'micro': no published figure .* of cpu by Them"
wrong 's/figure: mlp.*/figure: mlp/' "wrong.yaml:19: figure 'mlp' of 'mlp': wanted WORKLOAD ROW"
wrong '0,/    hardware: cpu/{//d}' "wrong.yaml:6: row 'micro' has no 'hardware'"
wrong 's/8xMI300X/8xMI3/' "wrong.yaml:11: hardware of 'big': .*unknown GPU"
wrong 's/^title.*//' "wrong.yaml:.*has no 'title'"
wrong '/^rows/,$d' "wrong.yaml:1: a page has title: TEXT and rows:"
wrong 's/^  big:/  ..\/big:/' "wrong.yaml:11: row '../big': its name is that of a folder"
wrong 's/figures.csv/none.csv/' "none.csv"
wrong 's/^rows:/rows: [/' "wrong.yaml:[0-9]+:[0-9]+: not valid YAML"

# --- the pages that are compiled in ---------------------------------------------------------------------------------------

trainmark reproduce
check "lists the pages" [ "$(grep -cE '^\| (amd-v25.3|amd-v25.5|bring-up-mi350x|mlperf-v5.1|primus-v25.10) ' "$out")" -eq 5 ]
check "and their rows" has "$out" "^\| amd-v25.3 .* 15 \| +15 \|$"

finish
