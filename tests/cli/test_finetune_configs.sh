#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The experiments of fine-tuning and of images: each plans, and trains as many parameters as its adapters have; a run without
# weights or without data refuses by name.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

configs=$root/configs/experiments/finetune

while read -r file trained base; do
    says 0 "^not included in this plan: the weights of '/data/model'" run "$configs/$file.yaml" --dry-run --memory 100TiB
    check "$file: the data is named" has "$out" '^not included in this plan: the data set'
    [ "$trained" != all ] || continue
    says 0 " modules: $trained parameters are trained" explain "$configs/$file.yaml"
    check "$file: what a frozen weight takes" has "$out" " $base[0-9.]* bits per frozen weight"
done <<'END'
llama3.1_8B-full all
llama3.1_8B-lora 19,660,800 16
llama3.1_8B-qlora 19,660,800 [45]
llama3.1_70B-full all
llama3.1_70B-lora 195,297,280 16
llama3.1_70B-qlora 195,297,280 [45]
llama3.3_70B-full all
llama3.3_70B-lora 195,297,280 16
llama3.3_70B-qlora 195,297,280 [45]
llama2_70B-lora 195,297,280 16
llama2_70B-qlora 195,297,280 [45]
llama2_70B-peft 103,546,880 16
qwen3_8B-full all
qwen3_8B-full-fp8 all
qwen3_8B-lora 20,348,928 16
qwen3_8B-qlora 20,348,928 [45]
llama3.1_8B-dpo all
llama3.1_8B-dpo-lora 19,660,800 16
END
check "no file without a row here" [ "$(find "$configs" -name '*_*.yaml' | wc -l)" -eq 18 ]
says 4 "there is no directory '/data/model'" run "$configs/qwen3_8B-lora.yaml" --launch.gpus_per_node 1

# --- images: planned with the parameters that the page says, started with data of the same form ----------------------------------

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
