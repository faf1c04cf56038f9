#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The experiments of images: each plans with the parameters that its page says, names the data it wants, and starts.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

config=$root/configs/experiments/images/shapes.yaml
unset CACHE
says 0 "^data: not read: cannot read directory '\./cache'" run "$config" --dry-run
parameters=$(sed -n 's/^tiny-flux: \([0-9,]*\) parameters.*/\1/p' "$out")
check "shapes: its page has ${parameters:-no} parameters" has "$root/docs/flux-shapes.md" "[^0-9,]${parameters:-none}( |\$)"
says 4 "cannot read directory '\./cache': No such file" run "$config" --out run

# Other pictures of the same form: the same model trains on a distribution that needs no files.
says 0 '' run "$config" --data.source gaussians --data.path null --training.steps 2 --training.local_batch_size 2 --validation.enable false \
    --checkpoint.enable false --out made

finish
