/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes a stranger's file of LoRA of an image model: its modules have ranks and tensors inside the file, or it is
 * refused by its name. */
#include "fuzz.h"

#include "base/log.h"
#include "hf/adapter.h"
#include "hf/convert.h"

static void check_tensors(const tm_safetensors *set)
{
    size_t                  n;
    const tm_stored_tensor *all = tm_safetensors_list(set, &n);
    for (size_t i = 0; i < n; i++) {
        int64_t elements = 1;
        for (int k = 0; k < all[i].rank; k++) elements *= all[i].n[k];
        if (strncmp(all[i].name, "base_model.model.", 17) != 0 || elements < 1) abort();
        double both = tm_stored_value(&all[i], 0) + tm_stored_value(&all[i], elements - 1);
        (void)both;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_hf_adapter adapter;
    tm_error      err = { 0 };
    tm_log_set_level(TM_LOG_ERROR);
    const tm_hf_form *form = tm_hf_form_named("FluxTransformer2DModel");
    tm_status         st = tm_hf_adapter_open(fuzz_file("x.safetensors", data, size), NULL, form, &adapter, &err);
    if (st == TM_OK && (adapter.adapters.rank < 1 || adapter.adapters.n_modules < 1)) abort();
    for (size_t i = 0; st == TM_OK && i < adapter.adapters.n_modules; i++)
        if (adapter.adapters.modules[i].rank < 1 || !(adapter.adapters.modules[i].alpha >= 0)) abort();
    if (st == TM_OK) check_tensors(adapter.weights);
    fuzz_told(st, &err, "x.safetensors");
    tm_hf_adapter_close(&adapter);
    return 0;
}
