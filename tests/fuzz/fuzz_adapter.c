/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes adapter_config.json of a stranger's adapter folder: it is read, or refused with the file's name. */
#include "hf/adapter.h"
#include "base/file.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char name[64];

static void remove_folder(void)
{
    static const char *const files[] = { "adapter_config.json", "adapter_model.safetensors" };
    char                     path[128];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", name, files[i]);
        remove(path);
    }
    rmdir(name);
}

/* A folder with a file of one tensor, made once. */
static const char *folder(void)
{
    if (*name) return name;
    strcpy(name, "/tmp/tm-fuzz-adapter-XXXXXX");
    if (!mkdtemp(name) || atexit(remove_folder) != 0) abort();
    char path[128];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", name);
    static const char header[] =
        "{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":{\"dtype\":\"F32\","
        "\"shape\":[2,2],\"data_offsets\":[0,16]}}   ";
    char bytes[8 + sizeof header - 1 + 16] = { 0 };
    bytes[0] = (char)(sizeof header - 1);
    memcpy(bytes + 8, header, sizeof header - 1);
    if (tm_file_write(path, bytes, sizeof bytes, NULL) != TM_OK) abort();
    return name;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char          path[128];
    tm_hf_adapter adapter;
    tm_error      err = { 0 };
    tm_log_set_level(TM_LOG_ERROR);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder());
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
    tm_status st = tm_hf_adapter_open(folder(), NULL, NULL, &adapter, &err);
    if (st == TM_OK && (adapter.adapters.rank < 1 || adapter.adapters.n_modules != 1)) abort();
    if (st == TM_OK && adapter.adapters.modules[0].rank < 1) abort();
    if (st != TM_OK && (!strstr(err.text, "adapter_") || tm_status_exit_code(st) != 4)) abort();
    tm_hf_adapter_close(&adapter);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
static const char *const adapter_words[] = { "\"peft_type\":\"LORA\"",
                                             "\"r\":",
                                             "\"lora_alpha\":",
                                             "\"target_modules\":[",
                                             "\"bias\":\"none\"",
                                             "\"use_dora\":true",
                                             "\"rank_pattern\":{}",
                                             "\"lora_dropout\":",
                                             "\"use_rslora\":true",
                                             "null",
                                             "true",
                                             "-1",
                                             "1e400",
                                             "\"all-linear\"",
                                             "{",
                                             "}" };
#define FUZZ_WORDS adapter_words
#include "standalone.h"
#endif
