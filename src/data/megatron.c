/* SPDX-License-Identifier: Apache-2.0 */
/* data/megatron.c - an indexed data set as a source: memory-mapped files (data/indexed.h), training samples in the
 * order of Megatron-LM's GPT data set (data/order.h), validation samples in the order of the file.
 *
 * Sample w of validation is the tokens w T .. w T + T of the set of data.validation_path. Attention is not cut at the
 * ends of documents and every target counts, unless documents are kept apart (data.separate_documents).
 */
#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "data/indexed.h"
#include "data/order.h"
#include "data/source_kind.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Longest part of the validation set whose tokens are counted for the unigram entropy: opening stays under a second. */
static const int64_t count_limit_tokens = (int64_t)1 << 26;

typedef struct {
    tm_indexed splits[2]; /* by tm_split; the second may be empty */
    tm_order   order;
} megatron;

static tm_status check_options(const tm_source_options *o, tm_error *err)
{
    if (!o->path || !*o->path)
        return tm_fail(err, TM_INVALID,
                       "data.source megatron needs the name of PREFIX.bin and PREFIX.idx; set "
                       "data.path to PREFIX");
    if (o->seed > UINT32_MAX)
        return tm_fail(err, TM_INVALID, "debug.seed is %" PRIu64 ", the order of data.source megatron takes at most %u",
                       o->seed, UINT32_MAX);
    return TM_OK;
}

static void describe_plan(const char *path, const tm_order_plan *plan, int64_t wanted, tm_text *out)
{
    char bytes[4][32], counts[3][40];
    tm_text_printf(
        out,
        "'%s': %s samples take %s epochs of %s documents; their order takes %s of memory: documents %s, "
        "samples %s, shuffle %s",
        path, tm_format_grouped(counts[0], wanted), tm_format_grouped(counts[1], plan->epochs),
        tm_format_grouped(counts[2], plan->documents), tm_format_bytes(bytes[0], (double)tm_order_plan_bytes(plan)),
        tm_format_bytes(bytes[1], (double)plan->document_bytes), tm_format_bytes(bytes[2], (double)plan->sample_bytes),
        tm_format_bytes(bytes[3], (double)plan->shuffle_bytes));
}

static int64_t wanted_samples(const tm_source_options *o)
{
    return o->samples > 0 ? o->samples : 1;
}

static tm_status megatron_outline(const tm_source_options *o, tm_text *out, tm_error *err)
{
    int64_t       sequences, tokens;
    tm_order_plan plan;
    TM_TRY(check_options(o, err));
    TM_TRY(tm_indexed_peek(o->path, &sequences, &tokens, err));
    TM_TRY(tm_order_plan_make(sequences, tokens, o->seq, wanted_samples(o), &plan, err));
    describe_plan(o->path, &plan, wanted_samples(o), out);
    tm_text_add(out, "\n");
    return TM_OK;
}

static tm_status build_order(const tm_source_options *o, megatron *m, tm_error *err)
{
    tm_text           text = { 0 };
    tm_order_plan     plan;
    const tm_indexed *set = &m->splits[TM_SPLIT_TRAIN];
    TM_TRY(tm_order_plan_make(set->sequences, set->tokens, o->seq, wanted_samples(o), &plan, err));
    describe_plan(o->path, &plan, wanted_samples(o), &text);
    tm_note("%s", text.data);
    tm_text_fini(&text);
    return tm_order_build(&plan, set->lengths, (uint32_t)o->seed, &m->order, err);
}

static tm_status open_all(const tm_source_options *o, megatron *m, tm_error *err)
{
    TM_TRY(tm_indexed_open(o->path, &m->splits[TM_SPLIT_TRAIN], err));
    TM_TRY(build_order(o, m, err));
    if (!o->validation_path) return TM_OK;
    tm_indexed *held = &m->splits[TM_SPLIT_VALIDATION];
    TM_TRY(tm_indexed_open(o->validation_path, held, err));
    if (held->tokens > o->seq) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%s' has %lld tokens, a sample takes %lld (training.seq_len + 1)",
                   o->validation_path, (long long)held->tokens, (long long)o->seq + 1);
}

static void megatron_free(megatron *m)
{
    for (int i = 0; i < 2; i++) tm_indexed_close(&m->splits[i]);
    tm_order_free(&m->order);
    free(m);
}

/* Over the tokens that validation samples cover, as far as the limit. */
static double validation_entropy(const tm_source_options *o, const tm_indexed *held)
{
    int64_t  n = held->tokens < count_limit_tokens ? held->tokens : count_limit_tokens;
    int64_t *seen = tm_alloc((size_t)o->vocab * sizeof *seen);
    memset(seen, 0, (size_t)o->vocab * sizeof *seen);
    for (int64_t i = 0; i < n; i++) {
        int32_t id;
        if (tm_indexed_token(held, i, &id) && id >= 0 && id < o->vocab) seen[id]++;
    }
    double entropy = tm_unigram_entropy(seen, o->vocab);
    free(seen);
    return entropy;
}

static tm_status megatron_open(tm_source *source, tm_error *err)
{
    const tm_source_options *o = &source->options;
    TM_TRY(check_options(o, err));
    megatron *m = tm_alloc(sizeof *m);
    *m = (megatron){ 0 };
    tm_status st = open_all(o, m, err);
    if (st != TM_OK) {
        megatron_free(m);
        return st;
    }
    const tm_indexed *held = &m->splits[TM_SPLIT_VALIDATION];
    source->facts.train_samples = m->order.plan.samples;
    source->facts.validation_samples = held->tokens > 0 ? (held->tokens - 1) / o->seq : 0;
    source->facts.vocab_needed = 1; /* every row is checked when it is read */
    if (held->tokens > 0) source->facts.unigram_entropy = validation_entropy(o, held);
    for (int i = 0; i < 2; i++) {
        source->facts.content = tm_fingerprint(source->facts.content, m->splits[i].idx.bytes, m->splits[i].idx.size);
        source->facts.content = tm_fingerprint(source->facts.content, m->splits[i].bin.bytes, m->splits[i].bin.size);
    }
    source->state = m;
    return TM_OK;
}

static tm_status megatron_vocabulary(const tm_source_options *o, int64_t *size, tm_error *err)
{
    int64_t held = 0;
    if (o->path && *o->path) TM_TRY(tm_indexed_vocabulary_read(o->path, size, err));
    if (o->validation_path) TM_TRY(tm_indexed_vocabulary_read(o->validation_path, &held, err));
    if (held > *size) *size = held;
    return TM_OK;
}

static void megatron_close(tm_source *source)
{
    megatron_free(source->state);
}

/* Tokens first .. first + n - 1 of the file. */
static tm_status read_tokens(const tm_source *source, const tm_indexed *set, int64_t first, int64_t n, int32_t *out,
                             tm_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!tm_indexed_token(set, first + i, &out[i]) || out[i] < 0 || out[i] >= source->options.vocab)
            return tm_fail(err, TM_INVALID,
                           "'%s': token %lld is not in the vocabulary, 0 to %lld; the data set was made with "
                           "another tokenizer than model.vocab_size is for",
                           set->bin.path, (long long)(first + i), (long long)source->options.vocab - 1);
    return TM_OK;
}

/* T + 1 tokens from where the sample begins, through the documents in the order of the run; each is told `part`. */
static tm_status read_sample(const tm_source *source, int64_t index, int32_t *out, tm_documents *part, tm_error *err)
{
    const megatron   *m = source->state;
    const tm_indexed *set = &m->splits[TM_SPLIT_TRAIN];
    tm_order_sample   at = m->order.samples[m->order.shuffle[index % m->order.plan.samples]];
    int64_t           position = at.position, offset = at.offset, wanted = source->options.seq + 1;
    for (int64_t done = 0; done < wanted; position++, offset = 0) {
        int64_t document = m->order.documents[position], n = tm_indexed_length(set, document) - offset;
        if (n > wanted - done) n = wanted - done;
        TM_TRY(read_tokens(source, set, tm_indexed_first_token(set, document) + offset, n, out + done, err));
        if (part) tm_documents_add(part, n);
        done += n;
    }
    return TM_OK;
}

/* The documents of T + 1 tokens in the order of the file. */
static void divide(const tm_source *source, const tm_indexed *set, int64_t first, tm_documents *part)
{
    int64_t low = 0, high = set->sequences, end = first + source->options.seq + 1;
    while (high - low > 1) { /* the last document that begins at or before the first token */
        int64_t middle = low + (high - low) / 2;
        if (tm_indexed_first_token(set, middle) <= first)
            low = middle;
        else
            high = middle;
    }
    for (int64_t document = low; first < end; document++) {
        int64_t to = tm_indexed_first_token(set, document) + tm_indexed_length(set, document);
        if (to > end) to = end;
        if (to > first) tm_documents_add(part, to - first);
        first = to > first ? to : first;
    }
}

static tm_status megatron_row(const tm_source *source, tm_split split, int64_t index, int32_t *scratch,
                              void *const *fields, int64_t *weight, tm_error *err)
{
    const tm_indexed *set = &((const megatron *)source->state)->splits[split];
    int64_t           seq = source->options.seq;
    tm_documents      part = { 0 }, *separate = source->options.separate ? &part : NULL;
    if (separate) part = tm_documents_of(fields, seq);
    TM_TRY(tm_map_check(&set->bin, err));
    TM_TRY(tm_map_check(&set->idx, err));
    if (split == TM_SPLIT_TRAIN)
        TM_TRY(read_sample(source, index, scratch, separate, err));
    else
        TM_TRY(read_tokens(source, set, index * seq, seq + 1, scratch, err));
    if (separate && split != TM_SPLIT_TRAIN) divide(source, set, index * seq, separate);
    memcpy(fields[0], scratch, (size_t)seq * sizeof *scratch);
    memcpy(fields[1], scratch + 1, (size_t)seq * sizeof *scratch);
    *weight = separate ? tm_documents_end(&part) : seq;
    return TM_OK;
}

static int64_t megatron_unit(const tm_source *source, tm_split split, int64_t index)
{
    const tm_order *order = &((const megatron *)source->state)->order;
    return split == TM_SPLIT_TRAIN ? (int64_t)order->shuffle[index % order->plan.samples] : index;
}

/* Tokens of types that are no whole numbers are not read by themselves. */
static void add_place(const tm_indexed *set, int64_t first, int64_t n, tm_stored_places *out)
{
    enum { LAST_WHOLE = 5, UINT16 = 8 };
    tm_error changed;
    bool     plain = (set->code <= LAST_WHOLE || set->code == UINT16) && tm_map_check(&set->bin, &changed) == TM_OK;
    tm_stored_add(out, (tm_stored_place){ .file = tm_stored_file(set->bin.path),
                                          .path = plain ? set->bin.path : NULL,
                                          .at = first * set->token_bytes,
                                          .count = n,
                                          .width = set->token_bytes });
}

static void megatron_places(const tm_source *source, tm_split split, int64_t index, tm_stored_places *out)
{
    const megatron   *m = source->state;
    const tm_indexed *set = &m->splits[split];
    const int64_t     seq = source->options.seq;
    if (set->tokens == 0) return;
    if (index == TM_WHOLE_SPLIT) add_place(set, 0, set->tokens, out);
    if (index != TM_WHOLE_SPLIT && split == TM_SPLIT_VALIDATION) add_place(set, index * seq, seq + 1, out);
    if (index == TM_WHOLE_SPLIT || split == TM_SPLIT_VALIDATION) return;
    tm_order_sample at = m->order.samples[megatron_unit(source, split, index)];
    int64_t         position = at.position, offset = at.offset;
    for (int64_t left = seq + 1; left > 0; position++, offset = 0) {
        int64_t document = m->order.documents[position], n = tm_indexed_length(set, document) - offset;
        if (n > left) n = left;
        if (n > 0) add_place(set, tm_indexed_first_token(set, document) + offset, n, out);
        left -= n;
    }
}

const tm_source_kind tm_source_megatron = {
    .traits = { .name = "megatron",
                .gate = TM_GATE_HELD_OUT,
                .needs_path = true,
                .takes_validation_path = true,
                .documents = true },
    .open = megatron_open,
    .vocabulary = megatron_vocabulary,
    .close = megatron_close,
    .row = megatron_row,
    .unit = megatron_unit,
    .places = megatron_places,
    .outline = megatron_outline,
};
