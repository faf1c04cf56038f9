/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "train/step/step.h"

#include <stdlib.h>

/* Formats that products with a quantized factor multiply in: bit 0 bfloat16, bit 1 float32. */
static unsigned formats_of(const tm_program *program, bool *quantized)
{
    unsigned formats = 0;
    for (size_t i = 0; i < program->count; i++) {
        const tm_instruction *x = &program->instructions[i];
        bool                  factor = false, wide = false;
        if (x->node->op == TM_OP_quantize)
            quantized[x->node->out[0]] = !((const tm_quantize_attr *)x->node->attr)->codes;
        if (x->node->op == TM_OP_quantize || !x->kernel) continue;
        for (int k = 0; k < 2 && x->call.op->n_in > 1; k++) {
            if (x->node->in[k] == TM_NONE) continue;
            factor |= quantized[x->node->in[k]];
            wide |= x->call.in[k].dtype != TM_BF16 && !(x->call.rounded & 1U << k);
        }
        if (factor) formats |= wide ? 2U : 1U;
    }
    return formats;
}

const char *tm_step_products(const tm_step *step)
{
    static const char *const words[] = { NULL, "bfloat16", "float32", "bfloat16 and float32" };
    bool                    *quantized = calloc(step->graph->n_tensors + 1, sizeof *quantized);
    unsigned                 formats = 0;
    TM_ASSERT(quantized);
    for (size_t p = 0; p < step->plan->n_programs; p++) formats |= formats_of(&step->plan->programs[p], quantized);
    free(quantized);
    return words[formats];
}

static void write_reasons(tm_text *out, const char *before, const tm_reasons *reasons)
{
    for (int i = 0; i < reasons->n; i++)
        tm_text_printf(out, "%s%s (%d)", i ? ", " : before, reasons->of[i].why, reasons->of[i].products);
}

void tm_step_codes(const tm_step *step, tm_text *out)
{
    const tm_codes *codes = &step->codes;
    if (codes->products + codes->emulated == 0) return;
    tm_text_printf(out, "%d of %d products multiply codes", codes->products, codes->products + codes->emulated);
    if (codes->own) tm_text_printf(out, ", %d by own kernels", codes->own);
    write_reasons(out, "; not by the library: ", &codes->no_library);
    write_reasons(out, "; no codes: ", &codes->no_codes);
}
