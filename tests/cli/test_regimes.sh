#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a parameter takes in each regime: as `explain` says it, and as docs/regimes.md does; a GPT of 1.44 billion parameters
# is planned into 24 GiB.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# takes BYTES WEIGHTS GRADIENTS OPTIMIZER KEYS...: of gpt-medium, whose vectors are a thousandth of it.
takes()
{
    bytes=$1 rest="weights $2, gradients $3, optimizer $4 "
    shift 4
    says 0 "per parameter $bytes[0-9]* B: $rest" explain gpt-medium --training.local_batch_size 1 --training.seq_len 64 "$@"
    check "as docs/regimes.md has it" grep -q "^|.*| $bytes |\$" "$root/docs/regimes.md"
}
pure="--training.dtype bfloat16 --training.regime pure"
takes 16 4 4 8 --training.dtype float32
takes 16 4 4 8 --training.dtype bfloat16
takes 12 4 4 4 --optimizer.implementation fused_opt_states_bf16
takes 10.03 4 4 2.03[0-9]* --optimizer.name AdamW8bit
takes 10 2 2 6 $pure --optimizer.kahan_sum true
takes 8 2 2 4 $pure
takes 8 2 2 4 $pure --optimizer.bf16_stochastic_round true
takes 6.03 2 2 2.03[0-9]* $pure --optimizer.name AdamW8bit

says 0 "per parameter 4 B: weights 2, gradients 2, optimizer 0 " explain gpt-medium --training.local_batch_size 1 --training.seq_len 64 $pure --optimizer.name SGD
trainmark explain gpt-medium --training.local_batch_size 1 --training.seq_len 64 $pure --optimizer.name Adafactor
check "Adafactor takes 4 and a row and a column" has "$out" "per parameter 4(\.0[0-9]*)? B: weights 2, gradients 2, optimizer 0\.0"

says 0 " fit into 24\.0* GiB" run gpt-1.5b $pure --optimizer.name AdamW8bit --training.local_batch_size 1 --training.seq_len 128 \
    --data.source mock --dry-run --memory 24GiB
check "as docs/regimes.md says" has "$out" "^  plan +8\.09 GiB"
check "and said there" grep -q "8.09 GiB planned" "$root/docs/regimes.md"
finish
