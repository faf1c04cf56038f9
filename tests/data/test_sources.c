/* SPDX-License-Identifier: Apache-2.0 */
/* All sources of data: their rows by rules; ranks that share batches; and the certificate of the data, which holds for
 * what each gives and finds what is fed, ordered, kept apart or stored in another way. */
#include "data/opened.h"
#include "base/arena.h"
#include "data/packed.h"
#include "data/safetensors.h"
#include "data/seen.h"
#include "data/source_kind.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/source_files.h"

#include <zstd.h>

enum { T = TEST_SOURCE_T, BATCH = 12, FED = 4, STEPS = 60, HELD = 3 };

#define FLOW .flow = TEST_SOURCE_FLOW

/* Without a seq T, without a vocabulary that of the data; the same seed and number of samples for all. */
static tm_source_options sets[] = {
    { .name = "Synthetic", .vocab = 64 },
    { .name = "synthetic", .vocab = 8, .seq = 5 },
    { .name = "mock", .vocab = 100 },
    { .name = "mock", .vocab = 2 },
    { .name = "text", .path = "text.txt", .validation_fraction = 0.2 },
    { .name = "text", .path = "docs", .seq = 5, .vocab = 300, .validation_fraction = 0.4, .separate = true },
    { .name = "text", .path = "docs", .seq = 5 },
    { .name = "reports", .vocab = 64, .seq = 4 * T },
    { .name = "reports", .vocab = 64, .seq = 4 * T, .plain_answers = true },
    { .name = "govreport", .path = "gov", .vocab = 50, .pad_token = 9 },
    { .name = "govreport", .path = "train.npy", .validation_path = "train.npy", .vocab = 60, .mask = TM_MASK_TARGET },
    { .name = "megatron", .path = "set", .vocab = 50 },
    { .name = "megatron", .path = "set.idx", .validation_path = "sets", .vocab = 50, .seq = 50, .separate = true },
    { .name = "sft", .path = "rows.jsonl", .validation_fraction = 0.2 },
    { .name = "sft", .path = "rows.jsonl", .validation_path = "rows.jsonl", .sft.packed = true },
    { .name = "sft", .path = "rows.jsonl", .seq = 6 },
    { .name = "sft", .path = "rows.jsonl", .seq = 6, .sft = { .overlong = TM_OVERLONG_SPLIT, .train_on_input = true } },
    { .name = "sft", .path = "rows.jsonl", .seq = 5, .sft.overlong = TM_OVERLONG_SPLIT },
    { .name = "sft", .path = "rows.jsonl", .seq = 8, .sft.overlong = TM_OVERLONG_DROP },
    { .name = "sft", .path = "talks.jsonl", .seq = 3 * T, .sft = { .packed = true, .chat_template = "talks.jinja" } },
    { .name = "sft", .path = "letters.jsonl", .validation_path = "letters.jsonl", .sft.tokenizer = "letters" },
    { .name = "preference", .path = "pairs.jsonl", .seq = 2 * T, .sft.packed = true, .validation_fraction = 0.2 },
    { .name = "preference", .path = "pairs.jsonl", .seq = 14 },
    { .name = "gaussians", .seq = 18, FLOW },
    { .name = "latents", .path = "images", .seq = 18, FLOW },
    { .name = "latents", .path = "images", .validation_path = "moments", .seq = 18, FLOW },
};
enum { SETS = sizeof sets / sizeof sets[0] };

static int fields_of(const tm_source_options *o, tm_field fields[TM_MAX_FIELDS])
{
    int n = 0;
    assert_ok_of(o->name, tm_source_fields(o, fields, &n, err));
    return n;
}

/* Of files of moments: the second image. */
#define MEAN 0.5
#define LOGVAR 1.2

static double moment_mean(int i)
{
    return (i * 37 % 97) / 50.0 - 1;
}

typedef struct {
    void   *at[TM_MAX_FIELDS];
    int64_t weight;
} row;

static row read_row(const tm_source *source, const tm_field *fields, int n, tm_split split, int64_t index)
{
    int32_t scratch[513]; /* of the longest rows and a token more */
    row     r = { .weight = -1 };
    for (int f = 0; f < n; f++) r.at[f] = tm_alloc(tm_tensor_bytes(fields[f].shape, fields[f].dtype));
    assert_ok(tm_source_row(source, split, index, scratch, r.at, &r.weight, err));
    return r;
}

static void free_row(row *r)
{
    for (int f = 0; f < TM_MAX_FIELDS; f++) free(r->at[f]);
}

/* Targets are the next tokens of the same document; as many count as are told, in pairs two answers each. */
static void check_language(const tm_source *source, const tm_source_options *o, int n_fields, const row *r)
{
    const int32_t *tokens = r->at[0], *targets = r->at[1];
    const int32_t *positions = n_fields > 2 ? r->at[2] : NULL, *first = n_fields > 3 ? r->at[3] : NULL;
    const int64_t  vocabulary = o->vocab > 0 ? o->vocab : tm_source_describe(source)->vocab_needed;
    int64_t        counted = 0, answers = 0;
    for (int64_t t = 0; t < o->seq; t++) {
        const bool counts = targets[t] >= 0, last = t + 1 == o->seq;
        const bool ends = last || (positions && positions[t + 1] == 0);
        assert_in_range(tokens[t], 0, vocabulary - 1);
        assert_true(counts ? targets[t] < vocabulary : targets[t] == -100);
        if (counts && !ends && targets[t + 1] >= 0) assert_int_equal(targets[t], tokens[t + 1]);
        if (positions)
            assert_true(t == 0 || positions[t] == 0 ? positions[t] == 0 : positions[t] == positions[t - 1] + 1);
        if (first) assert_int_equal(first[t], t - positions[t]);
        counted += counts;
        answers += counts && (last || targets[t + 1] < 0);
    }
    assert_int_equal(r->weight, n_fields > 4 ? answers / 2 : counted);
}

/* Losses lie between the floor and that of a model that knows nothing but how frequent tokens are. */
static void check_facts(const tm_source *source, const tm_source_options *o)
{
    const tm_source_facts  *f = tm_source_describe(source);
    const tm_source_traits *traits = tm_source_traits_of(o->name);
    if (traits->images) return;
    assert_true(f->vocab_needed > 0 && (o->vocab == 0 || f->vocab_needed <= o->vocab));
    if (traits->needs_path) return;
    assert_true(f->floor > 0 && f->floor <= f->unigram_entropy + 1e-9);
    assert_true(f->unigram_entropy <= log((double)f->vocab_needed) + 1e-9);
    assert_true(tm_source_compressed(source) > 0.99 * f->validation_floor);
}

TEST(rows_keep_the_rules_of_their_source)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        const tm_source_options *o = &sets[i];
        tm_field                 fields[TM_MAX_FIELDS];
        const int                n = fields_of(o, fields);
        tm_source               *source = open_source(o), *again = open_source(o);
        const tm_source_facts   *f = tm_source_describe(source);
        assert_true(f->content == tm_source_describe(again)->content);
        check_facts(source, o);
        for (int64_t k = 0; k < 24; k++) {
            const tm_split split = k % 2 && f->validation_samples > 0 ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN;
            const int64_t  index = split == TM_SPLIT_TRAIN ? 3 * k : k % f->validation_samples;
            row r = read_row(source, fields, n, split, index), same = read_row(again, fields, n, split, index);
            for (int m = 0; m < n; m++)
                assert_memory_equal(r.at[m], same.at[m], tm_tensor_bytes(fields[m].shape, fields[m].dtype));
            if (!tm_source_traits_of(o->name)->images) check_language(source, o, n, &r);
            free_row(&r), free_row(&same);
        }
        tm_source_close(source), tm_source_close(again);
    }
}

/* What zstd makes of held-out targets that count, in as many bytes each as the largest takes; 256 takes one. */
static void is_compressed(const tm_source_options *o)
{
    tm_field               fields[TM_MAX_FIELDS];
    const int              n = fields_of(o, fields);
    tm_source             *source = open_source(o);
    const tm_source_facts *f = tm_source_describe(source);
    const double           found = tm_source_compressed(source);
    const int64_t  most = (1 << 18) / o->seq + 1, rows = f->validation_samples < most ? f->validation_samples : most;
    unsigned char *plain[3] = { tm_alloc(((size_t)(rows * o->seq) + 1) * 7) };
    size_t         count = 0;
    int32_t        largest = 0;
    plain[1] = plain[0] + rows * o->seq, plain[2] = plain[1] + 2 * rows * o->seq;
    for (int64_t i = 0; i < rows && !tm_source_traits_of(o->name)->images; i++) {
        row            r = read_row(source, fields, n, TM_SPLIT_VALIDATION, i);
        const int32_t *targets = r.at[1];
        for (int64_t t = 0; t < o->seq; t++) {
            if (targets[t] < 0) continue;
            for (int k = 0; k < 3; k++)
                for (int b = 0; b < 1 << k; b++) plain[k][(count << k) + b] = (unsigned char)(targets[t] >> 8 * b);
            if (targets[t] > largest) largest = targets[t];
            count++;
        }
        free_row(&r);
    }
    const int    k = largest < 257 ? 0 : largest < 65536 ? 1 : 2;
    const size_t size = count << k, room = ZSTD_compressBound(size);
    void        *packed = tm_alloc(room);
    const double bits = 8 * (double)ZSTD_compress(packed, room, plain[k], size, 12);
    if (count == 0 ? !isnan(found) : !(fabs(found - bits * log(2) / (double)count) < 1e-9))
        fail_msg("%s: %.9g, wanted %.9g", o->name, found, bits * log(2) / (double)count);
    free(packed), free(plain[0]);
    tm_source_close(source);
}

TEST(held_out_data_is_compressed)
{
    for (int i = 0; i < SETS; i++) is_compressed(&sets[i]);
    for (int64_t vocab = 256; vocab <= 65537; vocab = vocab < 258 ? vocab + 1 : vocab < 65535 ? 65535 : vocab + 1)
        is_compressed(&(tm_source_options){ .name = "mock", .vocab = vocab, .seq = 512, .seed = 3 });
}

/* Latents are drawn from their moments: the first image of the file has no spread, the second one is normal. */
TEST(latents_have_their_moments)
{
    enum { SEEDS = 40, ALL = 2 * 8 * 8 };
    double sum = 0, squares = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        const tm_source_options o = {
            .name = "latents", .path = "images", .validation_path = "moments", .seq = 18, .seed = (uint64_t)seed, FLOW
        };
        tm_field   fields[TM_MAX_FIELDS];
        const int  n = fields_of(&o, fields);
        tm_source *source = open_source(&o);
        for (int image = 0; image < 2; image++) {
            row          r = read_row(source, fields, n, TM_SPLIT_VALIDATION, image);
            const float *noisy = r.at[0], *velocity = r.at[1], time = *(float *)r.at[2];
            for (int i = 0; i < ALL; i++) {
                const int channel = i / 64, y = i / 8 % 8, x = i % 8;
                const int at = (y / 2 * 4 + x / 2) * 8 + channel * 4 + y % 2 * 2 + x % 2;
                double    latent = ((double)noisy[at] - (double)time * (double)velocity[at]) / 0.3611 + 0.1159;
                if (image == 0) assert_true(fabs(latent - moment_mean(i)) < 1e-5);
                if (image == 1) sum += latent - MEAN, squares += pow(latent - MEAN, 2);
            }
            free_row(&r);
        }
        tm_source_close(source);
    }
    const double draws = (double)SEEDS * ALL, variance = exp(LOGVAR); /* five standard errors */
    assert_true(fabs(sum / draws) < 5 * sqrt(variance / draws));
    assert_true(fabs(squares / draws / variance - 1) < 5 * sqrt(2 / draws));
}
/* ---- ranks that share batches ---- */

/* `batches` of all ranks' loaders beside those of one that reads all. */
static void compare(const tm_source_options *o, tm_source *source, tm_split split, int64_t ranks, int64_t first)
{
    tm_field   fields[TM_MAX_FIELDS];
    const int  n = fields_of(o, fields);
    tm_loader *all = tm_loader_open(source, split, BATCH, first, 1), *own[BATCH];
    for (int64_t r = 0; r < ranks; r++)
        own[r] = tm_loader_open_part(source, split, BATCH, (tm_loader_part){ r, ranks }, first, (int)(r % 3));
    for (int i = 0; i < 4; i++) {
        tm_batch whole, part;
        int64_t  targets = 0, rows = BATCH / ranks;
        tm_loader_next(all, &whole);
        assert_null(whole.error);
        for (int64_t r = 0; r < ranks; r++) {
            tm_loader_next(own[r], &part);
            targets += part.target_tokens;
            for (int f = 0; f < n; f++) {
                const size_t bytes = tm_tensor_bytes(fields[f].shape, fields[f].dtype);
                assert_memory_equal(part.field[f], (char *)whole.field[f] + (size_t)(r * rows) * bytes,
                                    (size_t)rows * bytes);
            }
            assert_int_equal(tm_loader_consumed(own[r]), tm_loader_consumed(all));
        }
        assert_int_equal(targets, whole.target_tokens);
    }
    for (int64_t r = 0; r < ranks; r++) tm_loader_close(own[r]);
    tm_loader_close(all);
}

/* Also from another place on, with another number of ranks. */
TEST(ranks_together_read_what_one_reads)
{
    for (int i = 0; i < SETS; i++) {
        tm_source *source = open_source(&sets[i]);
        for (int64_t ranks = 1; ranks <= BATCH; ranks++)
            if (BATCH % ranks == 0) compare(&sets[i], source, TM_SPLIT_TRAIN, ranks, ranks * BATCH);
        if (tm_source_describe(source)->validation_samples > 0) compare(&sets[i], source, TM_SPLIT_VALIDATION, 4, 0);
        tm_source_close(source);
    }
}

/* ---- the certificate ---- */

/* What a loader gives of a source, in hashes. */
static int64_t feed(const tm_source *source, tm_split split, tm_loader_part part, int64_t first, int64_t n,
                    uint64_t *hashes)
{
    tm_loader *loader = tm_loader_open_part(source, split, FED * part.ranks, part, first, 1);
    for (int64_t i = 0; i < n; i++) {
        tm_batch batch;
        tm_loader_next(loader, &batch);
        assert_null(batch.error);
        hashes[i] = tm_seen_hash(source, batch.field, FED);
    }
    tm_loader_close(loader);
    return n;
}

typedef struct {
    tm_loader_part part;
    int64_t        first;    /* sample of the first step, of all ranks */
    tm_loader_part fed_part; /* that the loader really reads, and from where */
    int64_t        fed_first;
    tm_split       fed_split; /* of an evaluation */
    int64_t        repeats;   /* every step but the first `repeats` is fed the batch of the one before; 0: none */
    double         seconds;
} trial;

static const trial honest = { .part = { 0, 1 }, .fed_part = { 0, 1 }, .fed_split = TM_SPLIT_VALIDATION, .seconds = 10 };

static tm_data_certificate look(const tm_source *source, const trial *t)
{
    static uint64_t     hashes[STEPS], held_hashes[HELD];
    const int64_t       held = tm_source_describe(source)->validation_samples > 0 ? HELD : 0, ranks = t->part.ranks;
    tm_data_certificate out;
    feed(source, TM_SPLIT_TRAIN, t->fed_part, t->fed_first, STEPS, hashes);
    feed(source, t->fed_split, t->fed_part, 0, held, held_hashes);
    for (int64_t i = STEPS - 1; i >= t->repeats && t->repeats > 0; i--) hashes[i] = hashes[i - 1];
    const tm_seen trained = { .source = source,
                              .split = TM_SPLIT_TRAIN,
                              .first = t->first + t->part.rank * FED,
                              .stride = FED * ranks,
                              .rows = FED,
                              .hashes = hashes,
                              .n = STEPS };
    const tm_seen evaluated = { .source = source,
                                .split = TM_SPLIT_VALIDATION,
                                .first = t->part.rank * FED,
                                .stride = FED * ranks,
                                .rows = FED,
                                .hashes = held_hashes,
                                .n = held };
    tm_certify_data(&trained, &evaluated, t->seconds, 1, &out);
    assert_true(out.seconds >= 0);
    return out;
}

/* Where the held-out files are those of training, by other names perhaps, nobody is blamed, but it is told. */
static void expect_holds(const tm_data_certificate *c, const tm_source_options *o)
{
    const bool same = o->validation_path && strncmp(o->validation_path, o->path, 3) == 0;
    if (!c->done || c->reason[0] || !c->fed || !c->once || c->apart == same || !c->stored)
        fail_msg("%s, %s: %s", o->name, o->path, c->reason);
}

/* Of a source with so few samples one batch may be as the next. */
static bool has_few(const tm_source *source)
{
    return tm_source_describe(source)->train_samples < 3 * FED;
}
/* On one rank; and on the second of three from the middle of an epoch, where the first batches are read in any case. */
TEST(it_holds_for_every_source)
{
    const trial resumed = {
        .part = { 1, 3 }, .first = 31, .fed_part = { 1, 3 }, .fed_first = 31, .fed_split = TM_SPLIT_VALIDATION
    };
    for (int i = 0; i < SETS; i++) {
        tm_source          *source = open_source(&sets[i]);
        tm_data_certificate c = look(source, &honest);
        const bool          plain = strstr("text megatron govreport", sets[i].name) != NULL;
        expect_holds(&c, &sets[i]);
        assert_int_equal(c.batches, STEPS);
        assert_int_equal(c.held_out, tm_source_describe(source)->validation_samples > 0 ? HELD : 0);
        assert_true(plain ? c.compared > STEPS * FED * sets[i].seq / 2 : c.compared == 0);
        c = look(source, &resumed);
        expect_holds(&c, &sets[i]);
        assert_true(c.batches >= 2 && c.batches < STEPS);
        tm_source_close(source);
    }
}

/* --- what a run does wrong --- */

TEST(other_samples_than_those_of_the_step_are_found)
{
    const trial defects[] = {
        { .part = { 0, 2 }, .fed_part = { 1, 2 } },                 /* the part of another rank */
        { .part = { 0, 1 }, .fed_part = { 0, 1 }, .fed_first = 4 }, /* one batch ahead */
        { .part = { 0, 1 }, .fed_part = { 0, 1 }, .first = 31 },    /* from the beginning, after resuming */
        { .part = { 0, 1 }, .fed_part = { 0, 1 }, .repeats = 1 },   /* a batch twice */
        { .part = { 0, 1 }, .fed_part = { 0, 1 }, .repeats = 40 },  /* from some step on, the same for ever */
    };
    for (int i = 0; i < SETS; i++) {
        tm_source *source = open_source(&sets[i]);
        for (size_t d = 0; !has_few(source) && d < sizeof defects / sizeof defects[0]; d++) {
            trial t = defects[d];
            t.fed_split = TM_SPLIT_VALIDATION;
            t.seconds = 10;
            tm_data_certificate c = look(source, &t);
            assert_true(c.done && !c.fed && c.once && strstr(c.reason, "was fed as the "));
        }
        tm_source_close(source);
    }
}
/* --- defects of a source ------------------------------------------------------------------------------------------ */

/* A source whose kind is changed, which it does not know. */
static const tm_source_kind *real;

static int64_t half(const tm_source *source, tm_split split, int64_t index)
{
    return real->unit(source, split, split == TM_SPLIT_TRAIN ? index / 2 * 2 : index);
}
static void sample_of_half(const tm_source *source, tm_split split, int64_t index, int32_t *tokens)
{
    real->sample(source, split, split == TM_SPLIT_TRAIN ? index / 2 * 2 : index, tokens);
}
static void places_of_half(const tm_source *source, tm_split split, int64_t index, tm_stored_places *out)
{
    real->places(source, split, split == TM_SPLIT_TRAIN && index > 0 ? index / 2 * 2 : index, out);
}
static void sample_of_training(const tm_source *source, tm_split split, int64_t index, int32_t *tokens)
{
    (void)split;
    real->sample(source, TM_SPLIT_TRAIN, index, tokens);
}
static void places_of_training(const tm_source *source, tm_split split, int64_t index, tm_stored_places *out)
{
    real->places(source, index == TM_WHOLE_SPLIT ? split : TM_SPLIT_TRAIN, index, out);
}
static void places_without_bounds(const tm_source *source, tm_split split, int64_t index, tm_stored_places *out)
{
    (void)split;
    real->places(source, TM_SPLIT_TRAIN, index, out);
}
static void sample_of_next(const tm_source *source, tm_split split, int64_t index, int32_t *tokens)
{
    real->sample(source, split, index, tokens);
    tokens[T / 2]++;
}
static void sample_without_language(const tm_source *source, tm_split split, int64_t index, int32_t *tokens)
{
    real->sample(source, split, index, tokens);
    for (int t = 0; t <= T; t++) tokens[t] = tokens[(t * 7) % (T + 1)];
}

static tm_data_certificate with_kind(const tm_source_options *options, tm_source_kind kind)
{
    tm_source *source = open_source(options);
    real = source->kind;
    source->kind = &kind;
    tm_data_certificate c = look(source, &honest);
    source->kind = real;
    tm_source_close(source);
    return c;
}

TEST(samples_that_come_twice_are_found)
{
    const tm_source_options options = sets[4];
    tm_source_kind          kind = tm_source_text;
    kind.unit = half;
    kind.sample = sample_of_half;
    kind.places = places_of_half;
    tm_data_certificate c = with_kind(&options, kind);
    assert_true(c.done && c.fed && !c.once && c.apart && c.stored && strstr(c.reason, "had before"));
}

TEST(held_out_samples_from_training_are_found)
{
    const tm_source_options text = sets[4];
    const tm_source_options made = sets[0];
    tm_source_kind          kind = tm_source_text;
    kind.sample = sample_of_training;
    kind.places = places_of_training;
    tm_data_certificate c = with_kind(&text, kind);
    assert_true(c.done && c.fed && c.once && !c.apart && strstr(c.reason, "outside of that part"));
    kind = tm_source_text;
    kind.sample = sample_of_training;
    kind.places = places_without_bounds;
    c = with_kind(&text, kind);
    assert_true(c.done && !c.apart && strstr(c.reason, "also trained on"));
    kind = tm_source_text;
    kind.sample = sample_of_training; /* and says that it is not */
    c = with_kind(&text, kind);
    assert_true(c.done && !c.stored && strstr(c.reason, "are not those of its file"));
    kind = tm_source_synthetic;
    kind.sample = sample_of_training;
    c = with_kind(&made, kind);
    assert_true(c.done && !c.apart && strstr(c.reason, "is one of training"));
}

TEST(tokens_that_are_not_those_of_the_data_are_found)
{
    const tm_source_options text = sets[4];
    const tm_source_options made = sets[0];
    tm_source_kind          kind = tm_source_text;
    kind.sample = sample_of_next;
    tm_data_certificate c = with_kind(&text, kind);
    assert_true(c.done && c.fed && !c.stored && strstr(c.reason, "are not those of its file"));
    kind = tm_source_synthetic;
    kind.sample = sample_without_language;
    c = with_kind(&made, kind);
    assert_true(c.done && c.fed && !c.stored && strstr(c.reason, "entropy"));
}
/* A file that changed is no reason to blame the run. */
TEST(files_that_changed_are_not_compared)
{
    tm_source *source = open_source(&sets[4]);
    test_file_write(".", "text.txt", "another text");
    tm_data_certificate c = look(source, &honest);
    expect_holds(&c, &sets[4]);
    assert_int_equal(c.compared, 0);
    tm_source_close(source);
}
/* ---- the files ---- */

static void write_moments(const char *path)
{
    const tm_tensor_heading headings[] = {
        { .name = "clip_encodings", .dtype = TM_F32, .rank = 2, .n = { 2, 5 } },
        { .name = "logvar", .dtype = TM_F32, .rank = 4, .n = { 2, 2, 8, 8 } },
        { .name = "mean", .dtype = TM_F32, .rank = 4, .n = { 2, 2, 8, 8 } },
        { .name = "t5_encodings", .dtype = TM_F32, .rank = 3, .n = { 2, 2, 6 } },
    };
    tm_safetensors_writer *writer;
    assert_ok(tm_safetensors_create(path, headings, 4, NULL, &writer, err));
    for (int i = 0; i < 10; i++) tm_safetensors_write(writer, &(float){ (float)i }, 4);
    for (int i = 0; i < 256; i++) tm_safetensors_write(writer, &(float){ i < 128 ? -60 : (float)LOGVAR }, 4);
    for (int i = 0; i < 256; i++) tm_safetensors_write(writer, &(float){ (float)(i < 128 ? moment_mean(i) : MEAN) }, 4);
    for (int i = 0; i < 24; i++) tm_safetensors_write(writer, &(float){ (float)i }, 4);
    assert_ok(tm_safetensors_finish(writer, err));
}
/* Rows of messages; a folder with a tokenizer whose first token is a letter. */
static void write_talks(void)
{
    static const char letters[] =
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"</s>\", \"special\": true}], \"normalizer\": null, "
        "\"pre_tokenizer\": null, \"decoder\": null, \"post_processor\": null, \"model\": {\"type\": \"BPE\", "
        "\"merges\": [[\"a\", \"b\"]], \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3}}}";
    test_file_write(".", "talks.jinja",
                    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
                    "{% if add_generation_prompt %}<assistant>{% endif %}");
    test_file_write(".", "talks.jsonl",
                    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
                    "\"a\"}, {\"role\": \"assistant\", \"content\": \"bc\"}]}\n"
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"assistant\", "
                    "\"content\": \"d\"}, {\"role\": \"user\", \"content\": \"e\"}]}\n");
    test_file_write(".", "letters.jsonl",
                    "{\"prompt\": \"cb\", \"completion\": \"aabcaa\"}\n{\"prompt\": \"a\", \"completion\": \"ba\"}\n");
    test_file_write("letters", "tokenizer.json", letters);
}
static int write_all(void **state)
{
    enum { ROWS = 17 };
    tm_error err = { 0 };
    (void)state;
    test_source_files_write();
    for (size_t i = 0; i < SETS; i++) {
        sets[i].seed = 3;
        sets[i].samples = STEPS * FED;
        if (!sets[i].seq) sets[i].seq = T;
    }
    test_folder_enter();
    for (size_t i = 0; i < 4; i++)
        if (mkdir((const char *[]){ "docs", "gov", "moments", "letters" }[i], 0700) != 0) return -1;
    for (int i = 0; i < 9; i++) {
        char name[16], text[64];
        snprintf(name, sizeof name, "%d", i);
        snprintf(text, sizeof text, "%.*s and %d", 3 * i + 1, "what a document says is this or that", i * i);
        test_file_write("docs", name, text);
    }
    for (int k = 0; k < 2; k++) {
        int32_t ids[ROWS * T];
        uint8_t masks[ROWS * T];
        for (int i = 0; i < ROWS * T; i++) ids[i] = (i * i + k) % 50, masks[i] = i % 3 != k;
        if (tm_packed_write(k ? "gov/validation.npy" : "gov/train.npy", ROWS, T, ids, masks, &err) != TM_OK) return -1;
    }
    write_moments("moments/m.safetensors");
    write_talks();
    return link("set.idx", "sets.idx") == 0 && link("set.bin", "sets.bin") == 0 ? 0 : -1;
}

TEST_FIXTURE(write_all, test_folder_teardown)
