/* SPDX-License-Identifier: Apache-2.0 */
/* What every kernel says before it runs, as it was looked at and recorded: what it refuses and why, and its scratch
 * memory, for all examples of its op, every operand in every format, rows apart, several threads, results added to.
 * tests/device/tables.txt has a digest for each set of kernels and op; what it is of is printed where it differs. What
 * is refused does not depend on the vectors of a processor: sets of wider ones are compared with the base. Scratch
 * memory of a product is at most what was said to be the most. Nothing runs here, so every set can be asked on every
 * machine. After a change that is meant: TM_RECORD=1
 * build/release/tests/device/test_tables; git diff tests/device/tables.txt
 */
#include "base/hash.h"
#include "base/text.h"
#include "device/host/host.h"
#include "device/cpu/copy.h"
#include "device/cpu/simd/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#if defined(__x86_64__)

static const char *const records = "tests/device/tables.txt";
enum { TABLES = 6, BASE = 1, WIDEST = 3, MOST_FAMILIES = 64 };

typedef struct {
    const char      *name;
    const tm_kernel *families[MOST_FAMILIES]; /* ends with NULL */
    tm_gemm_kernel   product;
    size_t (*product_most)(const tm_gemm *);
} table;

#define PRODUCT(isa) .product = { #isa, tm_gemm_workspace_##isa, NULL }, .product_most = tm_gemm_workspace_most_##isa

static const table tables[TABLES] = {
    { .name = "host",
      .families = { tm_cpu_copies, tm_host_collectives, tm_host_exchange, tm_host_messages, tm_host_ring, NULL } },
#define TM_CPU_TABLE(family) tm_cpu_##family##_base,
    { .name = "base",
      .families = {
#include "device/cpu/kernel_tables.def"
          NULL },
      PRODUCT(base) },
#undef TM_CPU_TABLE
#define TM_CPU_TABLE(family) tm_cpu_##family##_avx2,
    { .name = "avx2",
      .families = {
#include "device/cpu/kernel_tables.def"
          NULL },
      PRODUCT(avx2) },
#undef TM_CPU_TABLE
#define TM_CPU_TABLE(family) tm_cpu_##family##_avx512,
    { .name = "avx512",
      .families = {
#include "device/cpu/kernel_tables.def"
          NULL },
      PRODUCT(avx512) },
#undef TM_CPU_TABLE
#define TM_CPU_TABLE(family) tm_cpu_##family##_avx512_bf16,
    { .name = "avx512_bf16",
      .families = {
#include "device/cpu/product_tables.def"
          NULL },
      PRODUCT(avx512_bf16) },
#undef TM_CPU_TABLE
#define TM_CPU_TABLE(family) tm_cpu_##family##_amx,
    { .name = "amx",
      .families = {
#include "device/cpu/product_tables.def"
          NULL },
      PRODUCT(amx) },
#undef TM_CPU_TABLE
};

/* One question: the refusal, or the scratch memory for 1, 3 and 40 threads. */
static void ask(tm_text *out, const tm_kernel *kernel, const tm_call *asked, bool scratch)
{
    static const int threads[] = { 1, 3, 40 };
    const char      *why = kernel->refuse ? kernel->refuse(asked) : NULL;
    if (why) {
        tm_text_printf(out, " %s;", why);
        return;
    }
    for (int t = 0; scratch && kernel->workspace && t < 3; t++) {
        tm_call call = *asked;
        call.threads = threads[t];
        tm_text_printf(out, " %zu", kernel->workspace(&call));
    }
    tm_text_add(out, ";");
}

static tm_view *operand_of(tm_call *call, const tm_op *op, int k)
{
    return k < op->n_in ? &call->in[k] : &call->out[k - op->n_in];
}

/* Every operand in every other format of whole bytes, with rows apart where the op allows it. */
static void ask_others(tm_text *out, const tm_kernel *kernel, const tm_op *op, const tm_call *call, bool scratch)
{
    for (int k = 0; k < op->n_in + op->n_out; k++) {
        tm_call  other = *call;
        tm_view *view = operand_of(&other, op, k);
        if (!tm_view_present(view)) continue;
        for (int dtype = 0; dtype < TM_DTYPE_COUNT; dtype++) {
            if (tm_dtype_bits((tm_dtype)dtype) < 8 || dtype == TM_E4M3_BLOCKS) continue;
            view->dtype = (tm_dtype)dtype;
            tm_text_printf(out, "%d as %s:", k, tm_dtype_name((tm_dtype)dtype));
            ask(out, kernel, &other, scratch);
        }
        other = *call;
        bool apart = k < op->n_in ? op->strided_in >> k & 1U : op->strided_out >> (k - op->n_in) & 1U;
        if (apart && view->shape.rank > 0) {
            view->ld = view->shape.n[view->shape.rank - 1] + 3;
            tm_text_printf(out, "%d apart:", k);
            ask(out, kernel, &other, scratch);
        }
    }
}

static void ask_example(tm_text *out, const tm_kernel *kernel, const tm_op *op, const tm_example *example, bool scratch)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    for (size_t p = 0; p < sizeof precisions / sizeof precisions[0]; p++) {
        tm_call call = tm_example_call(op, example, precisions[p]);
        tm_text_printf(out, "%s:", precisions[p]->name);
        ask(out, kernel, &call, scratch);
        for (unsigned adds = 1; adds < 1U << op->n_out; adds <<= 1) {
            tm_call adding = call;
            adding.accumulate = adds;
            ask(out, kernel, &adding, scratch);
        }
        for (unsigned rounded = 1; kernel->rounds && rounded < 1U << op->n_in; rounded <<= 1) {
            tm_call narrow = call;
            narrow.rounded = rounded;
            ask(out, kernel, &narrow, scratch);
        }
        ask_others(out, kernel, op, &call, scratch);
        tm_text_add(out, "\n");
    }
}

static void ask_all(tm_text *out, const table *t, const tm_op *op, bool scratch)
{
    tm_example example;
    for (const tm_kernel *const *family = t->families; *family; family++)
        for (const tm_kernel *kernel = *family; kernel->name; kernel++) {
            if (kernel->op != tm_op_id_of(op)) continue;
            if (scratch) tm_text_printf(out, "%s, ", kernel->name);
            tm_text_printf(out, "rounds %u, two rows %d, prepares %d\n", kernel->rounds, kernel->two_rows,
                           kernel->prepare != NULL);
            for (int k = 0; op->example(k, &example); k++) {
                tm_text_printf(out, "example %d\n", k);
                ask_example(out, kernel, op, &example, scratch);
            }
        }
}

/* Scratch memory of products: around the limits at which they are cut up otherwise, and of models. */
static void ask_products(tm_text *out, const table *t)
{
    static const int64_t sides[] = {
        0, 1, 5, 16, 100, 223, 224, 288, 289, 448, 512, 513, 1024, 1025, 2048, 4097, 50304
    };
    enum { SIDES = sizeof sides / sizeof sides[0] };
    for (int64_t i = 0; t->product_most && i < SIDES * SIDES * SIDES; i++) {
        tm_gemm g = { .m = sides[i % SIDES], .n = sides[i / SIDES % SIDES], .k = sides[i / SIDES / SIDES] };
        tm_text_printf(out, "%lld %lld %lld:", (long long)g.m, (long long)g.n, (long long)g.k);
        for (int kind = 0; kind < 12; kind++) {
            g.a.dtype = kind & 1 ? TM_BF16 : TM_F32;
            g.b.dtype = kind & 1 && !(kind & 2) ? TM_BF16 : TM_F32;
            g.narrow_b = (kind & 3) == 3;
            g.c_dtype = kind & 1 ? TM_BF16 : TM_F32;
            g.accumulate = kind & 2;
            g.threads = kind < 4 ? 1 : kind < 8 ? 4 : 24;
            tm_text_printf(out, " %zu", t->product.workspace(&g));
            if (kind < 4) tm_text_printf(out, " of %zu", t->product_most(&g));
            assert_true(t->product.workspace(&g) <= t->product_most(&g));
        }
        tm_text_add(out, "\n");
    }
}

/* Vectors that are wider have no record: they say what the base says. */
static bool is_recorded(int t)
{
    return t <= BASE || t > WIDEST;
}

static void says_the_same(const table *t, const tm_op *op)
{
    tm_text is = { 0 }, base = { 0 };
    ask_all(&is, t, op, false);
    ask_all(&base, &tables[BASE], op, false);
    if (t->families[0] && (is.length != base.length || (is.length && strcmp(is.data, base.data) != 0)))
        fail_msg("%s of %s refuses otherwise than that of %s", op->name, t->name, tables[BASE].name);
    tm_text_fini(&is);
    tm_text_fini(&base);
}

/* The next line of the record, of a set that this build has. */
static char *next_line(FILE *file, char *line, int bytes)
{
    for (;;) {
        const table *t = tables;
        if (!fgets(line, bytes, file)) return NULL;
        while (strncmp(line, t->name, strlen(t->name)) != 0 || line[strlen(t->name)] != ' ') t++;
        if (t->families[0] && is_recorded((int)(t - tables))) return line;
    }
}

/* Compares with a line of the record, or writes it. */
static int line_of(FILE *file, bool record, const char *set, const char *what, const tm_text *text)
{
    char line[160], recorded[160] = "";
    snprintf(line, sizeof line, "%s %s %016llx\n", set, what, (unsigned long long)tm_hash(text->data, text->length));
    if (record) return fputs(line, file) < 0;
    if (next_line(file, recorded, sizeof recorded) && strcmp(recorded, line) == 0) return 0;
    print_message("%.20000s\nrecorded: %snow:      %s", text->data, recorded, line);
    return 1;
}

static void kernels_say_what_is_recorded(void **state)
{
    const bool record = getenv("TM_RECORD") != NULL;
    FILE      *file = fopen(records, record ? "w" : "r");
    int        wrong = 0;
    (void)state;
    assert_non_null(file);
    for (int t = 0; t < TABLES; t++) {
        for (int id = 0; id < TM_OP_COUNT; id++) {
            tm_text text = { 0 };
            if (!is_recorded(t))
                says_the_same(&tables[t], tm_op_get((tm_op_id)id));
            else
                ask_all(&text, &tables[t], tm_op_get((tm_op_id)id), true);
            if (text.length > 0) wrong += line_of(file, record, tables[t].name, tm_op_get((tm_op_id)id)->name, &text);
            tm_text_fini(&text);
        }
        tm_text text = { 0 };
        ask_products(&text, &tables[t]);
        if (text.length > 0 && is_recorded(t)) wrong += line_of(file, record, tables[t].name, "products", &text);
        tm_text_fini(&text);
    }
    char rest[160];
    assert_true(record || !next_line(file, rest, sizeof rest));
    fclose(file);
    if (wrong) fail_msg("%d digests are otherwise than recorded in %s", wrong, records);
}

#else

static void kernels_say_what_is_recorded(void **state)
{
    (void)state;
    skip(); /* the record is that of x86-64 */
}

#endif

static const struct CMUnitTest tests[] = { cmocka_unit_test(kernels_say_what_is_recorded) };

TEST_TABLE(tests)
