#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From pictures to pictures: encoded once or as they are used, trained on, drawn. The losses are those of diffusers
# (tools/flux_pipeline.py).
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

pipeline=$root/tests/encoder/pipeline
model=$pipeline/model
encode="--model $model --size 32 --text-tokens 12 --threads 2"
shape="--model.hf_assets_path $model/transformer --model.image_size 32 --model.text_len 12 --model.guidance 1"
train="$shape --data.flow_protocol torchtitan --data.text_dropout 0 --debug.seed 7 --training.local_batch_size 2
       --training.steps 20 --optimizer.lr 1e-3 --lr_scheduler.warmup_steps 0 --lr_scheduler.decay_ratio 0
       --training.threads 2 --training.dtype float32"
# near FILE FILE: as many numbers, each pair within a ten-thousandth.
near() { paste "$1" "$2" | awk 'NF != 2 || ($1 - $2) ^ 2 > ($2 * 1e-4) ^ 2 { bad = 1 } END { exit bad || NR != 20 }'; }
sed -n '/"losses"/,/]/p' "$pipeline/expected.json" | grep -oE '[0-9]+\.[0-9]+' >wanted

trainmark data encode "$pipeline/pictures" $encode -o probe
if has "$err" "which decodes it, is not here"; then
    skip "pictures" "a library that decodes them is not here"
    finish
fi

# --- encoded once

says 0 "6 pictures encoded into 1 files" data encode "$pipeline/pictures" $encode -o cache
says 0 "0 pictures encoded into 0 files, 1 files were there" data encode "$pipeline/pictures" $encode -o cache
trainmark data encode "$pipeline/pictures" $encode -o few --per-file 4
trainmark data encode "$pipeline/pictures" $encode -o parts --per-file 2 --part 1/2
trainmark data encode "$pipeline/pictures" $encode -o parts --per-file 2 --part 0/2
trainmark data encode "$pipeline/pictures" $encode -o whole --per-file 2
check "in parts, too" [ "$(find parts -type f | wc -l)" = 4 ]
check "which are those of the whole" diff -r parts whole
rm few/train/part-00001.safetensors
says 0 '"pictures": 2,' data encode "$pipeline/pictures" $encode -o few --per-file 4 --json
says 4 "was encoded otherwise: .*float32', now it would be .*bfloat16" data encode "$pipeline/pictures" $encode -o cache --dtype bfloat16
cp -r "$pipeline/pictures" changed
sed -i 's/blue sky/red sky/' changed/metadata.jsonl
says 4 "holds other pictures or captions than 'changed' has now" data encode changed $encode -o cache
printf 'no picture' >changed/3.png
says 4 "3.png.*--skip-broken leaves such pictures out" data encode changed $encode -o broken
check "and nothing is left of its file" [ "$(find broken -name 'part-*' | wc -l)" -eq 0 ]
says 0 "5 pictures encoded into 1 files, 1 broken pictures left out" data encode changed $encode -o broken --skip-broken
mkdir split
cp -r "$pipeline/pictures" split/train
cp -r "$pipeline/pictures" split/validation
trainmark data encode split $encode -o both
check "parts for training and validation" [ "$(find both -name 'part-*' | sort | tr '\n' ' ')" = "both/train/part-00000.safetensors both/validation/part-00000.safetensors " ]

# --- trained on

trainmark run $train --data.source latents --data.path cache --validation.enable false --out once
losses once >found
check "the losses of encoded pictures are those of diffusers" near found wanted
trainmark run $train --data.source pictures --data.path "$pipeline/pictures" --data.encoders "$model" --validation.enable false --out fly
check "pictures are encoded as they are used" has "$err" "the encoders of data.source pictures take"
check "result.json, too" has fly/result.json '"encoders": "inside"'
losses fly >flown
check "with the same losses to the last digit" cmp -s found flown
trainmark run $train --data.source latents --data.path both --data.encoders "$model" --data.sample_pictures 2 --validation.freq 10 --checkpoint.enable true --checkpoint.interval 10 --out drawn
check "a run draws" [ "$(find drawn/pictures -name '*.png' | sort | tr '\n' ' ')" = "drawn/pictures/step-00000010-0.png drawn/pictures/step-00000010-1.png drawn/pictures/step-00000020-0.png drawn/pictures/step-00000020-1.png " ]
losses drawn >again
check "and trains as without" cmp -s found again
trainmark run $(echo "$train" | sed 's/--optimizer.lr 1e-3/--optimizer.lr 1e-30/') --data.source latents --data.path both --data.encoders "$model" --data.sample_pictures 1 --validation.freq 10 --out still
check "a model that learns nothing draws the same again, from the same noise" cmp still/pictures/step-00000010-0.png still/pictures/step-00000020-0.png
trainmark run $train --training.steps 10 --data.source latents --data.path both --data.encoders "$model" --data.sample_pictures 1 --data.sample_steps 3 --out few_steps
check "fewer steps draw another picture" [ -s few_steps/pictures/step-00000010-0.png -a "$(cmp -s few_steps/pictures/step-00000010-0.png drawn/pictures/step-00000010-0.png; echo $?)" -eq 1 ]

# --- by several ranks

ranks="$train --training.local_batch_size 1 --training.global_batch_size 2 --training.steps 2 --data.source latents --data.path both
       --data.encoders $model --data.sample_pictures 1"
ranks=$(echo "$ranks" | sed 's/--training.local_batch_size 2//; s/--training.steps 20//')
for layout in data_parallel_shard tensor_parallel; do
    trainmark run $ranks --ranks 2 --parallelism.${layout}_degree 2 --out $layout
    if has "$err" "needs an MPI"; then
        skip "two ranks draw ($layout)" "no MPI is here"
    else
        check "two ranks draw ($layout)" [ "$(find $layout/pictures -name '*.png' | wc -l)" -eq 1 ]
    fi
done
if [ -d tensor_parallel ]; then
    check "the same picture" cmp -s data_parallel_shard/pictures/step-00000002-0.png tensor_parallel/pictures/step-00000002-0.png
fi

# --- drawn

says 0 '' generate drawn --prompt "blue sky" -o a.png
trainmark generate drawn --prompt "blue sky" -o b.png
check "the same seed is the same picture" cmp -s a.png b.png
trainmark generate drawn --prompt "blue sky" -o c.png --count 2
check "seeds are counted on" [ "$(cmp -s a.png c-0.png; echo $?) $(cmp -s a.png c-1.png; echo $?)" = "0 1" ]

# --- what cannot be

says 4 "give --encoders DIR" generate "$model/transformer/../../model/transformer/." --prompt x -o x.png
says 4 "model of images" chat "$model/transformer"
says 4 "neither pipelines nor context parallelism divide" run $train --ranks 2 --parallelism.pipeline_parallel_degree 2 --data.source latents --data.path both --data.sample_pictures 1 --data.encoders "$model" --dry-run
finish
