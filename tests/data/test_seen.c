/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of the data: it holds for what every source gives, over epochs, parts and places to begin; and what
 * is fed, ordered, kept apart or stored in another way is found. */
#include "data/indexed.h"
#include "data/packed.h"
#include "data/safetensors.h"
#include "data/seen.h"
#include "data/source_kind.h"
#include "support/folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

enum { T = 24, BATCH = 4, STEPS = 60, HELD = 3 };

/* --- sources ------------------------------------------------------------------------------------------------------ */

static void write_text(const char *name, int documents)
{
    FILE *file = fopen(test_in_folder(name), "w");
    assert_non_null(file);
    for (int i = 0; i < documents; i++) fprintf(file, "line %d of %s, which is another one, %x\n", i, name, i * 7919);
    assert_int_equal(fclose(file), 0);
}

static void write_rows(const char *name, bool pairs)
{
    FILE *file = fopen(test_in_folder(name), "w");
    assert_non_null(file);
    for (int i = 0; i < 40; i++)
        if (pairs)
            fprintf(file, "{\"prompt\": \"%d?\", \"chosen\": \"%d.\", \"rejected\": \"no\"}\n", i, i + 1);
        else
            fprintf(file, "{\"prompt\": \"%d?\", \"completion\": \"%s%d.\"}\n", i, i % 3 ? "" : "it is ", i * i);
    assert_int_equal(fclose(file), 0);
}

static void write_indexed(const char *name, bool wide)
{
    tm_indexed_writer writer;
    tm_error          err;
    int32_t           tokens[300];
    assert_int_equal(tm_indexed_begin(test_in_folder(name), wide, &writer, &err), TM_OK);
    for (int d = 0; d < 20; d++) {
        for (int i = 0; i < 10 + 13 * d; i++) tokens[i] = (d * 31 + i * 7) % 250;
        tm_indexed_add(&writer, tokens, 10 + 13 * d);
        tm_indexed_end_document(&writer);
    }
    assert_int_equal(tm_indexed_finish(&writer, &err), TM_OK);
}

static void write_packed(const char *name, int from)
{
    enum { ROWS = 17 };
    int32_t  ids[ROWS * T];
    uint8_t  masks[ROWS * T];
    tm_error err;
    for (int i = 0; i < ROWS * T; i++) ids[i] = (from + i * 3) % 250, masks[i] = i % T > 5;
    assert_int_equal(tm_packed_write(test_in_folder(name), ROWS, T, ids, masks, &err), TM_OK);
}

static void write_images(const char *name, int64_t n)
{
    const tm_tensor_heading headings[] = { { .name = "latents", .dtype = TM_F32, .rank = 3, .n = { n, 16, 8 } },
                                           { .name = "pooled", .dtype = TM_F32, .rank = 2, .n = { n, 5 } },
                                           { .name = "text", .dtype = TM_F32, .rank = 3, .n = { n, 2, 6 } } };
    tm_safetensors_writer  *writer;
    tm_error                err;
    assert_int_equal(tm_safetensors_create(test_in_folder(name), headings, 3, NULL, &writer, &err), TM_OK);
    for (int64_t i = 0; i < n * (16 * 8 + 5 + 2 * 6); i++)
        tm_safetensors_write(writer, &(float){ (float)(i % 97) }, sizeof(float));
    assert_int_equal(tm_safetensors_finish(writer, &err), TM_OK);
}

/* A path below the folder of the test; it stays. */
static const char *at(const char *name)
{
    static char paths[40][256];
    static int  used;
    assert_true(used < 40);
    return strcpy(paths[used++], test_in_folder(name));
}

static tm_source_options language(const char *name, const char *path, const char *held)
{
    return (tm_source_options){ .name = name,
                                .path = path,
                                .validation_path = held,
                                .vocab = 260,
                                .seq = T,
                                .seed = 5,
                                .samples = STEPS * BATCH,
                                .validation_fraction = 0.2 };
}

static tm_source_options images(const char *name)
{
    tm_source_options o = language(name, at("train"), at("held"));
    o.seq = 18;
    o.flow = (tm_flow_options){ .rows = 4,
                                .tokens = 16,
                                .channels = 8,
                                .text_len = 2,
                                .text_dim = 6,
                                .vector_dim = 5,
                                .protocol = TM_FLOW_FLUXBENCHMARK,
                                .dropout = (double)NAN,
                                .spread = 0.5 };
    return o;
}

enum { SOURCES = 15 };
static int all_sources(tm_source_options out[SOURCES])
{
    int n = 0;
    out[n++] = language("synthetic", NULL, NULL);
    out[n++] = language("mock", NULL, NULL);
    out[n++] = language("reports", NULL, NULL);
    out[n++] = language("text", at("text"), NULL);
    out[n] = out[n - 1];
    out[n++].separate = true;
    out[n++] = language("megatron", at("narrow"), at("held-out"));
    out[n] = out[n - 1];
    out[n++].separate = true;
    out[n++] = language("megatron", at("wide"), NULL);
    out[n++] = language("govreport", at("packed"), NULL);
    out[n++] = language("sft", at("rows.jsonl"), NULL);
    out[n] = out[n - 1];
    out[n].sft.overlong = TM_OVERLONG_SPLIT;
    out[n++].sft.packed = true;
    out[n] = language("preference", at("pairs.jsonl"), NULL);
    out[n++].sft.packed = true;
    out[n++] = images("gaussians");
    out[n++] = images("latents");
    return n;
}

static int write_files(void **state)
{
    (void)state;
    assert_int_equal(mkdir(test_in_folder("text"), 0700), 0);
    assert_int_equal(mkdir(test_in_folder("packed"), 0700), 0);
    assert_int_equal(mkdir(test_in_folder("train"), 0700), 0);
    assert_int_equal(mkdir(test_in_folder("held"), 0700), 0);
    write_text("text/a.txt", 40);
    write_text("text/b.txt", 3);
    write_text("text/c.txt", 90);
    write_indexed("narrow", false);
    write_indexed("wide", true);
    write_indexed("held-out", false);
    write_packed("packed/train.npy", 0);
    write_packed("packed/validation.npy", 1);
    write_rows("rows.jsonl", false);
    write_rows("pairs.jsonl", true);
    write_images("train/a.safetensors", 2);
    write_images("train/b.safetensors", 9);
    write_images("held/a.safetensors", 7);
    return 0;
}

static tm_source *open_source(const tm_source_options *options)
{
    tm_source *source = NULL;
    tm_error   err;
    if (tm_source_open(options, &source, &err) != TM_OK) fail_msg("%s", err.text);
    return source;
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

/* What a loader gives of a source, in hashes. */
static int64_t feed(const tm_source *source, tm_split split, tm_loader_part part, int64_t first, int64_t n,
                    uint64_t *hashes)
{
    tm_loader *loader = tm_loader_open_part(source, split, BATCH * part.ranks, part, first, 1);
    for (int64_t i = 0; i < n; i++) {
        tm_batch batch;
        tm_loader_next(loader, &batch);
        assert_null(batch.error);
        hashes[i] = tm_seen_hash(source, batch.field, BATCH);
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
                              .first = t->first + t->part.rank * BATCH,
                              .stride = BATCH * ranks,
                              .rows = BATCH,
                              .hashes = hashes,
                              .n = STEPS };
    const tm_seen evaluated = { .source = source,
                                .split = TM_SPLIT_VALIDATION,
                                .first = t->part.rank * BATCH,
                                .stride = BATCH * ranks,
                                .rows = BATCH,
                                .hashes = held_hashes,
                                .n = held };
    tm_certify_data(&trained, &evaluated, t->seconds, 1, &out);
    assert_true(out.seconds >= 0);
    return out;
}

static void expect_holds(const tm_data_certificate *c, const char *name)
{
    if (!c->done || c->reason[0] || !c->fed || !c->once || !c->apart || !c->stored) fail_msg("%s: %s", name, c->reason);
}

/* --- honest ------------------------------------------------------------------------------------------------------- */

TEST(it_holds_for_every_source)
{
    tm_source_options options[SOURCES];
    for (int i = 0, n = all_sources(options); i < n; i++) {
        tm_source          *source = open_source(&options[i]);
        tm_data_certificate c = look(source, &honest);
        expect_holds(&c, options[i].name);
        assert_int_equal(c.batches, STEPS);
        assert_int_equal(c.held_out, tm_source_describe(source)->validation_samples > 0 ? HELD : 0);
        const bool plain = strcmp(options[i].name, "text") == 0 || strcmp(options[i].name, "megatron") == 0 ||
                           strcmp(options[i].name, "govreport") == 0;
        assert_true(plain ? c.compared > STEPS * BATCH * T / 2 : c.compared == 0);
        tm_source_close(source);
    }
}

/* From the middle of an epoch, on the second of three ranks; the first batches are read in any case. */
TEST(it_holds_for_parts_and_after_resuming)
{
    tm_source_options options[SOURCES];
    for (int i = 0, n = all_sources(options); i < n; i++) {
        tm_source *source = open_source(&options[i]);
        trial      t = { .part = { 1, 3 }, .first = 31, .fed_part = { 1, 3 }, .fed_first = 31 };
        t.fed_split = TM_SPLIT_VALIDATION;
        tm_data_certificate c = look(source, &t);
        expect_holds(&c, options[i].name);
        assert_true(c.batches >= 2 && c.batches < STEPS);
        tm_source_close(source);
    }
}

/* --- defects of a run --------------------------------------------------------------------------------------------- */

TEST(other_samples_than_those_of_the_step_are_found)
{
    tm_source_options options[SOURCES];
    const trial       defects[] = {
              { .part = { 0, 2 }, .fed_part = { 1, 2 } },                 /* the part of another rank */
              { .part = { 0, 1 }, .fed_part = { 0, 1 }, .fed_first = 4 }, /* one batch ahead */
              { .part = { 0, 1 }, .fed_part = { 0, 1 }, .first = 31 },    /* from the beginning, after resuming */
              { .part = { 0, 1 }, .fed_part = { 0, 1 }, .repeats = 1 },   /* a batch twice */
              { .part = { 0, 1 }, .fed_part = { 0, 1 }, .repeats = 40 },  /* from some step on, the same for ever */
    };
    for (int i = 0, n = all_sources(options); i < n; i++) {
        tm_source *source = open_source(&options[i]);
        for (size_t d = 0; d < sizeof defects / sizeof defects[0]; d++) {
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
    const tm_source_options options = language("text", at("text"), NULL);
    tm_source_kind          kind = tm_source_text;
    kind.unit = half;
    kind.sample = sample_of_half;
    kind.places = places_of_half;
    tm_data_certificate c = with_kind(&options, kind);
    assert_true(c.done && c.fed && !c.once && c.apart && c.stored && strstr(c.reason, "had before"));
}

TEST(held_out_samples_from_training_are_found)
{
    const tm_source_options text = language("text", at("text"), NULL);
    const tm_source_options made = language("synthetic", NULL, NULL);
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
    const tm_source_options text = language("text", at("text"), NULL);
    const tm_source_options made = language("synthetic", NULL, NULL);
    tm_source_kind          kind = tm_source_text;
    kind.sample = sample_of_next;
    tm_data_certificate c = with_kind(&text, kind);
    assert_true(c.done && c.fed && !c.stored && strstr(c.reason, "are not those of its file"));
    kind = tm_source_synthetic;
    kind.sample = sample_without_language;
    c = with_kind(&made, kind);
    assert_true(c.done && c.fed && !c.stored && strstr(c.reason, "entropy"));
}

/* The same file for both, by another name, too: who configures that is not blamed, but told. */
TEST(held_out_files_that_are_trained_on_are_told)
{
    tm_source_options options[] = {
        language("megatron", at("narrow"), at("again")),
        language("sft", at("rows.jsonl"), at("rows.jsonl")),
        images("latents"),
    };
    assert_int_equal(link(test_in_folder("narrow.bin"), test_in_folder("again.bin")), 0);
    assert_int_equal(link(test_in_folder("narrow.idx"), test_in_folder("again.idx")), 0);
    options[2].validation_path = options[2].path;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        tm_source          *source = open_source(&options[i]);
        tm_data_certificate c = look(source, &honest);
        assert_true(c.done && !c.apart && c.fed && c.once && c.stored && !c.reason[0]);
        tm_source_close(source);
    }
}

/* A file that changed is no reason to blame the run. */
TEST(files_that_changed_are_not_compared)
{
    const tm_source_options options = language("text", at("later"), NULL);
    assert_int_equal(mkdir(test_in_folder("later"), 0700), 0);
    write_text("later/a.txt", 60);
    tm_source *source = open_source(&options);
    write_text("later/a.txt", 61);
    tm_data_certificate c = look(source, &honest);
    expect_holds(&c, "text");
    assert_int_equal(c.compared, 0);
    tm_source_close(source);
}

TEST_FIXTURE(write_files, test_folder_teardown)
