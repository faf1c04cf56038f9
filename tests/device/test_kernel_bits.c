/* SPDX-License-Identifier: Apache-2.0 */
/* The bits that every kernel makes of the examples of its op, as they were looked at and recorded, for every
 * instruction set of this processor: in the three regimes of formats, with rows apart where the op allows it, written
 * and added to. That they are right is what test_kernels.c shows, which takes minutes; here a kernel that computes
 * anything else is found in a second. tests/device/bits.txt has a digest for each set of kernels and op; those of each
 * call are printed where it differs. Sums in float64 count as float32, as exp and log are those of the system's
 * library. After a change that is meant: TM_RECORD=1 build/release/tests/device/test_kernel_bits; git diff
 * tests/device/bits.txt
 */
#include "../support/execute.h"
#include "../support/training.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/text.h"
#include "device/backend.h"
#include "device/cpu/simd/kernels.h"
#include "graph/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { SEED = 20261123, GAP = 3, SETS = 5 };
static const char *const       sets[SETS] = { "base", "avx2", "avx512", "avx512_bf16", "amx" };
static const tm_kernel *const *tables[SETS];   /* NULL: not of this processor */
static const double            long_one = 4e5; /* FLOPs of an example that says no more than the short ones */

/* An operand in the format of a call. */
typedef struct {
    tm_view view;
    int64_t count, columns, pitch; /* rows are `columns` long and `pitch` apart */
    size_t  bytes;
} operand;

static int64_t place(const operand *o, int64_t i)
{
    return i / o->columns * o->pitch + i % o->columns;
}

/* The values are numbers of bfloat16: all formats of training hold them. `from` absent: bytes of NaN. */
static void operand_open(operand *o, tm_view *to, const tm_view *from, int gap)
{
    const tm_shape shape = to->shape;
    *o = (operand){ .count = tm_shape_elements(shape) };
    o->columns = shape.rank > 0 && shape.n[shape.rank - 1] > 0 ? shape.n[shape.rank - 1] : 1;
    o->pitch = o->columns + gap;
    o->bytes = (size_t)(o->count / o->columns * o->pitch + 1) * 8;
    to->data = malloc(o->bytes);
    assert_non_null(to->data);
    memset(to->data, 0xff, o->bytes);
    to->ld = gap > 0 ? o->pitch : 0;
    for (int64_t i = 0; from && i < o->count; i++) {
        double value = tm_value_get(from->data, from->dtype, i);
        if (from->dtype == TM_F64) value = (double)tm_bf16_value(tm_bf16_round((float)value));
        tm_value_set(to->data, to->dtype, place(o, i), value);
    }
    o->view = *to;
}

/* What lies there, dense, whatever the gaps hold: every format up to float32 is one of its numbers. */
static uint64_t digest(const operand *o)
{
    float *dense = malloc((size_t)(o->count + 1) * sizeof *dense);
    assert_non_null(dense);
    for (int64_t i = 0; i < o->count; i++) {
        dense[i] = (float)tm_value_get(o->view.data, o->view.dtype, place(o, i));
        if (dense[i] != dense[i]) dense[i] = NAN; /* of one sign */
    }
    uint64_t hash = tm_hash(dense, (size_t)o->count * sizeof *dense);
    free(dense);
    return hash;
}

static bool adds_up(const tm_op *op, int k)
{
    bool sum = op->out_role[k] == TM_ROLE_SCALAR && op != &tm_op_clip && op != &tm_op_compare;
    return sum || op->out_role[k] == TM_ROLE_GRADIENT;
}

/* What a kernel finds on the stack of its threads, unless it has put something there, is NaN. */
static void __attribute__((noinline)) spoil_stacks(int threads)
{
#pragma omp parallel num_threads(threads)
    {
        volatile float below[1 << 15];
        for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) below[i] = NAN;
    }
}

/* One call in the formats of `asked`; `made`: the inputs. */
static void run_call(tm_text *out, const tm_kernel *kernel, const tm_op *op, const tm_call *asked, const tm_call *made,
                     bool strided, bool adds)
{
    tm_call call = *asked;
    operand in[TM_MAX_IN] = { 0 }, result[TM_MAX_OUT] = { 0 };
    call.threads = 2;
    for (int k = 0; k < op->n_in; k++)
        if (tm_view_present(&call.in[k]))
            operand_open(&in[k], &call.in[k], &made->in[k], strided && op->strided_in >> k & 1U ? GAP : 0);
    for (int k = 0; k < op->n_out; k++) {
        if (!tm_view_present(&call.out[k])) continue;
        operand_open(&result[k], &call.out[k], NULL, strided && op->strided_out >> k & 1U ? GAP : 0);
        if (!adds || !adds_up(op, k)) continue;
        call.accumulate |= 1U << k;
        for (int64_t i = 0; i < result[k].count; i++)
            tm_value_set(call.out[k].data, call.out[k].dtype, place(&result[k], i), (double)(i % 7) - 3);
    }
    const char *why = kernel->refuse ? kernel->refuse(&call) : NULL;
    if (!why && (!adds || call.accumulate)) {
        call.workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
        call.workspace = aligned_alloc(64, (call.workspace_bytes + 128) / 64 * 64);
        assert_non_null(call.workspace);
        memset(call.workspace, 0xff, call.workspace_bytes);
        if (kernel->prepare) assert_int_equal(kernel->prepare(NULL, &call, &call.state, NULL), TM_OK);
        spoil_stacks(call.threads);
        assert_int_equal(tm_kernel_run(kernel, &call, NULL), TM_OK);
        if (kernel->release) kernel->release(call.state);
        free(call.workspace);
        for (int k = 0; k < op->n_out; k++)
            if (tm_view_present(&call.out[k]) && op->out_role[k] != TM_ROLE_LOGITS)
                tm_text_printf(out, " %016llx", (unsigned long long)digest(&result[k]));
    }
    for (int k = 0; k < op->n_in; k++) free(in[k].view.data);
    for (int k = 0; k < op->n_out; k++) free(result[k].view.data);
}

static void run_example(tm_text *out, const tm_kernel *kernel, const tm_op *op, const tm_example *example,
                        const tm_call *made)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    const bool                       large = tm_example_is_for_kernels(example); /* for their blocks and threads */
    for (int p = 0; p < (large ? 2 : 3); p++) {
        tm_call asked = tm_example_call(op, example, precisions[p]);
        tm_text_printf(out, " %s:", precisions[p]->name);
        run_call(out, kernel, op, &asked, made, false, false);
        if (large) continue;
        run_call(out, kernel, op, &asked, made, false, true);
        if (op->strided_in | op->strided_out) run_call(out, kernel, op, &asked, made, true, false);
    }
}

/* All kernels of an op: a text for each set. `what`: which of its examples. */
static void run_all(tm_text out[SETS], const tm_op *op, const tm_example *example, const char *what, double most)
{
    tm_call made;
    tm_call_make(&made, op, example, SEED);
    bool too_long = op->cost(&made).flops > most;
    for (int s = 0; s < SETS && !too_long; s++) {
        const tm_kernel *const *family = tables[s];
        for (; family && *family; family++)
            for (const tm_kernel *kernel = *family; kernel->name; kernel++) {
                if (kernel->op != tm_op_id_of(op)) continue;
                tm_text_printf(&out[s], "%s, example %s:", kernel->name, what);
                run_example(&out[s], kernel, op, example, &made);
                tm_text_add(&out[s], "\n");
            }
    }
    tm_call_free(&made);
}

static void run_kernels(tm_text out[SETS], tm_op_id id)
{
    const tm_op *op = tm_op_get(id);
    tm_example   example;
    char         what[20];
    for (int k = 0; op->example(k, &example); k++) {
        snprintf(what, sizeof what, "%d", k);
        run_all(out, op, &example, what, long_one);
    }
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

/* The others count on attributes that other ops gave to what they read. */
static bool counts_on_itself(const tm_op *op)
{
    static const tm_op *const ops[] = { &tm_op_linear_cross_entropy,
                                        &tm_op_linear_cross_entropy_grad,
                                        &tm_op_linear_token_losses,
                                        &tm_op_linear_token_losses_grad,
                                        &tm_op_attention,
                                        &tm_op_attention_grad,
                                        &tm_op_rope,
                                        &tm_op_rope_grad,
                                        &tm_op_balance_loss,
                                        &tm_op_balance_loss_grad,
                                        &tm_op_head_norm,
                                        &tm_op_head_norm_grad,
                                        &tm_op_modulate,
                                        &tm_op_modulate_grad,
                                        &tm_op_preference_loss,
                                        &tm_op_preference_loss_grad };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (op == ops[i]) return true;
    return false;
}

/* The same with each whole number among the attributes 1, one less and one more, where its operands fit. */
static void run_attributes(tm_text out[SETS], tm_op_id id)
{
    const tm_op *op = tm_op_get(id);
    tm_example   example;
    char         what[60];
    for (int k = 0; counts_on_itself(op) && op->example(k, &example); k++)
        for (size_t at = 0; !tm_example_is_for_kernels(&example) && at + sizeof(int64_t) <= example.attr_bytes;
             at += sizeof(int64_t)) {
            int64_t value;
            memcpy(&value, example.attr + at, sizeof value);
            if (value < 0 || value > INT32_MAX) continue;
            const int64_t others[] = { 1, value - 1, value + 1 };
            for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
                tm_example other = example;
                memcpy(other.attr + at, &others[i], sizeof value);
                if (others[i] < 0 || others[i] == value || !fits(op, &other)) continue;
                snprintf(what, sizeof what, "%d, attribute at %zu is %lld", k, at, (long long)others[i]);
                run_all(out, op, &other, what, 1e5);
            }
        }
}

/* The record is kept for sets of instructions that this processor lacks. */
static bool recorded(const tm_text *all, const char *set, const char *op, char line[160])
{
    char begin[100];
    snprintf(begin, sizeof begin, "\n%s %s ", set, op);
    const char *at = all->data ? strstr(all->data, begin) : NULL;
    if (!at) return false;
    snprintf(line, 160, "%.*s\n", (int)strcspn(at + 1, "\n"), at + 1);
    return true;
}

static bool has_set(const tm_text *all, const char *set)
{
    char begin[40];
    snprintf(begin, sizeof begin, "\n%s ", set);
    return all->data && strstr(all->data, begin);
}

static int judge(FILE *file, const tm_text *before, int set, const char *op, const tm_text *text)
{
    char line[160], old[160] = "no line\n";
    bool there = recorded(before, sets[set], op, old), runs = tables[set] != NULL;
    snprintf(line, sizeof line, "%s %s %016llx\n", sets[set], op,
             (unsigned long long)tm_hash(text->data, text->length));
    if (file && (text->length > 0 || (!runs && there))) fputs(text->length > 0 ? line : old, file);
    if (file || !runs || !has_set(before, sets[set]) || (text->length == 0 && !there) || strcmp(line, old) == 0)
        return 0;
    print_message("%.8000s\nrecorded: %snow:      %s", text->data ? text->data : "", old, line);
    return 1;
}

static void are_as_recorded(const char *records, void (*run)(tm_text out[SETS], tm_op_id id))
{
    tm_text before = { 0 };
    char    part[4096];
    int     wrong = 0;
    for (int s = 0; s < SETS; s++) tables[s] = tm_cpu_kernel_tables(sets[s]);
    FILE *file = fopen(records, "r");
    tm_text_add(&before, "\n");
    for (size_t n; file && (n = fread(part, 1, sizeof part, file)) > 0;) tm_text_add_n(&before, part, n);
    if (file) fclose(file);
    file = getenv("TM_RECORD") ? fopen(records, "w") : NULL;
    for (int id = 0; id < TM_OP_COUNT; id++) {
        tm_text text[SETS] = { { 0 } };
        run(text, (tm_op_id)id);
        for (int s = 0; s < SETS; s++) {
            wrong += judge(file, &before, s, tm_op_get((tm_op_id)id)->name, &text[s]);
            tm_text_fini(&text[s]);
        }
    }
    if (file) fclose(file);
    tm_text_fini(&before);
    if (wrong) fail_msg("%d digests are otherwise than recorded in %s", wrong, records);
}

FULL_TEST(kernels_make_the_bits_that_are_recorded)
{
    are_as_recorded("tests/device/bits.txt", run_kernels);
}

TEST(with_other_attributes_too)
{
    are_as_recorded("tests/device/bits_attributes.txt", run_attributes);
}
