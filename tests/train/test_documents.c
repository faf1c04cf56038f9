/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that are kept apart in one sample give the loss and the gradients that each of them gives alone. */
#include "support/test.h"
#include "data/source_kind.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ = 24, VOCAB = 96, DOCUMENTS = 4 };
static const int64_t lengths[DOCUMENTS] = { 7, 1, 12, 4 };

typedef struct {
    int32_t tokens[SEQ], targets[SEQ], positions[SEQ], first_key[SEQ];
} sample;

/* Row 0: all documents; rows 1 .. 4: each alone, the rest of the row empty. */
static int64_t make_rows(sample rows[DOCUMENTS + 1])
{
    int64_t at = 0, counts = 0;
    memset(rows, 0, (DOCUMENTS + 1) * sizeof *rows);
    for (int r = 0; r <= DOCUMENTS; r++)
        for (int64_t t = 0; t < SEQ; t++) rows[r].targets[t] = TM_IGNORED_TARGET;
    void        *fields[] = { rows[0].tokens, rows[0].targets, rows[0].positions, rows[0].first_key };
    tm_documents documents = tm_documents_of(fields, SEQ);
    for (int d = 0; d < DOCUMENTS; d++) {
        for (int64_t t = 0; t < lengths[d]; t++, at++) {
            int32_t token = (int32_t)((at * 37 + 11) % VOCAB);
            rows[0].tokens[at] = rows[d + 1].tokens[t] = token;
            if (at > 0) rows[0].targets[at - 1] = token;
            if (t > 0) rows[d + 1].targets[t - 1] = token;
            counts += t > 0;
        }
        tm_documents_add(&documents, lengths[d]);
    }
    rows[0].targets[SEQ - 1] = 5;
    tm_documents_add(&documents, 1); /* begins with the last target */
    assert_int_equal(tm_documents_end(&documents), counts);
    for (int64_t t = 0; t < SEQ; t++) assert_true(rows[0].targets[t] == TM_IGNORED_TARGET || t < SEQ - 1);
    return counts;
}

static void train(tm_trainer *trainer, const sample *rows, int n, int64_t counts)
{
    tm_error err = { 0 };
    test_begin(trainer, 1, 0, 0, counts);
    for (int r = 0; r < n; r++) {
        tm_micro_batch micro = { .field = { rows[r].tokens, rows[r].targets, rows[r].positions, rows[r].first_key } };
        if (tm_trainer_accumulate(trainer, r, &micro, NULL, &err) != TM_OK) fail_msg("%s", err.text);
    }
    test_update(trainer);
}

static double loss_of(const tm_trainer *trainer)
{
    double *loss = test_tensor_read(trainer, tm_trainer_step_of(trainer)->loss), sum = *loss;
    free(loss);
    return sum;
}

static tm_tensor_id find(const tm_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (strcmp(graph->tensors[i].name, name) == 0) return (tm_tensor_id)i;
    fail_msg("no %s", name);
    return TM_NONE;
}

static void compare(const char *what, tm_device *device, tm_step_options o)
{
    static const char *const names[] = { "tokens", "targets", "positions", "first_key" };
    sample                   rows[DOCUMENTS + 1];
    int64_t                  counts = make_rows(rows);
    o.micro_batch = 1;
    o.seq = SEQ;
    o.accumulation = DOCUMENTS;
    tm_trainer *alone = test_trainer_open(device, &o, 3);
    o.accumulation = 1;
    for (int f = 0; f < 4; f++) o.fields[f] = (tm_field){ .name = names[f], .dtype = TM_I32, .shape = tm_shape_1(SEQ) };
    o.n_fields = 4;
    tm_trainer *packed = test_trainer_open(device, &o, 3);
    train(alone, rows + 1, DOCUMENTS, counts);
    train(packed, rows, 1, counts);
    double a = loss_of(packed), b = loss_of(alone);
    if (!(fabs(a - b) <= 1e-6 * b)) fail_msg("%s: loss %.9g, alone %.9g", what, a, b);
    const tm_graph *x = tm_trainer_step_of(packed)->graph, *y = tm_trainer_step_of(alone)->graph;
    for (size_t i = 0; i < x->n_tensors; i++) {
        if (x->tensors[i].role != TM_ROLE_PARAMETER || x->tensors[i].gradient == TM_NONE) continue;
        tm_tensor_id to = find(y, x->tensors[i].name);
        double apart = test_relative_difference(packed, alone, x->tensors[i].gradient, tm_graph_at(y, to)->gradient);
        if (!(apart <= 2e-5)) fail_msg("%s: gradient of %s differs by %g", what, x->tensors[i].name, apart);
    }
    tm_trainer_close(packed);
    tm_trainer_close(alone);
}

TEST(packed_is_as_alone)
{
    static const struct {
        const char *what, *more;
    } others[] = {
        { "mixtral", "--model.family=mixtral --model.n_experts=4 --model.n_experts_per_token=2" },
        { "qwen3_moe", "--model.family=qwen3_moe --model.qk_norm=true --model.n_experts=4 "
                       "--model.n_experts_per_token=2 --model.moe_normalise=true" },
        { "deepseek", "--model.family=deepseek --model.kv_lora_rank=16 --model.qk_nope_head_dim=8 "
                      "--model.qk_rope_head_dim=4 --model.v_head_dim=8 --model.n_kv_heads=2 --model.n_experts=4 "
                      "--model.n_experts_per_token=2 --model.n_shared_experts=1 --model.n_dense_layers=1" },
        { "gpt_oss", "--model.family=gpt_oss --model.n_experts=4 --model.n_experts_per_token=2 "
                     "--model.sliding_window=5 --model.sliding_window_every=2" },
    };
    tm_device *device = test_device_open("cpu", 2);
    for (int family = 0; family < (int)TM_FAMILY_MIXTRAL; family++) {
        tm_step_options o = test_family_options((tm_model_family)family);
        if (*tm_model_optional_fields(&o.shape)) compare(tm_model_family_name(&o.shape), device, o);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char            more[600];
        tm_step_options o = test_llama_options();
        snprintf(more, sizeof more,
                 "%s --model.dim=32 --model.n_layers=2 --model.n_heads=2 --model.ffn_dim=48 "
                 "--model.moe_ffn_dim=24 --model.vocab_size=96",
                 others[i].more);
        o.shape = test_shape_preset("tiny-llama", more);
        compare(others[i].what, device, o);
    }
    tm_device_close(device);
}

/* --- sources ------------------------------------------------------------------------------------------------------ */

TEST(text_is_separated)
{
    tm_field   fields[TM_MAX_FIELDS];
    tm_source *source;
    tm_error   err = { 0 };
    int        n;
    sample     s;
    int32_t    scratch[SEQ + 1];
    int64_t    weight;
    void      *at[] = { s.tokens, s.targets, s.positions, s.first_key };
    test_file_write(test_folder(), "a.txt", "abcdefg");
    test_file_write(test_folder(), "b.txt", "0123456789");
    test_file_write(test_folder(), "c.txt", "the rest of it, longer");
    tm_source_options o = { .name = "text", .path = test_folder(), .vocab = 257, .seq = SEQ, .separate = true };
    assert_int_equal(tm_source_fields(&o, fields, &n, &err), TM_OK);
    assert_int_equal(n, 4);
    assert_string_equal(fields[2].name, "positions");
    assert_string_equal(fields[3].name, "first_key");
    if (tm_source_open(&o, &source, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_source_row(source, TM_SPLIT_TRAIN, 0, scratch, at, &weight, &err), TM_OK);
    int64_t counts = 0;
    for (int t = 0; t < SEQ; t++) {
        bool begins = t == 0 || s.tokens[t - 1] == 256;
        assert_int_equal(s.positions[t], begins ? 0 : s.positions[t - 1] + 1);
        assert_int_equal(s.first_key[t], t - s.positions[t]);
        assert_int_equal(s.targets[t] == TM_IGNORED_TARGET, s.tokens[t] == 256);
        if (s.tokens[t] != 256) assert_int_equal(s.targets[t], scratch[t + 1]);
        counts += s.tokens[t] != 256;
    }
    assert_int_equal(weight, counts);
    assert_true(counts < SEQ);
    tm_source_close(source);
    o.name = "mock";
    assert_int_equal(tm_source_open(&o, &source, &err), TM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "data.separate_documents"));
    test_folder_remove();
}
