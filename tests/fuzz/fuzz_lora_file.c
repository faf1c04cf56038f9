/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes a stranger's file of LoRA of an image model: its modules have ranks and tensors inside the file, or it is
 * refused by its name. */
#include "base/file.h"
#include "base/log.h"
#include "hf/adapter.h"
#include "hf/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char lora_path[64];

static void remove_file(void)
{
    remove(lora_path);
}

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
    if (!*lora_path) {
        strcpy(lora_path, "/tmp/tm-fuzz-lora-XXXXXX.safetensors");
        int file = mkstemps(lora_path, (int)strlen(".safetensors"));
        if (file < 0 || close(file) != 0 || atexit(remove_file) != 0) abort();
    }
    FILE *file = fopen(lora_path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
    const tm_hf_form *form = tm_hf_form_named("FluxTransformer2DModel");
    tm_status         st = tm_hf_adapter_open(lora_path, NULL, form, &adapter, &err);
    if (st == TM_OK && (adapter.adapters.rank < 1 || adapter.adapters.n_modules < 1)) abort();
    for (size_t i = 0; st == TM_OK && i < adapter.adapters.n_modules; i++)
        if (adapter.adapters.modules[i].rank < 1 || !(adapter.adapters.modules[i].alpha >= 0)) abort();
    if (st == TM_OK) check_tensors(adapter.weights);
    if (st != TM_OK && (!strstr(err.text, "tm-fuzz-lora") || tm_status_exit_code(st) != 4)) abort();
    tm_hf_adapter_close(&adapter);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
static const char *const lora_words[] = { "\"transformer.transformer_blocks.0.attn.to_q.lora_A.weight\":",
                                          "\"transformer.transformer_blocks.0.attn.to_q.lora_B.weight\":",
                                          "\"lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight\":",
                                          "\"lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight\":",
                                          "\"lora_unet_single_blocks_0_linear1.lora_up.weight\":",
                                          "\"lora_unet_final_layer_adaLN_modulation_1.lora_up.weight\":",
                                          ".alpha",
                                          "\"lora_adapter_metadata\":\"{\\\"r\\\":2}\"",
                                          "\"dtype\":\"F4\"",
                                          "\"dtype\":\"BF16\"",
                                          "\"shape\":[2,2]",
                                          "\"shape\":[]",
                                          "\"data_offsets\":[0,16]" };
#define FUZZ_WORDS lora_words
#include "standalone.h"
#endif
