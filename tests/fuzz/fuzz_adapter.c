/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes adapter_config.json of a stranger's adapter folder: it is read, or refused with the file's name. */
#include "fuzz.h"

#include "hf/adapter.h"
#include "base/log.h"

/* A file of one tensor. */
static const char safetensors[] = "\x80\0\0\0\0\0\0\0"
                                  "{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":"
                                  "{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}   "
                                  "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_hf_adapter adapter;
    tm_error      err = { 0 };
    tm_log_set_level(TM_LOG_ERROR);
    fuzz_file("adapter_model.safetensors", safetensors, sizeof safetensors);
    fuzz_file("adapter_config.json", data, size);
    tm_status st = tm_hf_adapter_open(fuzz_folder(), NULL, NULL, &adapter, &err);
    if (st == TM_OK && (adapter.adapters.rank < 1 || adapter.adapters.n_modules != 1)) abort();
    if (st == TM_OK && adapter.adapters.modules[0].rank < 1) abort();
    fuzz_told(st, &err, "adapter_");
    tm_hf_adapter_close(&adapter);
    return 0;
}
