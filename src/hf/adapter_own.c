/* SPDX-License-Identifier: Apache-2.0 */
/* hf/adapter_own.c - weights of the model itself in the file of an adapter: PEFT saves embeddings and the output layer
 * with an adapter of them ("auto"), which is what the model has, once more. */
#include "hf/adapter.h"

#include "base/text.h"
#include "hf/convert.h"
#include "hf/layout.h"

#include <string.h>

static bool equal_values(const tm_stored_tensor *a, const tm_stored_tensor *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = tm_stored_value(a, i), y = tm_stored_value(b, i);
        if (x < y || x > y) return false;
    }
    return true;
}

tm_status tm_hf_adapter_check_own(const tm_stored_tensor *own, const tm_safetensors *model, const tm_hf_form *form,
                                  tm_error *err)
{
    static const char       prefix[] = "base_model.model.", layer[] = ".base_layer";
    tm_text                 name = { 0 };
    const char             *rest = own->name + sizeof prefix - 1, *within;
    const tm_stored_tensor *theirs = NULL;
    int64_t                 n = 1;
    if (model && strncmp(own->name, prefix, sizeof prefix - 1) == 0) {
        within = strstr(rest, layer);
        tm_text_printf(&name, "%.*s%s", within ? (int)(within - rest) : (int)strlen(rest), rest,
                       within ? within + sizeof layer - 1 : "");
        theirs = tm_hf_find(model, form, name.data);
        if (!theirs && form->tied_head && strcmp(name.data, form->tied_head) == 0)
            theirs = tm_hf_find(model, form, form->tied_to);
        tm_text_fini(&name);
    }
    bool same =
        theirs && theirs->rank == own->rank && tm_dtype_floating(own->dtype) && tm_dtype_floating(theirs->dtype);
    for (int i = 0; same && i < own->rank; i++) {
        same = own->n[i] == theirs->n[i];
        n *= own->n[i];
    }
    if (same && equal_values(own, theirs, n)) return TM_OK;
    bool layered = strstr(own->name, layer) != NULL;
    if (!theirs && !layered)
        return tm_fail(err, TM_FORMAT,
                       "'%s': '%s' is not a tensor of a LoRA adapter, wanted base_model.model.MODULE.lora_A.weight, "
                       ".lora_B.weight or .lora_magnitude_vector",
                       own->file, own->name);
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%s' holds '%s', a weight of the model itself%s, and adapters are read beside the model's own "
                   "weights only; save with save_embedding_layers=False",
                   own->file, own->name, theirs ? ", with other values" : "");
}
