/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of every device against the double reference of its op, over the op's own examples: one test for all.
 *
 * A kernel may refuse a call; what it does not refuse it must compute, in any mix of number formats:
 *   - within the bound of the op's rounding (device/judge.h), also where it adds to what is there;
 *   - with the same bits for 1, 2 and 4 threads and in place where the op allows it (in the formats of training and
 *     mixes of them), and among instruction sets that promise to agree; a bfloat16 result is the float32 result on the
 *     same values, rounded once (attention rounds more);
 *   - reading and writing nothing but its operands: inputs lie between NaN, at odd addresses; outputs and the
 * workspace, of exactly the size asked for, start as NaN; no byte around them and no input changes. And no op falls
 * back to its reference on a fast device unless the op says so. */
#include "base/arena.h"
#include "base/random.h"
#include "device/judge.h"

#include "device/backend.h"
#include "device/cpu/simd/kernels.h"
#include "graph/value.h"

#include <malloc.h>

#include "support/execute.h"
#include "support/test.h"
#include "operand.h"

enum { MAX_VARIANTS = 600, GAP = 3, SUITES = 6 };
static const int thread_counts[] = { 1, 2, 4 };

/* ---- what there is ---- */

typedef struct {
    const char             *name;
    const tm_kernel *const *families; /* ends with NULL; NULL: the reference through float64 copies */
    bool                    fast;     /* false: left out where it would take long, the source is that of the others */
    const void             *context;  /* of the device, for kernels that prepare */
    int                     agrees;   /* has the bits of this other suite; -1: of none */
    bool                    pairs;    /* takes bfloat16 factors only */
} suite;

static int list_suites(suite out[SUITES])
{
    static const suite all[SUITES] = {
        { .name = "reference", .agrees = -1 },
        { .name = "base", .agrees = -1 },
        { .name = "avx2", .fast = true, .agrees = -1 },
        { .name = "avx512", .fast = true, .agrees = 2 },
        { .name = "avx512_bf16", .fast = true, .agrees = 3, .pairs = true },
        { .name = "amx", .fast = true, .agrees = -1, .pairs = true },
    };
    int n = 0;
    for (int i = 0; i < SUITES; i++) {
        out[n] = all[i];
        out[n].families = tm_cpu_kernel_tables(all[i].name);
        if (i == 0 || out[n].families) n++;
    }
    return n;
}

/* Kernel number `i` of a suite for an op; NULL past the last. */
static const tm_kernel *kernel_of(const suite *s, tm_op_id op, int i)
{
    if (!s->families) return i == 0 ? tm_reference_kernel(op, true) : NULL;
    for (const tm_kernel *const *family = s->families; *family; family++)
        for (const tm_kernel *kernel = *family; kernel->name; kernel++)
            if (kernel->op == op && i-- == 0) return kernel;
    return NULL;
}

/* ---- number formats of a call ---- */

typedef struct {
    tm_dtype in[TM_MAX_IN], out[TM_MAX_OUT];
    bool     strided; /* rows of the operands that may be views (op->strided_in, strided_out) lie GAP elements apart */
} formats;

static int gap_of(const tm_op *op, const formats *f, bool output, int k)
{
    return f->strided && ((output ? op->strided_out : op->strided_in) >> k & 1u) ? GAP : 0;
}

/* The call without data, as a plan asks about it. */
static tm_call call_of(const tm_op *op, const tm_example *example, const formats *f)
{
    tm_call call = tm_example_call(op, example, &tm_precision_f32);
    call.threads = 4;
    for (int i = 0; i < op->n_in + op->n_out; i++) {
        bool     output = i >= op->n_in;
        int      k = output ? i - op->n_in : i;
        tm_view *view = output ? &call.out[k] : &call.in[k];
        view->dtype = output ? f->out[k] : f->in[k];
        int gap = gap_of(op, f, output, k);
        if (gap && view->shape.rank > 0) view->ld = view->shape.n[view->shape.rank - 1] + gap;
    }
    return call;
}

/* Those of a training step. */
static formats planned(const tm_op *op, const tm_example *example, const tm_precision *precision)
{
    formats f;
    tm_call call = tm_example_call(op, example, precision);
    memset(&f, 0, sizeof f);
    for (int k = 0; k < op->n_in; k++) f.in[k] = call.in[k].dtype;
    for (int k = 0; k < op->n_out; k++) f.out[k] = call.out[k].dtype;
    return f;
}

static tm_dtype *format_at(formats *f, const tm_op *op, int k)
{
    return k < op->n_in ? &f->in[k] : &f->out[k - op->n_in];
}

static int add_variant(formats out[MAX_VARIANTS], int n, const formats *f)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&out[i], f, sizeof *f) == 0) return n;
    assert_true(n < MAX_VARIANTS);
    out[n] = *f;
    return n + 1;
}

/* Float32 and the two bfloat16 regimes, `mixes` random ones, each with strided operands if there are such; *usual: so
 * many are all. The first example: every operand in every other format. (Numbers fit into bfloat16 and wider formats:
 * for a narrower one to be taken, judge_open has to round to it. Formats of 4 bits need places of half a byte.) */
static int list_variants(const tm_op *op, const tm_example *example, int number, int mixes, formats out[MAX_VARIANTS],
                         int *usual)
{
    const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    int                       n = 0, operands = op->n_in + op->n_out;
    for (int p = 0; p < 3; p++) {
        formats f = planned(op, example, precisions[p]);
        n = add_variant(out, n, &f);
    }
    for (int mix = 0; mix < mixes; mix++) {
        formats f = out[0];
        for (int i = 0; i < operands; i++)
            if (*format_at(&f, op, i) == TM_F32 &&
                tm_random_u64(20240701, (uint64_t)number, (uint64_t)(mix * 32 + i)) & 1)
                *format_at(&f, op, i) = TM_BF16;
        n = add_variant(out, n, &f);
    }
    for (int v = 0, dense = n; (op->strided_in | op->strided_out) && v < dense; v++) {
        formats f = out[v];
        f.strided = true;
        n = add_variant(out, n, &f);
    }
    *usual = n;
    for (int base = 0; base < 2 && number == 0; base++)
        for (int i = 0; i < operands; i++)
            for (int dtype = 0; dtype < TM_DTYPE_COUNT; dtype++) {
                formats f = planned(op, example, precisions[2 * base]);
                *format_at(&f, op, i) = (tm_dtype)dtype;
                if (tm_dtype_bits((tm_dtype)dtype) >= 8) n = add_variant(out, n, &f);
            }
    return n;
}

/* ---- one kernel, one example, one mix of formats ---- */

typedef struct {
    const tm_judge  *j;
    const suite     *suite;
    const tm_kernel *kernel;
    formats          formats;
    operand          in[TM_MAX_IN], out[TM_MAX_OUT];
    int              alias; /* input whose memory output 0 takes over, or -1 */
    unsigned         accumulate;
    int              threads;
} trial;

static void complain(const trial *t, const char *what, int k)
{
    char text[400];
    int  n = snprintf(text, sizeof text, "%s (%s), example %d, formats", t->kernel->name, t->suite->name, t->j->number);
    for (int i = 0; i < t->j->op->n_in + t->j->op->n_out && n < 300; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s", i == t->j->op->n_in ? " -> " : " ",
                      tm_dtype_name(*format_at((formats *)(uintptr_t)&t->formats, t->j->op, i)));
    fail_msg("%s, adds %#x, %d threads, in place %d: %s %d", text, t->accumulate, t->threads, t->alias, what, k);
}

static operand *result_of(trial *t, int k)
{
    return k == 0 && t->alias >= 0 ? &t->in[t->alias] : &t->out[k];
}

static void trial_call(const trial *t, tm_call *call)
{
    *call = (tm_call){ .op = t->j->op, .attr = t->j->call.attr, .accumulate = t->accumulate, .threads = t->threads };
    for (int k = 0; k < TM_MAX_IN; k++) call->in[k] = operand_view(&t->in[k]);
    for (int k = 0; k < TM_MAX_OUT; k++) call->out[k] = operand_view(&t->out[k]);
    if (t->alias >= 0) call->out[0].data = t->in[t->alias].data;
}

static bool trial_open(trial *t, const tm_judge *j, const suite *s, const tm_kernel *kernel, const formats *f)
{
    *t = (trial){ .j = j, .suite = s, .kernel = kernel, .formats = *f, .alias = -1, .threads = 4 };
    tm_call call = call_of(j->op, j->example, f);
    if (kernel->refuse && kernel->refuse(&call)) return false;
    for (int k = 0; k < j->op->n_in; k++) {
        const tm_view *from = &j->call.in[k];
        if (!tm_view_present(from)) continue;
        t->in[k] = operand_new(f->in[k], from->shape, gap_of(j->op, f, false, k), 1 + (j->number + k) % 3, 0xff);
        double *values = tm_alloc((size_t)(t->in[k].count + 1) * sizeof *values);
        for (int64_t i = 0; i < t->in[k].count; i++) values[i] = tm_value_get(from->data, from->dtype, i);
        operand_fill(&t->in[k], values);
        free(values);
    }
    for (int k = 0; k < j->op->n_out; k++)
        if (tm_view_present(&j->call.out[k]))
            t->out[k] = operand_new(f->out[k], j->call.out[k].shape, gap_of(j->op, f, true, k),
                                    1 + (j->number + k + 1) % 3, 0xa5);
    return true;
}

static void trial_close(trial *t)
{
    for (int k = 0; k < TM_MAX_IN; k++) operand_free(&t->in[k]);
    for (int k = 0; k < TM_MAX_OUT; k++) operand_free(&t->out[k]);
}

static void trial_run(trial *t, unsigned accumulate, int threads, int alias)
{
    tm_call call;
    t->accumulate = accumulate, t->threads = threads, t->alias = alias;
    for (int k = 0; k < t->j->op->n_out; k++)
        if (t->out[k].memory) operand_fill(&t->out[k], accumulate >> k & 1u ? t->j->old[k] : NULL);
    for (int k = 0; k < TM_MAX_IN; k++)
        if (t->in[k].memory) memcpy(t->in[k].memory, t->in[k].image, t->in[k].bytes);
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (t->out[k].memory) memcpy(t->out[k].memory, t->out[k].image, t->out[k].bytes);
    trial_call(t, &call);
    call.workspace_bytes = t->kernel->workspace ? t->kernel->workspace(&call) : 0;
    operand work = operand_new(TM_BF16, tm_shape_1((int64_t)(call.workspace_bytes + 1) / 2), 0, 0, 0xa5);
    memset(work.memory, 0xff, work.bytes);
    memset(work.memory, 0xa5, GUARD);
    memset(work.data + call.workspace_bytes, 0xa5, GUARD);
    call.workspace = work.data;
    if (t->kernel->prepare) assert_int_equal(t->kernel->prepare(t->suite->context, &call, &call.state, NULL), TM_OK);
    assert_ok(tm_kernel_run(t->kernel, &call, err));
    if (t->kernel->release) t->kernel->release(call.state);
    for (size_t i = 0; i < GUARD; i++)
        if (work.memory[i] != 0xa5 || work.data[call.workspace_bytes + i] != 0xa5)
            complain(t, "wrote beside workspace", 0);
    operand_free(&work);
    for (int k = 0; k < TM_MAX_IN; k++)
        if (t->in[k].memory && k != alias && memcmp(t->in[k].memory, t->in[k].image, t->in[k].bytes) != 0)
            complain(t, "changed input", k);
    if (alias >= 0 && !operand_guarded(&t->in[alias])) complain(t, "wrote beside input", alias);
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (t->out[k].memory && !operand_guarded(&t->out[k])) complain(t, "wrote beside output", k);
}

/* Losses in slices (two_rows) round the gradient of the logits before they multiply again; attention of bfloat16 its
 * weights: outputs that are not told apart here are sums of them. */
static bool is_attention(const trial *t)
{
    bool is =
        t->j->op == &tm_op_attention || t->j->op == &tm_op_attention_grad || t->j->op == &tm_op_relative_attention;
    return is && t->in[0].dtype == TM_BF16;
}

static bool rounds_factors(const trial *t, int k)
{
    if (is_attention(t)) return k < (t->j->op == &tm_op_attention_grad ? 3 : 1);
    return t->kernel->two_rows && t->j->rounding[k].narrow;
}

/* How much further off a value may be whose factors were rounded to bfloat16 on the way: as its inputs moved by 2^-9
 * instead of 2 units would move it. Of few probes some say too little: the mean of all elements stands beside. */
static double narrowing(const trial *t, int k)
{
    if (!rounds_factors(t, k)) return 0;
    double  mean = 0;
    int64_t n = t->out[k].count;
    for (int64_t i = 0; i < n; i++) mean += t->j->spread[k][i] / (double)n;
    return 24 * mean * (0x1p-9 / (2 * TM_JUDGE_UNIT));
}

static void check_values(trial *t)
{
    for (int k = 0; k < t->j->op->n_out; k++) {
        const operand *o = &t->out[k];
        double         narrow = tm_judge_has(t->j, k) ? narrowing(t, k) : 0;
        for (int64_t i = 0; tm_judge_has(t->j, k) && i < o->count; i++) {
            double wanted, got = value_of(o, i);
            double bound = tm_judge_bound(t->j, k, i, t->accumulate >> k & 1u, o->dtype, &wanted) + narrow;
            if (narrow > 0) bound += 24 * t->j->spread[k][i] * (0x1p-9 / (2 * TM_JUDGE_UNIT));
            if (fabs(got - wanted) <= bound || (isinf(wanted) && isinf(got) && signbit(got) == signbit(wanted)))
                continue;
            char text[160];
            snprintf(text, sizeof text, "%.9g at element %lld, wanted %.9g within %.3g, output", got, (long long)i,
                     wanted, bound);
            complain(t, text, k);
        }
    }
}

/* ---- bits ---- */

typedef struct {
    unsigned char *data[TM_MAX_OUT]; /* dense */
} bits;

static void *row_of(const operand *o, int64_t row)
{
    return o->data + (size_t)(row * o->pitch) * tm_dtype_bytes(o->dtype);
}

static bits bits_of(trial *t)
{
    bits b = { { NULL } };
    for (int k = 0; k < t->j->op->n_out; k++) {
        if (!tm_judge_has(t->j, k)) continue;
        const operand *o = result_of(t, k);
        size_t         row = (size_t)o->columns * tm_dtype_bytes(o->dtype);
        b.data[k] = malloc((size_t)o->count * tm_dtype_bytes(o->dtype) + 1);
        assert_non_null(b.data[k]);
        for (int64_t r = 0; r < o->count / o->columns; r++) memcpy(b.data[k] + (size_t)r * row, row_of(o, r), row);
    }
    return b;
}

static void bits_free(bits *b)
{
    for (int k = 0; k < TM_MAX_OUT; k++) free(b->data[k]), b->data[k] = NULL;
}

static void compare_bits(const trial *t, const bits *a, const bits *b, const char *what)
{
    for (int k = 0; k < t->j->op->n_out; k++)
        if (a->data[k] && b->data[k] &&
            memcmp(a->data[k], b->data[k], (size_t)t->out[k].count * tm_dtype_bytes(t->out[k].dtype)) != 0)
            complain(t, what, k);
}

static void check_bits(trial *t, const bits *wanted, const char *what)
{
    bits b = bits_of(t);
    compare_bits(t, &b, wanted, what);
    bits_free(&b);
}

static double rounded_to(tm_dtype dtype, double value)
{
    return dtype == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round((float)value)) : (double)(float)value;
}

/* `wide`: the float32 results on the same values. Where a value is stored once, and not added to. */
static void check_rounding(const trial *t, const bits *got, const bits *wide)
{
    for (int k = 0; k < t->j->op->n_out; k++) {
        tm_dtype dtype = t->out[k].dtype;
        if (!got->data[k] || t->j->rounding[k].stores > 1 || (dtype != TM_F32 && dtype != TM_BF16)) continue;
        if (is_attention(t)) continue; /* rounds weights, too, and scales scores and not queries */
        for (int64_t i = 0; i < t->out[k].count; i++)
            if (!(tm_value_get(got->data[k], dtype, i) == rounded_to(dtype, tm_value_get(wide->data[k], TM_F32, i))))
                complain(t, "is not the float32 result rounded once: output", k);
    }
}

/* ---- all checks of one kernel on one example ---- */

/* Results of one suite (of its first kernel that takes the call), kept for those that must have the same bits. */
typedef struct {
    bits kept[MAX_VARIANTS][2];
    bool have[MAX_VARIANTS];
} shelf;

static bool same_place(const trial *t, int k)
{
    return (t->j->op->inplace >> k & 1u) && t->in[k].memory && t->in[k].dtype == t->out[0].dtype &&
           tm_shape_equal(t->in[k].shape, t->out[0].shape) && t->in[k].pitch == t->out[0].pitch;
}

/* The kernel with these formats; keeps the bits, not added to and added to. `usual` formats: with other threads and in
 * place, too. */
static void check_trial(trial *t, bool usual, bits kept[2])
{
    for (int adds = 0; adds < (t->j->adds ? 2 : 1); adds++) {
        unsigned accumulate = adds ? t->j->adds : 0;
        trial_run(t, accumulate, thread_counts[0], -1);
        check_values(t);
        kept[adds] = bits_of(t);
        for (size_t i = 1; usual && i < (test_is_full() ? 3 : 2); i++) {
            trial_run(t, accumulate, thread_counts[i], -1);
            check_bits(t, &kept[adds], "other bits with other threads: output");
        }
        for (int k = 0; k < t->j->op->n_in; k++) {
            if (!usual || !same_place(t, k)) continue;
            trial_run(t, accumulate, 2, k);
            check_bits(t, &kept[adds], "other bits in place: output");
        }
    }
    for (int k = 0; k < t->j->op->n_out; k++) /* one output alone is added to: the others are not */
        if ((t->j->adds >> k & 1u) && t->j->adds != 1u << k) {
            trial_run(t, 1u << k, 2, -1);
            check_values(t);
        }
}

/* An input too narrow for the numbers of the example: a kernel may take it, test_pointwise_kernel.c tries every code.
 */
static bool narrow(const formats *f, const tm_example *example)
{
    bool any = false;
    for (int k = 0; k < TM_MAX_IN; k++) any = any || (tm_dtype_small(f->in[k]) && f->in[k] != example->dtype[k]);
    return any;
}

static int check_kernel(const tm_judge *j, const suite *s, const tm_kernel *kernel, const formats *variants, int n,
                        int usual, shelf *own, const shelf *others)
{
    int checked = 0;
    for (int v = 0; v < n; v++) {
        trial t;
        bits  kept[2] = { { { NULL } } };
        if (narrow(&variants[v], j->example) || !trial_open(&t, j, s, kernel, &variants[v])) continue;
        check_trial(&t, v < usual, kept);
        for (int adds = 0; adds < 2 && others && others->have[v]; adds++)
            compare_bits(&t, &kept[adds], &others->kept[v][adds], "other bits than the instruction set before: output");
        if (v > 0 && own->have[0]) check_rounding(&t, &kept[0], &own->kept[0][0]);
        trial_close(&t);
        checked++;
        for (int adds = 0; adds < 2; adds++)
            if (own->have[v])
                bits_free(&kept[adds]);
            else
                own->kept[v][adds] = kept[adds];
        own->have[v] = true;
    }
    return checked;
}

static void check_example(const tm_op *op, const tm_example *example, int number, bool to_bf16)
{
    static shelf shelves[SUITES];
    suite        suites[SUITES];
    formats      variants[MAX_VARIANTS];
    tm_judge     j;
    tm_judge_open(&j, op, example, number, to_bf16);
    /* Quick: mixes of formats are tried on the small examples of the op. */
    double flops = op->cost(&j.call).flops;
    bool   long_one = flops > 3e7, large = j.values > 2e4 || flops > 2e6;
    int    usual, n_suites = list_suites(suites), mixes = test_is_full() || !large ? 4 : 0;
    int    n = list_variants(op, example, number, mixes, variants, &usual);
    for (int s = 0; s < n_suites; s++) {
        const shelf     *others = suites[s].agrees >= 0 ? &shelves[suites[s].agrees] : NULL;
        const tm_kernel *kernel;
        if (long_one && !suites[s].fast && n_suites > 2) continue;
        int most = !to_bf16 ? 1 : suites[s].families ? n : usual; /* the reference refuses nothing, not even nonsense */
        for (int i = 0; (kernel = kernel_of(&suites[s], tm_op_id_of(op), i)); i++)
            if (check_kernel(&j, &suites[s], kernel, variants, most, usual, &shelves[s], others) == 0 &&
                (to_bf16 || !(suites[s].pairs || kernel->two_rows))) /* those take bfloat16 only */
                fail_msg("%s takes no format of example %d", kernel->name, number);
    }
    for (int s = 0; s < SUITES; s++)
        for (int v = 0; v < MAX_VARIANTS; v++) {
            bits_free(&shelves[s].kept[v][0]), bits_free(&shelves[s].kept[v][1]);
            shelves[s].have[v] = false;
        }
    tm_judge_close(&j);
}

/* Do its operands fit its attributes? */
static bool fits(const tm_op *op, const tm_example *example)
{
    _Alignas(16) char attr[TM_MAX_ATTR];
    tm_shape          out[TM_MAX_OUT];
    memcpy(attr, example->attr, sizeof attr);
    memcpy(out, example->out, sizeof out);
    return !op->infer(example->in, attr, out);
}

/* Each whole number among the attributes 1, one less and one more, where the operands fit and the op does not count on
 * what other ops made of the same attributes. */
static void check_attributes(const tm_op *op, const tm_example *example, int number)
{
    static const tm_op *const ops[] = {
        &tm_op_attention,     &tm_op_rope,           &tm_op_rope_grad,
        &tm_op_head_norm,     &tm_op_modulate,       &tm_op_balance_loss,
        &tm_op_modulate_grad, &tm_op_head_norm_grad, &tm_op_linear_cross_entropy,
    };
    bool any = false;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) any = any || op == ops[i];
    for (size_t at = 0; any && at + sizeof(int64_t) <= example->attr_bytes; at += sizeof(int64_t)) {
        int64_t value;
        memcpy(&value, example->attr + at, sizeof value);
        const int64_t others[] = { 1, value - 1, value + 1 };
        for (size_t i = 0; value >= 0 && value <= INT32_MAX && i < sizeof others / sizeof others[0]; i++) {
            tm_example other = *example;
            memcpy(other.attr + at, &others[i], sizeof value);
            if (others[i] < 0 || others[i] == value || !fits(op, &other)) continue;
            tm_call asked = call_of(op, &other, &(formats){ .strided = false });
            if (op->cost(&asked).flops < 1e5) check_example(op, &other, number, true);
        }
    }
}

/* Quick: the first examples and a part of the others, of products in low precision and of attention a part of all. */
static bool tried(const tm_op *op, int k)
{
    bool attention = op == &tm_op_attention || op == &tm_op_attention_grad;
    bool many = op == &tm_op_quantize || op == &tm_op_quantize_both || op == &tm_op_scaled_mm;
    return test_is_full() || (!many && !attention && k < 10) || k % (attention ? 4 : 3) == 0;
}

static void kernels_compute_the_op(void **state)
{
    const tm_op *op = *state;
    tm_example   example;
    mallopt(M_MMAP_THRESHOLD, 1 << 30), mallopt(M_TRIM_THRESHOLD, 1 << 30); /* the same pages, call after call */
    for (int k = 0; op->example(k, &example); k++) {
        /* Two codes in a byte have no places here: tests/gpu/test_gpu_quantize.c and tests/op/test_quantize.c. */
        if (example.out_dtype[0] == TM_E2M1 || !tried(op, k)) continue;
        if (!tm_example_is_for_kernels(&example)) {
            if (test_is_full() || k < 4 || k % 2) check_example(op, &example, k, false); /* float32 numbers */
            check_attributes(op, &example, k + 3);
        }
        check_example(op, &example, k, true); /* numbers that fit into every format */
    }
}

/* ---- no silent fall back ---- */

static void expect_fast(const tm_op *op, const tm_example *example, int number, const tm_device *device)
{
    const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    tm_chooser                chooser = tm_device_chooser(device);
    for (int v = 0; v < (op->strided_in | op->strided_out ? 6 : 3); v++) {
        formats f = planned(op, example, precisions[v % 3]);
        f.strided = v >= 3;
        tm_call          call = call_of(op, example, &f);
        tm_text          refusals = { 0 };
        const tm_kernel *kernel = chooser.choose(chooser.context, &call, &refusals);
        bool             fast = kernel && kernel != tm_reference_kernel(tm_op_id_of(op), true);
        if (!fast && !op->no_fast_kernel)
            fail_msg("%s, example %d, %s: no fast kernel on %s\n%s", op->name, number, precisions[v % 3]->name,
                     tm_device_describe(device)->text, refusals.data ? refusals.data : "no kernel at all");
        if (fast && op->no_fast_kernel)
            fail_msg("%s: .no_fast_kernel says '%s', but there is %s", op->name, op->no_fast_kernel, kernel->name);
        tm_text_fini(&refusals);
    }
}

static void no_op_falls_back(void **state)
{
    (void)state;
    suite suites[SUITES];
    for (int s = 1, n = list_suites(suites); s < n; s++) {
        tm_device *device;
        assert_ok(tm_device_open("cpu", 2, &device, err));
        assert_ok(tm_device_limit_isa(device, suites[s].name, err));
        for (int id = 0; id < TM_OP_COUNT; id++) {
            const tm_op *op = tm_op_get((tm_op_id)id);
            tm_example   example;
            for (int k = 0; op->example(k, &example); k++) expect_fast(op, &example, k, device);
        }
        tm_device_close(device);
    }
}

/* A kernel that no op's example runs would go unjudged. */
static void every_row_belongs_to_its_suite(void **state)
{
    (void)state;
    suite suites[SUITES];
    for (int s = 1, n = list_suites(suites); s < n; s++)
        for (const tm_kernel *const *family = suites[s].families; *family; family++)
            for (const tm_kernel *kernel = *family; kernel->name; kernel++) {
                const char *op = tm_op_get(kernel->op)->name;
                assert_memory_equal(kernel->name, op, strlen(op));
                assert_int_equal(kernel->name[strlen(op)], '/');
                assert_non_null(strstr(kernel->name, suites[s].name));
            }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_op_falls_back),
    cmocka_unit_test(every_row_belongs_to_its_suite),
#define TM_OP(name) { #name, kernels_compute_the_op, NULL, NULL, (void *)(uintptr_t)&tm_op_##name },
#include "op/ops.def"
#undef TM_OP
};
TEST_TABLE(tests)
