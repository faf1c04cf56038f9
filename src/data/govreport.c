/* SPDX-License-Identifier: Apache-2.0 */
/* data/govreport.c - packed sequences with a mask as a source: train.npy and validation.npy of the fine-tuning
 * benchmark, or any files of that format (data/packed.h).
 *
 * A row of W ids is a sample of T = W: inputs are ids 0 .. W-2 and a padding token, targets ids 1 .. W-1 and none. The
 * target at position t counts if the mask of the input (t) or of the target (t + 1) says so, as data.loss_mask chooses.
 * Attention is causal over the whole row.
 *
 * Order: epoch e of training visits the rows in permutation (seed, e); validation goes in file order.
 */
#include "base/arena.h"
#include "base/random.h"
#include "base/file_list.h"
#include "data/packed.h"
#include "data/source_kind.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_packed splits[2]; /* by tm_split; the second may be empty */
} govreport;

/* Widths and ids; `o` says what is wanted. *largest grows to the largest id. */
static tm_status check_rows(const tm_source_options *o, const tm_packed *packed, const char *path, int32_t *largest,
                            tm_error *err)
{
    if (packed->rows == 0) return tm_fail(err, TM_INVALID, "'%s' has no rows", path);
    if (packed->width != o->seq)
        return tm_fail(err, TM_INVALID,
                       "the rows of '%s' have %lld tokens, found training.seq_len %lld; set it to %lld", path,
                       (long long)packed->width, (long long)o->seq, (long long)packed->width);
    for (int64_t r = 0; r < packed->rows; r++)
        for (int64_t t = 0; t < packed->width; t++) {
            int32_t id = tm_packed_id(&packed->row[r], t);
            if (id < 0 || id >= o->vocab)
                return tm_fail(err, TM_INVALID,
                               "'%s': token %lld of row %lld is %d, model.vocab_size is %lld; raise it, or give data "
                               "of the model's tokenizer",
                               path, (long long)t, (long long)r, id, (long long)o->vocab);
            if (id > *largest) *largest = id;
        }
    return TM_OK;
}

static tm_status open_split(const tm_source_options *o, const char *path, tm_packed *out, int32_t *largest,
                            tm_error *err)
{
    TM_TRY(tm_packed_open(path, out, err));
    return check_rows(o, out, path, largest, err);
}

static tm_status open_files(const tm_source_options *o, govreport *g, int32_t *largest, tm_error *err)
{
    tm_text train = { 0 }, validation = { 0 };
    bool    folder = tm_is_folder(o->path);
    tm_text_printf(&train, "%s%s", o->path, folder ? "/train.npy" : "");
    if (o->validation_path)
        tm_text_printf(&validation, "%s%s", o->validation_path,
                       tm_is_folder(o->validation_path) ? "/validation.npy" : "");
    else if (folder)
        tm_text_printf(&validation, "%s/validation.npy", o->path);
    tm_status st = open_split(o, train.data, &g->splits[TM_SPLIT_TRAIN], largest, err);
    if (st == TM_OK && validation.data)
        st = open_split(o, validation.data, &g->splits[TM_SPLIT_VALIDATION], largest, err);
    tm_text_fini(&train);
    tm_text_fini(&validation);
    return st;
}

static void govreport_free(govreport *g)
{
    for (int i = 0; i < 2; i++) tm_packed_close(&g->splits[i]);
    free(g);
}

static tm_status check_path(const tm_source_options *o, tm_error *err)
{
    if (!o->path || !*o->path)
        return tm_fail(err, TM_INVALID, "data.source govreport needs train.npy or its directory; set data.path");
    return TM_OK;
}

static tm_status govreport_outline(const tm_source_options *o, tm_text *out, tm_error *err)
{
    int32_t largest = 0;
    TM_TRY(check_path(o, err));
    govreport *g = tm_alloc(sizeof *g);
    *g = (govreport){ 0 };
    tm_status st = open_files(o, g, &largest, err);
    if (st == TM_OK)
        tm_text_printf(out, "'%s': %lld rows of %lld tokens, %lld rows held out, largest token %d\n", o->path,
                       (long long)g->splits[TM_SPLIT_TRAIN].rows, (long long)o->seq,
                       (long long)g->splits[TM_SPLIT_VALIDATION].rows, largest);
    govreport_free(g);
    return st;
}

/* One more than the largest token. */
static tm_status govreport_vocabulary(const tm_source_options *o, int64_t *size, tm_error *err)
{
    tm_source_options any = *o;
    int32_t           largest = 0;
    govreport        *g = tm_alloc(sizeof *g);
    *g = (govreport){ 0 };
    any.vocab = INT32_MAX;
    tm_status st = o->path && *o->path ? open_files(&any, g, &largest, err) : TM_OK; /* without: said by open */
    if (st == TM_OK && o->path && *o->path) *size = (int64_t)largest + 1;
    govreport_free(g);
    return st;
}

/* Does the target at position t < W - 1 count? */
static bool counts(const tm_source *source, const tm_packed *packed, const tm_packed_row *row, int64_t t)
{
    return packed->masks[row->mask + (size_t)t + (source->options.mask == TM_MASK_TARGET)];
}

static double validation_entropy(const tm_source *source, const tm_packed *packed)
{
    int64_t *seen = tm_alloc((size_t)source->options.vocab * sizeof *seen);
    memset(seen, 0, (size_t)source->options.vocab * sizeof *seen);
    for (int64_t r = 0; r < packed->rows; r++)
        for (int64_t t = 0; t + 1 < packed->width; t++)
            if (counts(source, packed, &packed->row[r], t)) seen[tm_packed_id(&packed->row[r], t + 1)]++;
    double entropy = tm_unigram_entropy(seen, source->options.vocab);
    free(seen);
    return entropy;
}

static tm_status govreport_open(tm_source *source, tm_error *err)
{
    const tm_source_options *o = &source->options;
    int32_t                  largest = 0;
    TM_TRY(check_path(o, err));
    if (o->pad_token < 0 || o->pad_token >= o->vocab)
        return tm_fail(err, TM_INVALID, "data.pad_token is %d, model.vocab_size is %lld; wanted 0 to %lld",
                       o->pad_token, (long long)o->vocab, (long long)o->vocab - 1);
    govreport *g = tm_alloc(sizeof *g);
    *g = (govreport){ 0 };
    tm_status st = open_files(o, g, &largest, err);
    if (st != TM_OK) {
        govreport_free(g);
        return st;
    }
    tm_source_facts *facts = &source->facts;
    facts->train_samples = g->splits[TM_SPLIT_TRAIN].rows;
    facts->validation_samples = g->splits[TM_SPLIT_VALIDATION].rows;
    facts->vocab_needed = (int64_t)largest + 1;
    facts->unigram_entropy = validation_entropy(source, &g->splits[TM_SPLIT_VALIDATION]);
    for (int i = 0; i < 2; i++)
        facts->content = tm_fingerprint(facts->content, g->splits[i].map.bytes, g->splits[i].map.size);
    source->state = g;
    return TM_OK;
}

static void govreport_close(tm_source *source)
{
    govreport_free(source->state);
}

static int64_t row_of(const tm_source *source, tm_split split, int64_t index)
{
    const govreport *g = source->state;
    if (split != TM_SPLIT_TRAIN) return index;
    uint64_t rows = (uint64_t)g->splits[split].rows, epoch = (uint64_t)index / rows;
    return (int64_t)tm_random_permute(source->options.seed, tm_random_stream("govreport.order") + epoch,
                                      (uint64_t)index % rows, rows);
}

/* The last id of a row is a target only. */
static void govreport_places(const tm_source *source, tm_split split, int64_t index, tm_stored_places *out)
{
    const tm_packed *packed = &((const govreport *)source->state)->splits[split];
    tm_error         changed;
    if (packed->rows == 0) return;
    tm_stored_place place = { .file = tm_stored_file(packed->map.path), .count = packed->map.size, .width = 1 };
    if (index != TM_WHOLE_SPLIT) {
        place.at = packed->row[row_of(source, split, index)].ids - packed->map.bytes;
        place.count = packed->width - 1;
        place.width = (int)sizeof(int32_t);
        place.path = tm_map_check(&packed->map, &changed) == TM_OK ? packed->map.path : NULL;
    }
    tm_stored_add(out, place);
}

static tm_status govreport_row(const tm_source *source, tm_split split, int64_t index, int32_t *scratch,
                               void *const *fields, int64_t *weight, tm_error *err)
{
    int32_t         *tokens = fields[0], *targets = fields[1];
    const govreport *g = source->state;
    const tm_packed *packed = &g->splits[split];
    int64_t          last = packed->width - 1;
    (void)scratch;
    TM_TRY(tm_map_check(&packed->map, err));
    const tm_packed_row *row = &packed->row[row_of(source, split, index)];
    *weight = 0;
    for (int64_t t = 0; t < last; t++) {
        tokens[t] = tm_packed_id(row, t);
        *weight += counts(source, packed, row, t);
        targets[t] = counts(source, packed, row, t) ? tm_packed_id(row, t + 1) : TM_IGNORED_TARGET;
    }
    tokens[last] = source->options.pad_token;
    targets[last] = TM_IGNORED_TARGET;
    return TM_OK;
}

const tm_source_kind tm_source_govreport = {
    .traits = { .name = "govreport", .gate = TM_GATE_HELD_OUT, .needs_path = true, .takes_validation_path = true },
    .open = govreport_open,
    .vocabulary = govreport_vocabulary,
    .close = govreport_close,
    .row = govreport_row,
    .unit = row_of,
    .places = govreport_places,
    .outline = govreport_outline,
};
