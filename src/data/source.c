/* SPDX-License-Identifier: Apache-2.0 */
/* data/source.c - finds a source by name and passes calls on to it. */
#include "data/source.h"

#include "base/arena.h"
#include "base/hash.h"
#include "data/source_kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tm_source_kind *const kinds[] = {
#define TM_SOURCE(name, help) &tm_source_##name,
#include "data/sources.def"
#undef TM_SOURCE
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

const char *tm_source_name(int i)
{
    return i >= 0 && i < N_KINDS ? kinds[i]->traits.name : NULL;
}

static const tm_source_kind *kind_of(const char *name)
{
    for (int i = 0; i < N_KINDS; i++)
        if (tm_names_equal(name, kinds[i]->traits.name)) return kinds[i];
    return NULL;
}

const tm_source_traits *tm_source_traits_of(const char *name)
{
    const tm_source_kind *kind = kind_of(name);
    return kind ? &kind->traits : NULL;
}

static tm_status find_kind(const char *name, const tm_source_kind **out, tm_error *err)
{
    const tm_source_kind *nearest = kinds[0];
    tm_text               names = { 0 };
    *out = kind_of(name);
    if (*out) return TM_OK;
    for (int i = 0; i < N_KINDS; i++) {
        if (tm_edit_distance(name, kinds[i]->traits.name) < tm_edit_distance(name, nearest->traits.name))
            nearest = kinds[i];
        tm_text_printf(&names, "%s%s", i ? ", " : "", kinds[i]->traits.name);
    }
    tm_fail(err, TM_INVALID, "data.source '%s' is unknown, wanted one of: %s; did you mean '%s'?", name, names.data,
            nearest->traits.name);
    tm_text_fini(&names);
    return TM_INVALID;
}

static tm_status check_options(const tm_source_options *options, tm_error *err)
{
    if (options->seq < 1 || options->seq > INT32_MAX)
        return tm_fail(err, TM_INVALID, "a sample of %lld tokens is impossible, wanted 1 to %d; set training.seq_len",
                       (long long)options->seq, INT32_MAX);
    if (options->vocab < 0 || options->vocab > INT32_MAX)
        return tm_fail(err, TM_INVALID, "model.vocab_size %lld is impossible, wanted 1 to %d",
                       (long long)options->vocab, INT32_MAX);
    return TM_OK;
}

int tm_documents_fields(int64_t seq, bool separate, tm_field out[TM_MAX_FIELDS])
{
    out[0] = (tm_field){ .name = "tokens", .dtype = TM_I32, .shape = tm_shape_1(seq) };
    out[1] = (tm_field){ .name = "targets", .dtype = TM_I32, .shape = tm_shape_1(seq), .empty = TM_IGNORED_TARGET };
    if (!separate) return 2;
    out[2] = (tm_field){ .name = "positions", .dtype = TM_I32, .shape = tm_shape_1(seq) };
    out[3] = (tm_field){ .name = "first_key", .dtype = TM_I32, .shape = tm_shape_1(seq) };
    return 4;
}

static int fields_of(const tm_source_kind *kind, const tm_source_options *options, tm_field out[TM_MAX_FIELDS])
{
    if (kind->fields) return kind->fields(options, out);
    return tm_documents_fields(options->seq, options->separate, out);
}

static tm_status check_documents(const tm_source_kind *kind, const tm_source_options *options, tm_error *err)
{
    tm_text names = { 0 };
    if (!options->separate || kind->traits.documents) return TM_OK;
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i]->traits.documents)
            tm_text_printf(&names, "%s%s", names.length ? " and " : "", kinds[i]->traits.name);
    tm_fail(
        err, TM_UNSUPPORTED,
        "data.separate_documents is for sources that know where documents begin, %s, found data.source %s; leave it "
        "out or take one of them",
        names.data, kind->traits.name);
    tm_text_fini(&names);
    return TM_UNSUPPORTED;
}

tm_status tm_source_fields(const tm_source_options *options, tm_field out[TM_MAX_FIELDS], int *n, tm_error *err)
{
    const tm_source_kind *kind = NULL;
    TM_TRY(find_kind(options->name ? options->name : "", &kind, err));
    TM_TRY(check_documents(kind, options, err));
    *n = fields_of(kind, options, out);
    return TM_OK;
}

tm_status tm_source_vocabulary(const tm_source_options *options, int64_t *size, tm_error *err)
{
    const tm_source_kind *kind = NULL;
    *size = 0;
    TM_TRY(find_kind(options->name ? options->name : "", &kind, err));
    return kind->vocabulary ? kind->vocabulary(options, size, err) : TM_OK;
}

bool tm_source_has_outline(const char *name)
{
    const tm_source_kind *kind = kind_of(name);
    return kind && kind->outline;
}

tm_status tm_source_outline(const tm_source_options *options, tm_text *out, tm_error *err)
{
    const tm_source_kind *kind = NULL;
    TM_TRY(find_kind(options->name ? options->name : "", &kind, err));
    TM_TRY(check_options(options, err));
    return kind->outline ? kind->outline(options, out, err) : TM_OK;
}

tm_status tm_source_open(const tm_source_options *options, tm_source **out, tm_error *err)
{
    const tm_source_kind *kind = NULL;
    *out = NULL;
    TM_TRY(find_kind(options->name ? options->name : "", &kind, err));
    TM_TRY(check_options(options, err));
    TM_TRY(check_documents(kind, options, err));
    tm_source *source = tm_alloc(sizeof *source);
    source->kind = kind;
    source->options = *options;
    source->options.name = kind->traits.name;
    source->n_fields = fields_of(kind, options, source->fields);
    source->facts = (tm_source_facts){ .train_samples = INT64_MAX,
                                       .validation_samples = INT64_MAX,
                                       .floor = (double)NAN,
                                       .validation_floor = (double)NAN,
                                       .unigram_entropy = (double)NAN,
                                       .ngram3_entropy = (double)NAN,
                                       .bytes_per_token = (double)NAN,
                                       .end_token = -1 };
    tm_status st = kind->open(source, err);
    source->held_out_given = source->options.validation_path != NULL;
    source->options.path = source->options.validation_path = NULL;
    if (isnan(source->facts.validation_floor)) source->facts.validation_floor = source->facts.floor;
    if (st != TM_OK) {
        free(source);
        return st;
    }
    const uint64_t content[2] = { tm_hash(kind->traits.name, strlen(kind->traits.name)), source->facts.content };
    source->facts.content = tm_hash(content, sizeof content) | 1;
    *out = source;
    return TM_OK;
}

void tm_source_close(tm_source *source)
{
    if (!source) return;
    if (source->kind->close) source->kind->close(source);
    free(source);
}

const tm_source_facts *tm_source_describe(const tm_source *source)
{
    return &source->facts;
}

int64_t tm_source_seq(const tm_source *source)
{
    return source->options.seq;
}

void tm_source_sample(const tm_source *source, tm_split split, int64_t index, int32_t *tokens)
{
    TM_ASSERT(index >= 0 && source->kind->sample);
    TM_ASSERT(split == TM_SPLIT_TRAIN || index < source->facts.validation_samples);
    source->kind->sample(source, split, index, tokens);
}

tm_documents tm_documents_of(void *const *fields, int64_t seq)
{
    return (tm_documents){ .targets = fields[1], .positions = fields[2], .first_key = fields[3], .seq = seq };
}

void tm_documents_add(tm_documents *d, int64_t n)
{
    int64_t first = d->at;
    if (n < 1) return;
    d->at += n;
    if (first == d->seq) d->cut = true;
    for (int64_t t = first; t < d->at && t < d->seq; t++) {
        d->positions[t] = (int32_t)(t - first);
        d->first_key[t] = (int32_t)first;
    }
}

int64_t tm_documents_end(const tm_documents *d)
{
    int64_t counts = d->seq;
    for (int64_t t = 1; t <= d->seq; t++)
        if (t < d->seq ? d->first_key[t] == t : d->cut) {
            d->targets[t - 1] = TM_IGNORED_TARGET;
            counts--;
        }
    return counts;
}

/* Documents end with a token of their own. */
static int64_t separate(const tm_source *source, const int32_t *tokens, void *const *fields)
{
    int64_t      seq = source->options.seq, first = 0;
    tm_documents d = tm_documents_of(fields, seq);
    for (int64_t t = 0; t <= seq; t++) {
        if (t < seq && tokens[t] != source->facts.end_token) continue;
        tm_documents_add(&d, t + 1 - first);
        first = t + 1;
    }
    return tm_documents_end(&d);
}

tm_status tm_source_row(const tm_source *source, tm_split split, int64_t index, int32_t *scratch, void *const *fields,
                        int64_t *weight, tm_error *err)
{
    size_t bytes = (size_t)source->options.seq * sizeof *scratch;
    if (source->kind->row) {
        TM_ASSERT(index >= 0 && (split == TM_SPLIT_TRAIN || index < source->facts.validation_samples));
        return source->kind->row(source, split, index, scratch, fields, weight, err);
    }
    if (source->kind->check) TM_TRY(source->kind->check(source, split, index, err));
    tm_source_sample(source, split, index, scratch);
    memcpy(fields[0], scratch, bytes);
    memcpy(fields[1], scratch + 1, bytes);
    *weight = source->options.separate ? separate(source, scratch, fields) : source->options.seq;
    return TM_OK;
}

void tm_source_keep_reference(const tm_source *source, tm_split split, int64_t index, const float *losses)
{
    TM_ASSERT(source->kind->keep && index >= 0);
    source->kind->keep(source, split, index, losses);
}

double tm_unigram_entropy(const int64_t *counts, int64_t n)
{
    double total = 0, entropy = 0;
    for (int64_t v = 0; v < n; v++) total += (double)counts[v];
    for (int64_t v = 0; v < n; v++) {
        double p = (double)counts[v] / total;
        if (counts[v] > 0) entropy -= p * log(p);
    }
    return total > 0 ? entropy : (double)NAN;
}

double tm_source_nats(const tm_source *source, const int32_t *tokens)
{
    return source->kind->nats ? source->kind->nats(source, tokens) : (double)NAN;
}

const char *tm_source_caption(const tm_source *source, tm_split split, int64_t index)
{
    return source->kind->caption ? source->kind->caption(source, split, index) : NULL;
}

char *tm_source_decode(const tm_source *source, const int32_t *tokens, int64_t n, tm_text *out)
{
    if (!source->kind->decode) return NULL;
    source->kind->decode(source, tokens, n, out);
    return out->data;
}
