/* SPDX-License-Identifier: Apache-2.0 */
/* data/sft.c - rows of data for supervised fine-tuning: prompts that are read, answers that are learnt.
 *
 * All rows are read and encoded when the source is opened: 4 bytes a token. A sample of n tokens takes n - 1 places,
 * its last token is a target only. Rows of a batch hold several samples, which do not see each other and whose
 * positions begin at 0 (data.packed), or one; what is left of a row is empty. Samples are packed once, epoch e goes
 * through the rows in permutation (seed, e).
 */
#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "data/first_fit.h"
#include "data/sft_read.h"
#include "data/source_kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The samples of a split, one after another. */
typedef struct {
    int32_t     *tokens; /* -1 - id: no target */
    size_t       count, capacity;
    int64_t     *first; /* (samples + 1) into tokens */
    size_t       samples, first_room;
    int64_t      targets;
    tm_first_fit packing;
} split;

typedef struct {
    tm_sft_form  *form;
    tm_sft_coder *coder;
    split         splits[2]; /* by tm_split */
    tm_sft_counts counts;
    int64_t       truncated, split, too_long, untaught;
    int32_t       highest;
} sft;

/* --- reading ------------------------------------------------------------------------------------------------------ */

static int64_t targets_of(const int32_t *tokens, size_t n)
{
    int64_t targets = 0;
    for (size_t i = 1; i < n; i++) targets += tokens[i] >= 0;
    return targets;
}

static void add_sample(split *s, const int32_t *tokens, size_t n)
{
    while (s->count + n > s->capacity) s->tokens = tm_grow(s->tokens, &s->capacity, s->capacity, sizeof *s->tokens);
    s->first = tm_grow(s->first, &s->first_room, s->samples + 1, sizeof *s->first);
    memcpy(s->tokens + s->count, tokens, n * sizeof *tokens);
    s->first[s->samples++] = (int64_t)s->count;
    s->count += n;
    s->first[s->samples] = (int64_t)s->count;
    s->targets += targets_of(tokens, n);
}

/* The tokens of a row become a sample, or are left out and counted. */
static tm_status take_sample(const tm_source_options *o, sft *all, split *to, const tm_ids *ids, const char *place,
                             tm_error *err)
{
    size_t n = ids->count, most = (size_t)o->seq + 1;
    for (size_t i = 0; i < n; i++) {
        int32_t id = tm_sft_id(ids->data[i]);
        if (id > all->highest) all->highest = id;
    }
    if (n > most && o->sft.overlong == TM_OVERLONG_ERROR)
        return tm_fail(
            err, TM_INVALID,
            "%s: %zu tokens, a sample has at most %zu (training.seq_len + 1); raise training.seq_len, or say "
            "with data.overlong what is done with it: truncate, drop or split",
            place, n, most);
    if (n > most && o->sft.overlong == TM_OVERLONG_DROP) {
        all->too_long++;
        return TM_OK;
    }
    const bool split_up = o->sft.overlong == TM_OVERLONG_SPLIT;
    all->split += n > most && split_up;
    all->truncated += n > most && !split_up;
    bool taught = false;
    for (size_t at = 0; at + 1 < n; at += most - 1) { /* parts share a token: each but the first is a target once */
        size_t part = n - at < most ? n - at : most;
        bool   has = targets_of(ids->data + at, part) > 0;
        if (has) add_sample(to, ids->data + at, part);
        taught |= has;
        if (!split_up) break;
    }
    all->untaught += !taught;
    return TM_OK;
}

/* The row i of a file is held out where the share of all before it and itself reaches the next whole number. */
static bool is_held_out(int64_t i, double fraction)
{
    return floor((double)(i + 1) * fraction) > floor((double)i * fraction);
}

typedef struct {
    const tm_source_options *o;
    sft                     *all;
    bool                     held_out;
    int64_t                  taken;
} reading;

static tm_status take_row(void *context, const tm_ids *ids, const char *place, tm_error *err)
{
    reading *r = context;
    double   share = r->o->validation_path ? 0 : r->o->validation_fraction;
    bool     held = r->held_out || is_held_out(r->taken++, share);
    return take_sample(r->o, r->all, &r->all->splits[held ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN], ids, place, err);
}

static tm_status read_rows(const tm_source_options *o, sft *all, const char *path, bool held_out, tm_error *err)
{
    reading r = { .o = o, .all = all, .held_out = held_out };
    return tm_sft_read(path, all->form, all->coder, &all->counts, take_row, &r, err);
}

static void pack(const tm_source_options *o, split *s)
{
    int32_t *lengths = tm_alloc((s->samples + 1) * sizeof *lengths);
    for (size_t i = 0; i < s->samples; i++) lengths[i] = (int32_t)(s->first[i + 1] - s->first[i] - 1);
    s->packing = o->sft.packed ? tm_first_fit_make(lengths, (int64_t)s->samples, o->seq)
                               : tm_first_fit_apart((int64_t)s->samples, o->seq);
    free(lengths);
}

static tm_status judge(const tm_source_options *o, const sft *all, tm_error *err)
{
    const split *train = &all->splits[TM_SPLIT_TRAIN], *held = &all->splits[TM_SPLIT_VALIDATION];
    if (train->samples == 0)
        return tm_fail(
            err, TM_INVALID,
            "nothing to train on in '%s': %lld rows, of them %lld without a text, %lld too long, %lld without "
            "a target within training.seq_len %lld; raise training.seq_len or give other data",
            o->path, (long long)all->counts.rows, (long long)all->counts.nothing, (long long)all->too_long,
            (long long)all->untaught, (long long)o->seq);
    if (held->samples == 0 && (o->validation_path || o->validation_fraction > 0))
        return tm_fail(err, TM_INVALID, "nothing is held out: %s%s; give more rows, %s",
                       o->validation_path ? o->validation_path : "too few rows for data.validation_fraction",
                       o->validation_path ? " has no row with a target" : "",
                       o->validation_path ? "or leave data.validation_path out"
                                          : "raise data.validation_fraction, or set it to 0");
    if (o->vocab > 0 && all->highest >= o->vocab)
        return tm_fail(
            err, TM_INVALID,
            "the highest token of '%s' is %d, found model.vocab_size %lld; set model.vocab_size to %d or more, "
            "or data.tokenizer to the model's",
            o->path, all->highest, (long long)o->vocab, all->highest + 1);
    return TM_OK;
}

static tm_status read_all(const tm_source_options *o, sft *all, tm_error *err)
{
    TM_TRY(tm_sft_form_open(o->sft.format, o->sft.column_map, &all->form, err));
    TM_TRY(tm_sft_coder_open(&o->sft, &all->coder, err));
    TM_TRY(read_rows(o, all, o->path, false, err));
    if (o->validation_path) TM_TRY(read_rows(o, all, o->validation_path, true, err));
    TM_TRY(judge(o, all, err));
    for (int i = 0; i < 2; i++) pack(o, &all->splits[i]);
    return TM_OK;
}

static void sft_free(sft *all)
{
    for (int i = 0; i < 2; i++) {
        free(all->splits[i].tokens);
        free(all->splits[i].first);
        tm_first_fit_free(&all->splits[i].packing);
    }
    tm_sft_form_close(all->form);
    tm_sft_coder_close(all->coder);
    free(all);
}

/* --- what it is --------------------------------------------------------------------------------------------------- */

static double fill_of(const split *s)
{
    int64_t used = (int64_t)s->count - (int64_t)s->samples;
    return 100.0 * (double)used / ((double)s->packing.rows * (double)s->packing.width);
}

static void describe_split(const tm_source_options *o, const char *name, const split *s, tm_text *out)
{
    char number[3][40];
    if (s->samples == 0) return;
    tm_text_printf(out, "; %s %s samples of %s tokens, %.1f %% of them targets, in %s rows of %lld: %.1f %% full%s",
                   name, tm_format_grouped(number[0], (int64_t)s->samples),
                   tm_format_grouped(number[1], (int64_t)s->count), 100.0 * (double)s->targets / (double)s->count,
                   tm_format_grouped(number[2], s->packing.rows), (long long)o->seq, fill_of(s),
                   o->sft.packed ? "" : " (not packed)");
}

static void describe(const tm_source_options *o, const sft *all, tm_text *out)
{
    char number[40];
    tm_text_printf(out, "'%s': %s rows of %s", o->path, tm_format_grouped(number, all->counts.rows),
                   tm_sft_form_describe(all->form));
    describe_split(o, "training", &all->splits[TM_SPLIT_TRAIN], out);
    describe_split(o, "validation", &all->splits[TM_SPLIT_VALIDATION], out);
    if (all->truncated > 0)
        tm_text_printf(out, "; %s truncated to %lld tokens", tm_format_grouped(number, all->truncated),
                       (long long)o->seq + 1);
    if (all->split > 0)
        tm_text_printf(out, "; %s split into parts of %lld tokens", tm_format_grouped(number, all->split),
                       (long long)o->seq + 1);
    if (all->too_long > 0) tm_text_printf(out, "; %s too long, left out", tm_format_grouped(number, all->too_long));
    if (all->untaught > 0)
        tm_text_printf(out, "; %s without a target, left out", tm_format_grouped(number, all->untaught));
    if (all->counts.nothing > 0)
        tm_text_printf(out, "; %s empty, left out", tm_format_grouped(number, all->counts.nothing));
}

static double unigram_entropy(const split *s, int32_t highest)
{
    int64_t *seen = tm_alloc(((size_t)highest + 1) * sizeof *seen);
    memset(seen, 0, ((size_t)highest + 1) * sizeof *seen);
    for (size_t i = 0; i < s->samples; i++)
        for (int64_t t = s->first[i] + 1; t < s->first[i + 1]; t++)
            if (s->tokens[t] >= 0) seen[s->tokens[t]]++;
    double entropy = tm_unigram_entropy(seen, highest + 1);
    free(seen);
    return entropy;
}

/* Bytes of the targets' text. */
static double bytes_per_token(const tm_sft_coder *coder, const split *s)
{
    tm_text text = { 0 };
    double  bytes = 0;
    tm_ids  ids = { 0 };
    for (size_t i = 0; i < s->samples; i++) {
        ids.count = 0;
        for (int64_t t = s->first[i] + 1; t < s->first[i + 1]; t++) {
            if (s->tokens[t] < 0) continue;
            ids.data = tm_grow(ids.data, &ids.capacity, ids.count, sizeof *ids.data);
            ids.data[ids.count++] = s->tokens[t];
        }
        if (text.data) text.length = 0;
        tm_sft_decode(coder, ids.data, ids.count, false, &text);
        bytes += (double)text.length;
    }
    free(ids.data);
    tm_text_fini(&text);
    return s->targets > 0 ? bytes / (double)s->targets : (double)NAN;
}

static tm_status check(const tm_source_options *o, tm_error *err)
{
    if (!o->path || !*o->path)
        return tm_fail(err, TM_INVALID,
                       "data.source sft needs a file of rows (.jsonl, .json, .parquet), a directory or a "
                       "pattern of them; set data.path");
    return TM_OK;
}

static tm_status load(const tm_source_options *o, sft **out, tm_error *err)
{
    TM_TRY(check(o, err));
    sft *all = tm_alloc(sizeof *all);
    *all = (sft){ 0 };
    tm_status st = read_all(o, all, err);
    if (st == TM_OK)
        *out = all;
    else
        sft_free(all);
    return st;
}

static tm_status sft_outline(const tm_source_options *o, tm_text *out, tm_error *err)
{
    sft *all;
    TM_TRY(load(o, &all, err));
    describe(o, all, out);
    tm_text_add(out, "\n");
    sft_free(all);
    return TM_OK;
}

static tm_status sft_vocabulary(const tm_source_options *o, int64_t *size, tm_error *err)
{
    return tm_sft_vocabulary(&o->sft, size, err);
}

static tm_status sft_open(tm_source *source, tm_error *err)
{
    const tm_source_options *o = &source->options;
    sft                     *all;
    tm_text                  text = { 0 };
    TM_TRY(load(o, &all, err));
    describe(o, all, &text);
    tm_note("%s", text.data);
    tm_text_fini(&text);
    const split     *held = &all->splits[TM_SPLIT_VALIDATION];
    tm_source_facts *facts = &source->facts;
    facts->train_samples = all->splits[TM_SPLIT_TRAIN].packing.rows;
    facts->validation_samples = held->packing.rows;
    facts->vocab_needed = (int64_t)all->highest + 1;
    if (held->samples > 0) facts->unigram_entropy = unigram_entropy(held, all->highest);
    facts->bytes_per_token = bytes_per_token(all->coder, held->samples > 0 ? held : &all->splits[TM_SPLIT_TRAIN]);
    for (int i = 0; i < 2; i++) {
        const split   *s = &all->splits[i];
        const uint64_t part[3] = { facts->content, tm_hash(s->tokens, s->count * sizeof *s->tokens),
                                   tm_hash(s->first, s->samples * sizeof *s->first) };
        facts->content = tm_hash(part, sizeof part);
    }
    source->state = all;
    return TM_OK;
}

static void sft_close(tm_source *source)
{
    sft_free(source->state);
}

/* --- rows of a batch ---------------------------------------------------------------------------------------------- */

static int sft_fields(const tm_source_options *options, tm_field out[TM_MAX_FIELDS])
{
    return tm_documents_fields(options->seq, options->sft.packed, out);
}

static tm_status sft_row(const tm_source *source, tm_split which, int64_t index, int32_t *scratch, void *const *fields,
                         int64_t *weight, tm_error *err)
{
    const sft   *all = source->state;
    const split *s = &all->splits[which];
    int64_t      row = index, seq = source->options.seq, at = 0;
    int32_t     *tokens = fields[0], *targets = fields[1];
    tm_documents documents = { 0 };
    (void)scratch;
    (void)err;
    if (which == TM_SPLIT_TRAIN) {
        uint64_t rows = (uint64_t)s->packing.rows, epoch = (uint64_t)index / rows;
        row = (int64_t)tm_random_permute(source->options.seed, tm_random_stream("sft.order") + epoch,
                                         (uint64_t)index % rows, rows);
    }
    if (source->options.sft.packed) documents = tm_documents_of(fields, seq);
    *weight = 0;
    for (int64_t k = s->packing.first[row]; k < s->packing.first[row + 1]; k++) {
        const int64_t *first = &s->first[s->packing.samples[k]];
        if (source->options.sft.packed) tm_documents_add(&documents, first[1] - first[0] - 1);
        for (int64_t t = first[0]; t + 1 < first[1]; t++, at++) {
            int32_t next = s->tokens[t + 1];
            tokens[at] = tm_sft_id(s->tokens[t]);
            targets[at] = next >= 0 ? next : TM_IGNORED_TARGET;
            *weight += next >= 0;
        }
    }
    if (source->options.sft.packed) tm_documents_add(&documents, seq - at);
    for (; at < seq; at++) {
        tokens[at] = 0;
        targets[at] = TM_IGNORED_TARGET;
    }
    return TM_OK;
}

const tm_source_kind tm_source_sft = {
    .traits = { .name = "sft", .gate = TM_GATE_HELD_OUT, .needs_path = true, .takes_validation_path = true },
    .vocabulary = sft_vocabulary,
    .open = sft_open,
    .close = sft_close,
    .fields = sft_fields,
    .row = sft_row,
    .outline = sft_outline,
};
