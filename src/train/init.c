/* SPDX-License-Identifier: Apache-2.0 */
#include "train/init.h"

#include "base/random.h"
#include "graph/value.h"

#include <math.h>

enum { BLOCK = 4096 }; /* elements per task; a multiple of 4 */

/* Beyond the cut: further draws from streams of their own, by element. */
static double redrawn(const tm_piece *piece, uint64_t seed, uint64_t stream, int64_t i)
{
    for (uint64_t attempt = 1;; attempt++) {
        double value = piece->std * tm_random_normal(seed, stream + attempt * 0x9E3779B97F4A7C15u, (uint64_t)i);
        if (fabs(value) <= piece->cut) return value;
    }
}

static void fill_piece(void *data, const tm_tensor *tensor, const tm_piece *piece, uint64_t seed, int threads)
{
    int64_t  row = tm_shape_elements(tensor->shape) / tensor->shape.n[0];
    int64_t  first = piece->row * row, n = piece->rows * row, blocks = (n + BLOCK - 1) / BLOCK;
    uint64_t stream = tm_random_stream(piece->name);
    bool     random = piece->std > 0, cuts = piece->cut > 0;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t b = 0; b < blocks; b++) {
        float normal[4] = { 0 };
        for (int64_t i = b * BLOCK; i < n && i < (b + 1) * BLOCK; i++) {
            if (random && i % 4 == 0) tm_random_normal4(seed, stream, (uint64_t)i / 4, normal);
            double value = piece->std * (double)normal[i % 4];
            if (cuts && fabs(value) > piece->cut) value = redrawn(piece, seed, stream, i);
            tm_value_set(data, tensor->dtype, first + i, piece->mean + value);
        }
    }
}

void tm_init_fill(const tm_plan *plan, const tm_arenas *memory, uint64_t seed, int threads)
{
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_tensor *tensor = &plan->graph->tensors[i];
        void            *data = plan->places[i].program == -1 && plan->places[i].first == -1
                                    ? tm_plan_address(plan, memory, (tm_tensor_id)i)
                                    : NULL;
        if (tensor->role == TM_ROLE_PARAMETER)
            for (int p = 0; p < tensor->n_pieces; p++) fill_piece(data, tensor, &tensor->pieces[p], seed, threads);
        else if (tensor->role == TM_ROLE_CONSTANT)
            for (int64_t k = 0, n = tm_shape_elements(tensor->shape); k < n; k++)
                tm_value_set(data, tensor->dtype, k, tensor->fill(tensor->fill_context, k));
    }
}
