#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# LoRA of a FLUX model: trained, written for diffusers, read again, merged; what does not fit.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

flux="--model.dim 32 --model.n_heads 2 --model.head_dim 16 --model.ffn_dim 128 --model.rope_axes 4,6,6 --model.n_layers 1
      --model.n_single_layers 1 --model.time_dim 256
      --training.local_batch_size 2 --training.steps 3 --training.threads 1 --validation.enable false --checkpoint.enable true"
says 0 '' run tiny-flux $flux --out base
says 0 "FluxTransformer2DModel" export base -o flux

train="run --model.hf_assets_path flux --model.image_size 64 --model.text_len 8 --data.source gaussians --data.flow_shift auto
       --training.local_batch_size 2 --training.threads 1 --validation.enable false --checkpoint.enable true"
lora="--lora.rank 4 --lora.alpha 8 --lora.targets to_q,to_k,to_v,to_out.0"
says 0 '' $train $lora --training.steps 4 --out whole
says 0 "adapter of FluxTransformer2DModel" export whole -o adapter
names() { tr -c 'A-Za-z0-9._' '\n' <"$1" | grep -c "$2"; }
file=adapter/pytorch_lora_weights.safetensors
check "as it calls them" [ "$(names $file '^transformer\..*\.lora_[AB]\.weight$')" -eq 14 ]
check "and nothing else" [ "$(names $file '^transformer\.')" -eq 14 ]
says 0 "merged with 'adapter'" merge flux adapter -o merged
check "into other weights" [ "$(cmp -s flux/diffusion_pytorch_model.safetensors merged/diffusion_pytorch_model.safetensors; echo $?)" -eq 1 ]
says 4 "has rank 4 and alpha 4, lora.rank is 4 and lora.alpha 8" $train $lora --lora.adapter_path adapter --training.steps 2 --out no
lora="--lora.rank 4 --lora.targets to_q,to_k,to_v,to_out.0"
says 0 "loaded 14 tensors of the adapter 'adapter'" $train $lora --lora.adapter_path adapter --training.steps 2 --out further

# exp(0.5 + 0.65 (16 - 256) / 3840) for 16 tokens
for shift in auto 1.58308424807886 1; do
    trainmark run tiny-flux --training.steps 3 --training.local_batch_size 2 --training.threads 1 --validation.enable false \
        --data.flow_shift $shift --out shift_$shift
    losses shift_$shift >$shift.txt
done
check "the shift by the number of tokens" cmp -s auto.txt 1.58308424807886.txt
check_not "is another one than none" cmp -s auto.txt 1.txt

says 4 "or the run no adapter there" $train --lora.rank 4 --lora.targets to_q --lora.adapter_path adapter --training.steps 2 --out no
finish
