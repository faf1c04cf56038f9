/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step/sequence.h"

static int64_t ranks_of(const tm_step_options *options)
{
    return tm_layout_size(&options->layout, 1U << TM_AXIS_CP);
}

/* Of each sequence: one run of the tokens of an image, two of those of a text. */
static int64_t chunks_of(const tm_step_options *options)
{
    return tm_model_images(&options->shape) ? 1 : TM_CHUNKS;
}

static tm_status check_length(const tm_step_options *o, int64_t seq, const char *key, tm_error *err)
{
    const int64_t ranks = ranks_of(o), chunks = chunks_of(o) * ranks, below = seq / chunks * chunks;
    if (seq % chunks == 0) return TM_OK;
    if (below == 0)
        return tm_fail(
            err, TM_INVALID,
            "parallelism.context_parallel_degree %lld cuts sequences into %lld equal chunks, and %s is %lld; "
            "set it to %lld, or take a smaller degree",
            (long long)ranks, (long long)chunks, key, (long long)seq, (long long)chunks);
    return tm_fail(
        err, TM_INVALID,
        "parallelism.context_parallel_degree %lld cuts sequences into %lld equal chunks, and %s is %lld; set "
        "it to %lld or %lld, or take another degree",
        (long long)ranks, (long long)chunks, key, (long long)seq, (long long)below, (long long)(below + chunks));
}

tm_status sequence_check(const tm_step_options *o, tm_error *err)
{
    if (ranks_of(o) == 1) return TM_OK;
    if (tm_model_images(&o->shape)) {
        TM_TRY(check_length(o, o->shape.flux.text_len, "model.text_len", err));
        return check_length(o, o->shape.flux.rows * o->shape.flux.columns, "the number of tokens of model.image_size",
                            err);
    }
    TM_TRY(check_length(o, o->seq, "training.seq_len", err));
    return o->validation_batch > 0 ? check_length(o, o->validation_seq, "validation.seq_len", err) : TM_OK;
}

bool sequence_cuts(const tm_step_options *o, const tm_field *field, int64_t seq)
{
    bool tokens =
        field->shape.rank > 0 && (tm_model_images(&o->shape) ? field->shape.n[0] > 1 : field->shape.n[0] == seq);
    return ranks_of(o) > 1 && tokens;
}

tm_status sequence_feed(tm_device *device, const tm_step_options *o, tm_address to, size_t bytes, int64_t samples,
                        const void *from, tm_error *err)
{
    const tm_division context = tm_layout_parallel(&o->layout).context;
    const int64_t     chunks = chunks_of(o);
    const size_t      chunk = bytes / (size_t)(chunks * samples);
    for (int64_t i = 0; i < chunks * samples; i++) {
        int64_t number = i % samples * chunks * context.ranks + tm_chunk_of(context, (int)(i / samples));
        TM_TRY(tm_device_write(device, tm_address_add(to, (size_t)i * chunk),
                               (const char *)from + (size_t)number * chunk, chunk, err));
    }
    return TM_OK;
}
