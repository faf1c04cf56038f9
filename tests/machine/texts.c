/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void argument(FILE *out, int offset, int size, const char *kind)
{
    fprintf(out, "      - .offset:         %d\n        .size:           %d\n        .value_kind:     %s\n", offset,
            size, kind);
}

static void metadata(FILE *out, const gcn_text *t, int bytes)
{
    int at = 0;
    fprintf(out, "\t.amdgpu_metadata\n---\namdhsa.kernels:\n  - .agpr_count:     64\n    .args:\n");
    for (int i = 0; i < t->pointers; i++, at += 8) argument(out, at, 8, "global_buffer");
    for (int i = 0; i < t->words; i++, at += 4) argument(out, at, 4, "by_value");
    at = (at + 7) / 8 * 8;
    for (int i = 0; t->hidden && i < 3; i++) {
        char kind[40];
        snprintf(kind, sizeof kind, "hidden_block_count_%c", 'x' + i);
        argument(out, at + 4 * i, 4, kind);
    }
    for (int i = 0; t->hidden && i < 3; i++) {
        char kind[40];
        snprintf(kind, sizeof kind, "hidden_group_size_%c", 'x' + i);
        argument(out, at + 12 + 2 * i, 2, kind);
    }
    fprintf(out,
            "    .group_segment_fixed_size: %d\n    .kernarg_segment_size: %d\n    .max_flat_workgroup_size: 1024\n",
            t->lds, bytes);
    fprintf(out, "    .name:           k\n    .private_segment_fixed_size: 0\n    .sgpr_count:     100\n    "
                 ".vgpr_count:     64\n");
    fprintf(out, "%s\n\t.end_amdgpu_metadata\n", t->more_metadata ? t->more_metadata : "    .wavefront_size: 64");
}

char *gcn_text_of(const gcn_text *t)
{
    char  *text = NULL;
    size_t n = 0;
    FILE  *out = open_memstream(&text, &n);
    int    bytes = (t->pointers * 8 + t->words * 4 + 7) / 8 * 8 + (t->hidden ? 24 : 0);
    fprintf(out, "\t.amdgcn_target \"amdgcn-amd-amdhsa--%s\"\n\t.text\nk:\n%s\n", t->arch ? t->arch : "gfx942",
            t->body);
    fprintf(out, "\t.section\t.rodata,\"a\",@progbits\n\t.amdhsa_kernel k\n\t\t.amdhsa_group_segment_fixed_size %d\n",
            t->lds);
    fprintf(out, "\t\t.amdhsa_kernarg_size %d\n\t\t.amdhsa_system_sgpr_workgroup_id_x 1\n\t.end_amdhsa_kernel\n",
            bytes + t->extra_bytes);
    metadata(out, t, bytes);
    fclose(out);
    return text;
}

static size_t place(machine_memory *memory, const gcn_text *t, const gcn_trial *trial, uint64_t *address,
                    unsigned char *arguments)
{
    for (int i = 0; i < t->pointers; i++) {
        address[i] = machine_alloc(memory, trial->count[i] ? trial->count[i] * 4 : 4);
        if (trial->buffers[i])
            memcpy(machine_at(memory, address[i], trial->count[i] * 4), trial->buffers[i], trial->count[i] * 4);
        memcpy(arguments + 8 * i, &address[i], 8);
    }
    memcpy(arguments + 8 * t->pointers, trial->arguments, (size_t)t->words * 4);
    return (size_t)(8 * t->pointers + 4 * t->words);
}

const char *gcn_try(const gcn_text *t, gcn_trial *trial)
{
    static char     error[MACHINE_ERROR_ROOM];
    char           *text = gcn_text_of(t);
    machine_module *module = machine_load_gcn(text, error);
    free(text);
    if (!module) return error;
    machine_memory *memory = machine_memory_new();
    unsigned char   arguments[64];
    uint64_t        address[3];
    size_t          bytes = place(memory, t, trial, address, arguments);
    machine_launch  launch = { .kernel = "k",
                               .blocks = { trial->blocks ? trial->blocks : 1, 1, 1 },
                               .threads = { trial->threads ? trial->threads : 64, 1, 1 },
                               .arguments = arguments };
    launch.argument_bytes = trial->argument_bytes ? trial->argument_bytes : bytes;
    machine_order order = { .eager = trial->order == 1,
                            .waves = trial->order == 2   ? 1
                                     : trial->order == 3 ? 5
                                                         : 0,
                            .skip = -1 };
    machine_run(module, memory, &launch, &order, &trial->counts, error);
    for (int i = 0; i < t->pointers; i++)
        if (trial->buffers[i])
            memcpy(trial->buffers[i], machine_at(memory, address[i], trial->count[i] * 4), trial->count[i] * 4);
    machine_memory_free(memory);
    machine_unload(module);
    return error;
}
