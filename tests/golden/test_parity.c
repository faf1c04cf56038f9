/* SPDX-License-Identifier: Apache-2.0 */
/* What PyTorch computes for a tiny Llama and a tiny GPT-2: loss, every gradient, losses of 100 AdamW steps.
 *
 * The numbers are in tests/golden/fixtures, made by tools/make_parity_fixture.py; docs/parity.md has the layout.
 */
#include "base/arena.h"
#include "support/golden.h"
#include "support/training.h"

#include "support/test.h"

typedef struct {
    char         name[64];
    uint32_t     rows, columns;
    double       norm;              /* of the gradient */
    const float *weight, *gradient; /* (rows, columns), the library's layout */
} fixture_tensor;

typedef struct {
    uint32_t version, n_tensors, steps, batches, batch, seq, family, zero;
    uint32_t vocab, dim, layers, heads, kv_heads, head_dim, ffn, positions;
    double   norm_eps, rope_theta, learning_rate, beta1, beta2, eps, weight_decay, max_norm;
} fixture_header;

typedef struct {
    unsigned char  *bytes;
    fixture_header  head;
    const double   *losses, *norms, *stock_losses; /* (steps) */
    const int32_t  *tokens;                        /* (batches, batch, seq + 1) */
    fixture_tensor *tensors;
} fixture;

typedef struct {
    double loss, norm, gradient; /* first step: loss, norm of each gradient, each gradient */
    double step, step_norm;      /* loss and gradient norm of the 100 steps */
} limits;

/* The files are little-endian and so is every machine that the program is built for; the version word tells. */
static fixture load(const char *name)
{
    fixture f = { 0 };
    char    path[128];
    snprintf(path, sizeof path, "tests/golden/fixtures/%s.bin", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s; run from the root of the repository", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(file), at = 8 + sizeof f.head;
    rewind(file);
    f.bytes = tm_alloc(size);
    assert_int_equal(fread(f.bytes, 1, size, file), size);
    fclose(file);
    assert_true(size > at);
    assert_memory_equal(f.bytes, "TMPARITY", 8);
    memcpy(&f.head, f.bytes + 8, sizeof f.head);
    assert_int_equal(f.head.version, 1);
    f.losses = (const double *)(const void *)(f.bytes + at);
    f.norms = f.losses + f.head.steps;
    f.stock_losses = f.norms + f.head.steps;
    f.tokens = (const int32_t *)(f.stock_losses + f.head.steps);
    at += 3 * 8 * f.head.steps + (size_t)4 * f.head.batches * f.head.batch * (f.head.seq + 1);
    f.tensors = tm_alloc(f.head.n_tensors * sizeof *f.tensors);
    for (uint32_t i = 0; i < f.head.n_tensors; i++) {
        fixture_tensor *t = &f.tensors[i];
        assert_true(at + 80 <= size);
        memcpy(t->name, f.bytes + at, 64);
        memcpy(&t->rows, f.bytes + at + 64, 4);
        memcpy(&t->columns, f.bytes + at + 68, 4);
        memcpy(&t->norm, f.bytes + at + 72, 8);
        size_t elements = (size_t)t->rows * t->columns;
        at += 80 + 8 * elements;
        assert_true(at <= size);
        t->weight = (const float *)(const void *)(f.bytes + at - 8 * elements);
        t->gradient = t->weight + elements;
    }
    assert_int_equal(at, size);
    return f;
}

static void unload(fixture *f)
{
    free(f->tensors);
    free(f->bytes);
}

static tm_step_options options_of(const fixture_header *h, const tm_precision *precision, tm_recompute recompute)
{
    bool            gpt = h->family == 1;
    tm_step_options o = { .precision = precision,
                          .micro_batch = h->batch,
                          .seq = h->seq,
                          .accumulation = 1,
                          .recompute = recompute,
                          .optimizer = &tm_optimizer_adamw,
                          .hyper = {
                              .beta1 = h->beta1, .beta2 = h->beta2, .eps = h->eps, .weight_decay = h->weight_decay } };
    o.shape = (tm_model_shape){ .family = gpt ? TM_FAMILY_GPT : TM_FAMILY_LLAMA,
                                .vocab_size = h->vocab,
                                .dim = h->dim,
                                .n_layers = h->layers,
                                .n_heads = h->heads,
                                .n_kv_heads = h->kv_heads,
                                .head_dim = h->head_dim,
                                .ffn_dim = h->ffn,
                                .max_seq_len = h->positions,
                                .norm_eps = h->norm_eps,
                                .rope_theta = h->rope_theta,
                                .tied = gpt,
                                .bias = gpt ? TM_BIAS_ALL : TM_BIAS_NONE,
                                .init = gpt ? TM_INIT_GPT2 : TM_INIT_HF };
    return o;
}

/* GPT-2's four products are stored (in, out) by the library, (out, in) here. */
static bool is_transposed(const fixture_tensor *t)
{
    return t->columns > 1 && (strstr(t->name, ".c_attn.") || strstr(t->name, ".c_proj.") || strstr(t->name, ".c_fc."));
}

/* A trained piece and its tensor of the fixture. */
typedef struct {
    tm_tensor_id          parameter, gradient;
    int64_t               first, elements; /* within the parameter */
    const fixture_tensor *of;
} match;

/* Every piece of every parameter has its tensor, and every tensor its piece. Returns the number of matches. */
static int matches_of(const tm_trainer *trainer, const fixture *f, match *out, int limit)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    int             n = 0;
    for (size_t t = 0; t < graph->n_tensors; t++) {
        const tm_tensor *tensor = &graph->tensors[t];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        int64_t row = tm_shape_elements(tensor->shape) / tensor->shape.n[0];
        for (int p = 0; p < tensor->n_pieces; p++) {
            char            text[160];
            const tm_piece *piece = &tensor->pieces[p];
            const char     *name = golden_public_name(piece->name, text);
            assert_true(n < limit);
            match *m = &out[n++];
            *m = (match){ .parameter = (tm_tensor_id)t,
                          .gradient = tensor->gradient,
                          .first = piece->row * row,
                          .elements = piece->rows * row };
            for (uint32_t i = 0; i < f->head.n_tensors; i++) {
                const char *wanted = f->tensors[i].name;
                if (strncmp(wanted, "transformer.", 12) == 0) wanted += 12;
                if (strcmp(name, wanted) == 0) m->of = &f->tensors[i];
            }
            if (!m->of) fail_msg("%s is not in the fixture", name);
            assert_int_equal(m->elements, (int64_t)m->of->rows * m->of->columns);
            if (is_transposed(m->of)) assert_int_equal(row, m->of->rows);
        }
    }
    assert_int_equal(n, f->head.n_tensors);
    return n;
}

/* Index into the fixture's arrays of element i of the piece. */
static int64_t place_of(const fixture_tensor *t, int64_t i)
{
    return is_transposed(t) ? i % t->rows * t->columns + i / t->rows : i;
}

static double relative(double value, double wanted)
{
    return fabs(value - wanted) / fabs(wanted);
}

static void within(const char *what, int64_t step, double error, double limit)
{
    if (!(error <= limit)) fail_msg("%s, step %lld: relative error %.3g > %g", what, (long long)step, error, limit);
}

static void check_gradients(const tm_trainer *trainer, const match *matches, int n, const limits *limit)
{
    for (int k = 0; k < n; k++) {
        const match *m = &matches[k];
        double       sum = 0, difference = 0, wanted = 0, *values = test_values_read(trainer, m->gradient);
        for (int64_t i = 0; i < m->elements; i++) {
            double g = values[m->first + i], w = (double)m->of->gradient[place_of(m->of, i)];
            sum += g * g;
            wanted += w * w;
            difference += (g - w) * (g - w);
        }
        free(values);
        assert_true(m->of->norm > 1e-3); /* a gradient of nothing would prove nothing */
        within(m->of->name, 1, sqrt(difference / wanted), limit->gradient);
        within(m->of->name, 1, relative(sqrt(sum), m->of->norm), limit->norm);
    }
}

/* `stock`: the library's own float32 losses are followed, too. */
static void follow(tm_trainer *trainer, const fixture *f, const match *matches, int n, bool stock, const limits *limit)
{
    int64_t rows = (int64_t)f->head.batch, seq = f->head.seq;
    int32_t tokens[64], targets[64];
    assert_true(rows * seq <= 64);
    for (uint32_t t = 0; t < f->head.steps; t++) {
        const int32_t *windows = f->tokens + (t % f->head.batches) * rows * (seq + 1);
        for (int64_t i = 0; i < rows * seq; i++) {
            tokens[i] = windows[i / seq * (seq + 1) + i % seq];
            targets[i] = windows[i / seq * (seq + 1) + i % seq + 1];
        }
        test_begin(trainer, (int64_t)t + 1, f->head.learning_rate, f->head.max_norm, rows * seq);
        test_accumulate(trainer, 0, tokens, targets);
        tm_step_result result = test_update(trainer);
        if (t == 0) check_gradients(trainer, matches, n, limit);
        within("loss", (int64_t)t + 1, relative(result.loss, f->losses[t]), t == 0 ? limit->loss : limit->step);
        within("norm", (int64_t)t + 1, relative(result.grad_norm, f->norms[t]), limit->step_norm);
        if (stock) within("library", (int64_t)t + 1, relative(result.loss, f->stock_losses[t]), limit->step);
    }
}

static void run(const char *name, const char *device_name, const tm_precision *precision, tm_recompute recompute,
                limits limit)
{
    enum { MATCHES = 64 };
    fixture         f = load(name);
    match           matches[MATCHES];
    tm_device      *device = test_device_open(device_name, 2);
    tm_step_options options = options_of(&f.head, precision, recompute);
    tm_trainer     *trainer = test_trainer_open(device, &options, 1);
    int             n = matches_of(trainer, &f, matches, MATCHES);
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < matches[k].elements; i++)
            golden_set(trainer, matches[k].parameter, matches[k].first + i,
                       (double)matches[k].of->weight[place_of(matches[k].of, i)]);
    follow(trainer, &f, matches, n, precision == &tm_precision_f32, &limit);
    tm_trainer_close(trainer);
    tm_device_close(device);
    unload(&f);
}

/* Gradients are stored as float32: no closer than 6e-8. The double device is compared with the double numbers, the cpu
 * with those and with the library's own float32 losses. */
static const limits in_double = { .loss = 1e-12, .norm = 1e-12, .gradient = 6e-8, .step = 1e-12, .step_norm = 1e-11 };
static const limits in_float32 = { .loss = 1e-6, .norm = 1e-5, .gradient = 1e-5, .step = 1e-4, .step_norm = 3e-4 };
static const tm_recompute keep_all = { 0 }, cheap = { .cheap = true }, full = { .cheap = true, .every_n = 1 };

TEST(losses_and_gradients_of_float64)
{
    run("llama", "reference", &tm_precision_f64, keep_all, in_double);
    run("gpt2", "reference", &tm_precision_f64, keep_all, in_double);
}

TEST(losses_and_gradients_of_float32)
{
    run("llama", "cpu", &tm_precision_f32, cheap, in_float32);
    run("gpt2", "cpu", &tm_precision_f32, full, in_float32);
}
