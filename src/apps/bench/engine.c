/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/engine.h"

#include "base/arena.h"
#include "base/version.h"
#include "device/cpu/gemm.h"
#include "graph/value.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- our kernel ------------------------------------------------------------------------------ */

static void run_own(tm_engine *engine, const tm_operands *o, int64_t turn)
{
    const tm_product *p = &o->product;
    tm_gemm           g = {
                  .m = p->m,
                  .n = p->n,
                  .k = p->k,
                  .a = { tm_operands_a(o, turn), tm_product_lda(p), p->trans_a, p->dtype },
                  .b = { tm_operands_b(o, turn), tm_product_ldb(p), p->trans_b, p->dtype },
                  .c = tm_operands_c(o, turn),
                  .ldc = p->n,
                  .c_dtype = p->c_dtype,
                  .threads = engine->threads,
                  .workspace = engine->context,
    };
    tm_device_gemm(engine->bench->device)->run(&g);
}

static const char *refuse_nothing(const tm_engine *engine, const tm_product *product)
{
    (void)engine;
    (void)product;
    return NULL;
}

tm_status tm_engine_own(tm_bench *bench, tm_engine *engine, tm_error *err)
{
    const tm_gemm_kernel *kernel = tm_device_gemm(bench->device);
    if (!kernel)
        return tm_fail(err, TM_UNSUPPORTED,
                       "device %s has no matrix product to measure (--device); wanted: cpu, cuda, hip",
                       tm_device_describe(bench->device)->name);
    *engine = (tm_engine){
        .name = "trainmark", .bench = bench, .threads = bench->threads, .refuse = refuse_nothing, .run = run_own
    };
    engine->context = tm_alloc(TM_GEMM_WORKSPACE_MAX);
    memset(engine->context, 0, TM_GEMM_WORKSPACE_MAX);
    snprintf(engine->version, sizeof engine->version, "%s", TM_VERSION);
    snprintf(engine->kernel, sizeof engine->kernel, "%s", kernel->isa);
    snprintf(engine->pool, sizeof engine->pool, "OpenMP");
    return TM_OK;
}

/* --- the reference --------------------------------------------------------------------------- */

static void run_reference(tm_engine *engine, const tm_operands *o, int64_t turn)
{
    const tm_product *p = &o->product;
    void             *c = tm_operands_c(o, turn);
#pragma omp parallel num_threads(engine->threads)
    {
        double *sums = tm_alloc((size_t)p->n * 2 * sizeof(double));
#pragma omp for schedule(static)
        for (int64_t i = 0; i < p->m; i++) {
            tm_product_row(o, turn, i, sums, sums + p->n);
            for (int64_t j = 0; j < p->n; j++) tm_value_set(c, p->c_dtype, i * p->n + j, sums[j]);
        }
        free(sums);
    }
}

void tm_engine_reference(tm_bench *bench, tm_engine *engine)
{
    *engine = (tm_engine){ .name = "reference",
                           .bench = bench,
                           .threads = bench->threads,
                           .slow = true,
                           .rate = 2e8 * bench->threads,
                           .refuse = refuse_nothing,
                           .run = run_reference };
    snprintf(engine->version, sizeof engine->version, "%s", TM_VERSION);
    snprintf(engine->kernel, sizeof engine->kernel, "float64, plain loops");
    snprintf(engine->pool, sizeof engine->pool, "OpenMP");
}

void tm_engine_close(tm_engine *engine)
{
    if (engine->close)
        engine->close(engine);
    else
        free(engine->context);
    /* The library stays loaded: thread pools do not survive dlclose. */
    engine->context = NULL;
}
