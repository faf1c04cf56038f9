/* SPDX-License-Identifier: Apache-2.0 */
/* data/sft.c - rows of data for supervised fine-tuning: prompts that are read, answers that are learnt (sft), or two
 * answers to a prompt, one of which is preferred (preference).
 *
 * All rows are read and encoded when the source is opened: 4 bytes a token. A sample of n tokens takes n - 1 places,
 * its last token is a target only. Rows of a batch hold several samples, which do not see each other and whose
 * positions begin at 0 (data.packed), or one; what is left of a row is empty. Samples are packed once, epoch e goes
 * through the rows in permutation (seed, e). A pair is a sample of two sequences, the chosen one first, that lie in one
 * row and do not see each other either.
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

/* The sequences of a split, one after another: one or two of them are a sample. */
typedef struct {
    int32_t     *tokens; /* -1 - id: no target */
    size_t       count, capacity;
    int64_t     *first; /* (sequences + 1) into tokens */
    uint64_t    *from;  /* (sequences) the row of a file that each was made of, as a number */
    size_t       sequences, samples, first_room, from_room;
    int64_t      targets;
    tm_first_fit packing;   /* of samples */
    float       *reference; /* (count) of pairs: what a reference lost on each token, given those before it */
} split;

typedef struct {
    tm_sft_form  *form;
    tm_sft_coder *coder;
    split         splits[2]; /* by tm_split */
    size_t        parts;     /* sequences of a sample */
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

static void add_sequence(split *s, const int32_t *tokens, size_t n, uint64_t from)
{
    while (s->count + n > s->capacity) s->tokens = tm_grow(s->tokens, &s->capacity, s->capacity, sizeof *s->tokens);
    s->first = tm_grow(s->first, &s->first_room, s->sequences + 1, sizeof *s->first);
    memcpy(s->tokens + s->count, tokens, n * sizeof *tokens);
    s->from = tm_grow(s->from, &s->from_room, s->sequences, sizeof *s->from);
    s->from[s->sequences] = from;
    s->first[s->sequences++] = (int64_t)s->count;
    s->count += n;
    s->first[s->sequences] = (int64_t)s->count;
    s->targets += targets_of(tokens, n);
}

/* Tokens of a sequence: all of a row, or half of it and one each. */
static size_t most_tokens(const tm_source_options *o, const sft *all)
{
    return (size_t)o->seq / all->parts + 1;
}

static tm_status is_overlong(const sft *all, size_t n, size_t most, const char *place, tm_error *err)
{
    if (all->parts == 1)
        return tm_fail(
            err, TM_INVALID,
            "%s: %zu tokens, a sample has at most %zu (training.seq_len + 1); raise training.seq_len, or say "
            "with data.overlong what is done with it: truncate, drop or split",
            place, n, most);
    return tm_fail(err, TM_INVALID,
                   "%s: %zu tokens, prompt and answer have at most %zu (training.seq_len / 2 + 1); raise "
                   "training.seq_len, or say with data.overlong what is done with it: truncate or drop",
                   place, n, most);
}

/* Looks at the sequences of a row: *left_out, and counted, if one is too long. */
static tm_status look_at(const tm_source_options *o, sft *all, const tm_ids *ids, const char *place, bool *left_out,
                         tm_error *err)
{
    size_t most = most_tokens(o, all), longest = 0;
    for (size_t k = 0; k < all->parts; k++) {
        if (ids[k].count > longest) longest = ids[k].count;
        for (size_t i = 0; i < ids[k].count; i++) {
            int32_t id = tm_sft_id(ids[k].data[i]);
            if (id > all->highest) all->highest = id;
        }
    }
    *left_out = longest > most && o->sft.overlong == TM_OVERLONG_DROP;
    all->too_long += *left_out;
    return longest > most && o->sft.overlong == TM_OVERLONG_ERROR ? is_overlong(all, longest, most, place, err) : TM_OK;
}

/* The two sequences of a row become a sample, cut at their ends, if each keeps a target. */
static void take_pair(sft *all, split *to, const tm_ids ids[2], size_t most, uint64_t from)
{
    size_t n[2];
    bool   taught = true, cut = false;
    for (int k = 0; k < 2; k++) {
        n[k] = ids[k].count < most ? ids[k].count : most;
        cut |= n[k] < ids[k].count;
        taught &= targets_of(ids[k].data, n[k]) > 0;
    }
    all->truncated += cut;
    all->untaught += !taught;
    if (!taught) return;
    for (int k = 0; k < 2; k++) add_sequence(to, ids[k].data, n[k], from);
    to->samples++;
}

/* The tokens of a row become a sample, or several parts, or are left out and counted. */
static void take_sample(const tm_source_options *o, sft *all, split *to, const tm_ids *ids, size_t most, uint64_t from)
{
    size_t     n = ids->count;
    const bool split_up = o->sft.overlong == TM_OVERLONG_SPLIT;
    all->split += n > most && split_up;
    all->truncated += n > most && !split_up;
    bool taught = false;
    for (size_t at = 0; at + 1 < n; at += most - 1) { /* parts share a token: each but the first is a target once */
        size_t part = n - at < most ? n - at : most;
        bool   has = targets_of(ids->data + at, part) > 0;
        if (has) add_sequence(to, ids->data + at, part, from);
        to->samples += has;
        taught |= has;
        if (!split_up) break;
    }
    all->untaught += !taught;
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
    bool     held = r->held_out || is_held_out(r->taken++, share), left_out;
    split   *to = &r->all->splits[held ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN];
    size_t   most = most_tokens(r->o, r->all);
    uint64_t from = tm_hash(place, strlen(place));
    if (r->all->parts == 1 && ids[1].count > 0)
        return tm_fail(err, TM_INVALID, "%s: two answers to a prompt are for data.source preference, found sft", place);
    TM_TRY(look_at(r->o, r->all, ids, place, &left_out, err));
    if (left_out) return TM_OK;
    if (r->all->parts == 2)
        take_pair(r->all, to, ids, most, from);
    else
        take_sample(r->o, r->all, to, ids, most, from);
    return TM_OK;
}

static tm_status read_rows(const tm_source_options *o, sft *all, const char *path, bool held_out, tm_error *err)
{
    reading r = { .o = o, .all = all, .held_out = held_out };
    return tm_sft_read(path, all->form, all->coder, &all->counts, take_row, &r, err);
}

/* A sequence of n tokens takes n - 1 places. */
static void pack(const tm_source_options *o, size_t parts, split *s)
{
    int32_t *lengths = tm_alloc((s->samples + 1) * sizeof *lengths);
    for (size_t i = 0; i < s->samples; i++)
        lengths[i] = (int32_t)(s->first[parts * (i + 1)] - s->first[parts * i] - (int64_t)parts);
    if (parts == 2) {
        s->reference = tm_alloc((s->count + 1) * sizeof *s->reference);
        memset(s->reference, 0, (s->count + 1) * sizeof *s->reference);
    }
    s->packing = o->sft.packed ? tm_first_fit_make(lengths, (int64_t)s->samples, o->seq)
                               : tm_first_fit_apart((int64_t)s->samples, o->seq);
    free(lengths);
}

static tm_status judge(const tm_source_options *o, const sft *all, tm_error *err)
{
    const split *train = &all->splits[TM_SPLIT_TRAIN], *held = &all->splits[TM_SPLIT_VALIDATION];
    if (train->samples == 0 && all->counts.rows == 0)
        return tm_fail(err, TM_INVALID, "nothing to train on in '%s': it holds no rows", o->path);
    if (train->samples == 0)
        return tm_fail(err, TM_INVALID,
                       "nothing to train on in '%s': %lld rows, of them %lld without %s, %lld too long, %lld without "
                       "a target within training.seq_len %lld; raise training.seq_len or give other data",
                       o->path, (long long)all->counts.rows, (long long)all->counts.nothing,
                       tm_source_traits_of(o->name)->pairs ? "two different answers" : "a text",
                       (long long)all->too_long, (long long)all->untaught, (long long)o->seq);
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
    tm_sft_format format = all->parts == 2 ? TM_SFT_PREFERENCE : o->sft.format;
    TM_TRY(tm_sft_form_open(format, o->sft.column_map, &all->form, err));
    TM_TRY(tm_sft_coder_open(&o->sft, &all->coder, err));
    TM_TRY(read_rows(o, all, o->path, false, err));
    if (o->validation_path) TM_TRY(read_rows(o, all, o->validation_path, true, err));
    TM_TRY(judge(o, all, err));
    for (int i = 0; i < 2; i++) pack(o, all->parts, &all->splits[i]);
    return TM_OK;
}

static void sft_free(sft *all)
{
    for (int i = 0; i < 2; i++) {
        free(all->splits[i].tokens);
        free(all->splits[i].first);
        free(all->splits[i].from);
        free(all->splits[i].reference);
        tm_first_fit_free(&all->splits[i].packing);
    }
    tm_sft_form_close(all->form);
    tm_sft_coder_close(all->coder);
    free(all);
}

/* --- what it is --------------------------------------------------------------------------------------------------- */

static double fill_of(const split *s)
{
    int64_t used = (int64_t)s->count - (int64_t)s->sequences;
    return 100.0 * (double)used / ((double)s->packing.rows * (double)s->packing.width);
}

static void describe_split(const tm_source_options *o, const char *name, const char *what, const split *s, tm_text *out)
{
    char number[3][40];
    if (s->samples == 0) return;
    tm_text_printf(out, "; %s %s %s of %s tokens, %.1f %% of them targets, in %s rows of %lld: %.1f %% full%s", name,
                   tm_format_grouped(number[0], (int64_t)s->samples), what,
                   tm_format_grouped(number[1], (int64_t)s->count), 100.0 * (double)s->targets / (double)s->count,
                   tm_format_grouped(number[2], s->packing.rows), (long long)o->seq, fill_of(s),
                   o->sft.packed ? "" : " (not packed)");
}

static void describe(const tm_source_options *o, const sft *all, tm_text *out)
{
    const char *what = all->parts == 2 ? "pairs" : "samples";
    long long   most = (long long)most_tokens(o, all);
    char        number[40];
    tm_text_printf(out, "'%s': %s rows of %s", o->path, tm_format_grouped(number, all->counts.rows),
                   tm_sft_form_describe(all->form));
    describe_split(o, "training", what, &all->splits[TM_SPLIT_TRAIN], out);
    describe_split(o, "validation", what, &all->splits[TM_SPLIT_VALIDATION], out);
    if (all->truncated > 0)
        tm_text_printf(out, "; %s truncated to %lld tokens", tm_format_grouped(number, all->truncated), most);
    if (all->split > 0)
        tm_text_printf(out, "; %s split into parts of %lld tokens", tm_format_grouped(number, all->split), most);
    if (all->too_long > 0) tm_text_printf(out, "; %s too long, left out", tm_format_grouped(number, all->too_long));
    if (all->untaught > 0)
        tm_text_printf(out, "; %s without a target, left out", tm_format_grouped(number, all->untaught));
    if (all->counts.nothing > 0)
        tm_text_printf(out, "; %s %s, left out", tm_format_grouped(number, all->counts.nothing),
                       all->parts == 2 ? "without a difference" : "empty");
}

static double unigram_entropy(const split *s, int32_t highest)
{
    int64_t *seen = tm_alloc(((size_t)highest + 1) * sizeof *seen);
    memset(seen, 0, ((size_t)highest + 1) * sizeof *seen);
    for (size_t i = 0; i < s->sequences; i++)
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
    for (size_t i = 0; i < s->sequences; i++) {
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

static tm_status check(const tm_source_options *o, bool pairs, tm_error *err)
{
    if (!o->path || !*o->path)
        return tm_fail(err, TM_INVALID,
                       "data.source %s needs a file of rows (.jsonl, .json, .parquet), a directory or a "
                       "pattern of them; set data.path",
                       pairs ? "preference" : "sft");
    if (pairs && o->sft.format != TM_SFT_AUTO && o->sft.format != TM_SFT_PREFERENCE)
        return tm_fail(err, TM_INVALID, "data.source preference reads rows of data.format preference, found %s",
                       tm_sft_format_name(o->sft.format));
    if (pairs && o->sft.overlong == TM_OVERLONG_SPLIT)
        return tm_fail(err, TM_UNSUPPORTED,
                       "data.overlong split is for single sequences: parts of two answers are no pairs; set it to "
                       "truncate, drop or error");
    if (pairs && o->seq < 2)
        return tm_fail(err, TM_INVALID, "training.seq_len is %lld, and a pair has two sequences; wanted 2 or more",
                       (long long)o->seq);
    return TM_OK;
}

static bool is_paired(const tm_source_options *o)
{
    return tm_source_traits_of(o->name)->pairs;
}

static tm_status load(const tm_source_options *o, sft **out, tm_error *err)
{
    TM_TRY(check(o, is_paired(o), err));
    sft *all = tm_alloc(sizeof *all);
    *all = (sft){ .parts = is_paired(o) ? 2 : 1 };
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
    if (held->samples > 0 && all->parts == 1) facts->unigram_entropy = unigram_entropy(held, all->highest);
    if (all->parts == 1)
        facts->bytes_per_token = bytes_per_token(all->coder, held->samples > 0 ? held : &all->splits[TM_SPLIT_TRAIN]);
    for (int i = 0; i < 2; i++) {
        const split   *s = &all->splits[i];
        const uint64_t part[3] = { facts->content, tm_hash(s->tokens, s->count * sizeof *s->tokens),
                                   tm_hash(s->first, s->sequences * sizeof *s->first) };
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

/* Pairs are kept apart in any case: two sequences are in a row. */
static bool separates(const tm_source_options *options)
{
    return options->sft.packed || is_paired(options);
}

static int sft_fields(const tm_source_options *options, tm_field out[TM_MAX_FIELDS])
{
    int n = tm_documents_fields(options->seq, separates(options), out);
    if (is_paired(options))
        out[n++] = (tm_field){ .name = "reference", .dtype = TM_F32, .shape = tm_shape_1(options->seq) };
    return n;
}

/* The row of the packing that a sample number means. */
static int64_t row_of(const tm_source *source, tm_split which, int64_t index)
{
    const sft *all = source->state;
    if (which != TM_SPLIT_TRAIN) return index;
    uint64_t rows = (uint64_t)all->splits[which].packing.rows, epoch = (uint64_t)index / rows;
    return (int64_t)tm_random_permute(source->options.seed, tm_random_stream("sft.order") + epoch,
                                      (uint64_t)index % rows, rows);
}

static void sft_places(const tm_source *source, tm_split which, int64_t index, tm_stored_places *out)
{
    const sft          *all = source->state;
    const tm_first_fit *packing = &all->splits[which].packing;
    int64_t             first = 0, end = packing->rows;
    if (index != TM_WHOLE_SPLIT) first = row_of(source, which, index), end = first + 1;
    if (packing->rows == 0) return;
    for (int64_t k = packing->first[first]; k < packing->first[end]; k++)
        tm_stored_add(out,
                      (tm_stored_place){ .file = all->splits[which].from[(int64_t)all->parts * packing->samples[k]],
                                         .count = 1,
                                         .width = 1 });
}

static tm_status sft_row(const tm_source *source, tm_split which, int64_t index, int32_t *scratch, void *const *fields,
                         int64_t *weight, tm_error *err)
{
    const sft   *all = source->state;
    const split *s = &all->splits[which];
    int64_t      row = row_of(source, which, index), seq = source->options.seq, at = 0;
    int64_t      parts = (int64_t)all->parts, taught = 0;
    int32_t     *tokens = fields[0], *targets = fields[1];
    float       *reference = all->parts == 2 ? fields[4] : NULL;
    tm_documents documents = { 0 };
    (void)scratch;
    (void)err;
    if (separates(&source->options)) documents = tm_documents_of(fields, seq);
    for (int64_t k = parts * s->packing.first[row]; k < parts * s->packing.first[row + 1]; k++) {
        const int64_t *first = &s->first[parts * s->packing.samples[k / parts] + k % parts];
        if (separates(&source->options)) tm_documents_add(&documents, first[1] - first[0] - 1);
        for (int64_t t = first[0]; t + 1 < first[1]; t++, at++) {
            int32_t next = s->tokens[t + 1];
            tokens[at] = tm_sft_id(s->tokens[t]);
            targets[at] = next >= 0 ? next : TM_IGNORED_TARGET;
            if (reference) reference[at] = s->reference[t + 1];
            taught += next >= 0;
        }
    }
    if (separates(&source->options)) tm_documents_add(&documents, seq - at);
    for (; at < seq; at++) {
        tokens[at] = 0;
        targets[at] = TM_IGNORED_TARGET;
        if (reference) reference[at] = 0;
    }
    *weight = reference ? s->packing.first[row + 1] - s->packing.first[row] : taught;
    return TM_OK;
}

static void keep_reference(const tm_source *source, tm_split which, int64_t index, const float *losses)
{
    const sft   *all = source->state;
    const split *s = &all->splits[which];
    int64_t      row = row_of(source, which, index), at = 0;
    for (int64_t k = 2 * s->packing.first[row]; k < 2 * s->packing.first[row + 1]; k++) {
        const int64_t *first = &s->first[2 * s->packing.samples[k / 2] + k % 2];
        for (int64_t t = first[0]; t + 1 < first[1]; t++, at++) s->reference[t + 1] = losses[at];
    }
}

const tm_source_kind tm_source_sft = {
    .traits = { .name = "sft", .gate = TM_GATE_HELD_OUT, .needs_path = true, .takes_validation_path = true },
    .vocabulary = sft_vocabulary,
    .open = sft_open,
    .close = sft_close,
    .fields = sft_fields,
    .row = sft_row,
    .unit = row_of,
    .places = sft_places,
    .outline = sft_outline,
};

const tm_source_kind tm_source_preference = {
    .traits = { .name = "preference",
                .gate = TM_GATE_PREFERENCE,
                .needs_path = true,
                .takes_validation_path = true,
                .pairs = true },
    .vocabulary = sft_vocabulary,
    .open = sft_open,
    .close = sft_close,
    .fields = sft_fields,
    .row = sft_row,
    .unit = row_of,
    .places = sft_places,
    .keep = keep_reference,
    .outline = sft_outline,
};
