/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the files of users that are JSON: reference records and system descriptions. Records that are read have
 * statistics that make sense and judge every batch. */
#include "fuzz.h"

#include "apps/mlperf/reference.h"
#include "apps/mlperf/system_desc.h"

#include <math.h>

static void check(const tm_reference *reference)
{
    bool kept = false;
    for (size_t i = 0; i < reference->n; i++) {
        const tm_reference_record *r = &reference->records[i];
        TM_ASSERT(r->batch >= 1 && (i == 0 || r->batch > reference->records[i - 1].batch));
        TM_ASSERT(r->mean >= r->samples[0] * (1 - 1e-12) && r->mean <= r->samples[r->n - 1] * (1 + 1e-12));
        TM_ASSERT(r->deviation >= 0 && isfinite(r->deviation));
        TM_ASSERT(r->minimum >= 0 && r->minimum <= r->mean);
        TM_ASSERT(r->max_speedup >= 1);
        kept = kept || !r->pruned;
    }
    TM_ASSERT(kept);
    const int64_t batches[] = { 1, reference->records[0].batch + 1, reference->records[reference->n - 1].batch,
                                INT64_MAX };
    for (int i = 0; i < 8; i++) {
        tm_reference_record r;
        tm_reference_choice choice = tm_reference_choose(reference, batches[i / 2], i % 2, &r);
        TM_ASSERT(choice != TM_REFERENCE_NONE);
        if (choice != TM_REFERENCE_MISSING) TM_ASSERT(r.mean > 0 && r.minimum <= r.mean * (1 + 1e-12));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_arena           *arena = tm_arena_create();
    tm_error            err = { 0 };
    const tm_reference *reference;
    if (tm_reference_parse("x", (const char *)data, size, arena, &reference, &err) == TM_OK)
        check(reference);
    else
        TM_ASSERT(tm_status_exit_code(err.status) == 4 && *err.text);
    tm_system_desc desc = tm_system_desc_check("x", (const char *)data, size, arena);
    TM_ASSERT(desc.object || desc.errors.n > 0);
    tm_system_desc_product(&desc, "number_of_nodes", "accelerators_per_node", arena);
    tm_arena_destroy(arena);
    return 0;
}
