/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/defaults.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static const char marker[] = "TRAINMARK_GPU_VARIABLES";

static const tm_gpu_default rows[] = {
    /* Scratch memory of a kernel is kept instead of being given back and taken again. */
    { "HSA_NO_SCRATCH_RECLAIM", "1", TM_GPU_HIP },
    /* Helper threads of ROCr inherit the processors of this process: a rank keeps to its own. */
    { "HSA_OVERRIDE_CPU_AFFINITY_DEBUG", "0", TM_GPU_HIP },
    /* MSCCL could leave wrong data in past releases of RCCL. */
    { "RCCL_MSCCL_ENABLE", "0", TM_GPU_HIP },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

const tm_gpu_default *tm_gpu_defaults(size_t *n)
{
    *n = ROWS;
    return rows;
}

bool tm_gpu_default_is_ours(const char *name)
{
    size_t n = strlen(name);
    for (const char *at = getenv(marker); at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
    return false;
}

static void write_marker(const tm_text *names)
{
    if (names->length)
        setenv(marker, names->data, 1);
    else
        unsetenv(marker);
}

void tm_gpu_defaults_set(tm_gpu_maker maker)
{
    tm_text ours = { 0 };
    for (int i = 0; i < ROWS; i++) {
        bool already = tm_gpu_default_is_ours(rows[i].name);
        if (!already && (rows[i].maker != maker || getenv(rows[i].name))) continue;
        if (!already) setenv(rows[i].name, rows[i].value, 0);
        tm_text_printf(&ours, "%s%s", ours.length ? "," : "", rows[i].name);
    }
    write_marker(&ours);
    tm_text_fini(&ours);
}

void tm_gpu_defaults_unset(tm_gpu_maker maker)
{
    tm_text ours = { 0 };
    for (int i = 0; i < ROWS; i++) {
        if (!tm_gpu_default_is_ours(rows[i].name)) continue;
        if (rows[i].maker == maker)
            unsetenv(rows[i].name);
        else
            tm_text_printf(&ours, "%s%s", ours.length ? "," : "", rows[i].name);
    }
    write_marker(&ours);
    tm_text_fini(&ours);
}
