#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From pictures to pictures: shapes are drawn and captioned, encoded, learnt, and drawn from ten captions that training never had;
# a judge that has learnt nothing finds the colour and the shape of at least eight. A quarter of an hour on two quiet cores.
#
# Needs a Python with the packages that tools/flux_shapes.py names: TM_PYTHON, else build/venv/bin/python, else python3.
# TM_SHAPES is a folder to keep: pictures and encoders are made there once. TM_SHAPES_STEPS: other than the steps of shapes.yaml.
# shellcheck disable=SC1091,SC2034,SC2154
. "$(dirname "$0")/../cli/lib.sh"
seconds=7200

missing()
{
    skip "a model of pictures learns to draw" "$1"
    finish
}

python=${TM_PYTHON:-$root/build/venv/bin/python}
[ -x "$python" ] || python=$(command -v python3) || missing "there is no Python"
"$python" -c "import torch, diffusers, transformers, tokenizers, sentencepiece, safetensors, PIL" 2>/dev/null ||
    missing "'$python' lacks packages; TM_PYTHON names a Python that has those of tools/flux_shapes.py"

# What the tool says becomes remarks.
shapes()
{
    "$python" "$root/tools/flux_shapes.py" "$@" >said.txt 2>&1
    shapes_code=$?
    sed 's/^/# /' said.txt
    return $shapes_code
}
folder=${TM_SHAPES:-$work/shapes}

check "pictures and encoders are made" shapes make "$folder"
check "the encoders tell captions apart, the judge tells decoded pictures apart" shapes probe "$folder"
trainmark data encode "$folder/pictures" --model "$folder/model" --size 64 --text-tokens 8 -o cache
check "pictures and captions are encoded" [ "$code" -eq 0 ]
check "all of them" has "$out" "^cache: 440 pictures encoded"
check "as diffusers and transformers do it" shapes encode "$folder" theirs
check "to the last digits" shapes near theirs cache

export CACHE="$work/cache"
trainmark run "$root/configs/experiments/images/shapes.yaml" ${TM_SHAPES_STEPS:+--training.steps "$TM_SHAPES_STEPS"} --out run
check "a run, whose verdict is not negative" [ "$code" -eq 0 ]

mkdir drawn
i=0
"$python" "$root/tools/flux_shapes.py" captions >prompts.txt
while read -r caption; do
    trainmark generate run --encoders "$folder/model" --prompt "$caption" --seed "$i" --steps 20 --true-cfg 2 -o "drawn/$i.png"
    check "drawn: $caption" [ "$code" -eq 0 ]
    echo "{\"file_name\": \"$i.png\", \"text\": \"$caption\"}" >>drawn/metadata.jsonl
    i=$((i + 1))
done <prompts.txt
check "ten captions" [ "$i" -eq 10 ]
check "at least eight of them are drawn rightly" shapes judge drawn 8

finish
