/* SPDX-License-Identifier: Apache-2.0 */
/* What a text says of its kernels: descriptors (.amdhsa_...) and metadata; and that both agree. */
#include "machine/gcn.h"

#include <stdio.h>
#include <stdlib.h>

kernel *gcn_kernel_named(gcn_module *m, const char *name)
{
    for (int i = 0; i < m->n_kernels; i++)
        if (strcmp(m->kernels[i].name, name) == 0) return &m->kernels[i];
    return NULL;
}

/* What a descriptor must say for this interpreter: other values are ways to start a kernel that it does not have.
 * Scratch takes no scalar register (LLVM's AMDGPUUsage, architected flat scratch of gfx942): whether there is any,
 * metadata says. */
static const struct {
    const char *name;
    int         value;
} fixed[] = {
    { "user_sgpr_count", 2 },
    { "user_sgpr_kernarg_segment_ptr", 1 },
    { "user_sgpr_dispatch_ptr", 0 },
    { "user_sgpr_queue_ptr", 0 },
    { "user_sgpr_dispatch_id", 0 },
    { "user_sgpr_kernarg_preload_length", 0 },
    { "system_sgpr_workgroup_info", 0 },
    { "uses_dynamic_stack", 0 },
    { "float_round_mode_32", 0 },
    { "float_round_mode_16_64", 0 },
    { "float_denorm_mode_32", 3 },
    { "float_denorm_mode_16_64", 3 },
    { "tg_split", 0 },
};

bool gcn_descriptor_line(gcn_module *m, kernel *k, const char *line, int number)
{
    char name[64];
    int  value;
    k->described |= 1;
    if (sscanf(line, ".amdhsa_%63s %d", name, &value) != 2) return true; /* an expression of other lines */
    for (int d = 0; d < 3; d++) {
        char id[] = "system_sgpr_workgroup_id_x";
        id[sizeof id - 2] = (char)('x' + d);
        if (strcmp(name, id) == 0) k->group_ids[d] = value;
    }
    if (strcmp(name, "group_segment_fixed_size") == 0) k->told.shared_bytes = value;
    if (strcmp(name, "kernarg_size") == 0) k->descriptor_bytes = value;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (strcmp(name, fixed[i].name) == 0 && value != fixed[i].value)
            return gcn_refuse(m, "line %d: kernel %s: %s is not known but as %d", number, k->name, line,
                              fixed[i].value);
    return true;
}

/* Metadata is YAML: kernels are two spaces in, their members four, arguments six, their members eight. Kernels come in
 * the order of their descriptors; the size of a wave is the last of their members. */
static const struct {
    const char *name;
    size_t      at;
} numbers[] = {
    { ".agpr_count", offsetof(kernel, told.accumulators) },
    { ".vgpr_count", offsetof(kernel, told.registers) },
    { ".sgpr_count", offsetof(kernel, told.scalars) },
    { ".private_segment_fixed_size", offsetof(kernel, told.spilled_bytes) },
    { ".kernarg_segment_size", offsetof(kernel, argument_bytes) },
    { ".max_flat_workgroup_size", offsetof(kernel, most_threads) },
};

static void argument_member(kernel *k, const char *name, const char *value, bool first)
{
    if (first) {
        k->arguments = gcn_grow(k->arguments, k->n_arguments, &k->arguments_room, sizeof *k->arguments);
        k->arguments[k->n_arguments++] = (argument){ 0 };
    }
    argument *a = &k->arguments[k->n_arguments - 1];
    if (strcmp(name, ".offset") == 0) a->offset = atoi(value);
    if (strcmp(name, ".size") == 0) a->size = atoi(value);
    if (strcmp(name, ".value_kind") == 0) snprintf(a->kind, sizeof a->kind, "%.31s", value);
}

bool gcn_metadata_line(gcn_module *m, const char *line, int number)
{
    size_t depth = strspn(line, " ");
    bool   first = line[depth] == '-' && line[depth + 1] == ' ';
    char   name[64], value[80];
    depth += 2 * first;
    m->n_told += depth == 4 && first && line[depth] == '.';
    if (m->n_told > m->n_kernels) return gcn_refuse(m, "line %d: metadata of a kernel without a descriptor", number);
    if (!m->n_told || sscanf(line + depth, "%63[^:]: %79s", name, value) != 2) return true;
    kernel *k = &m->kernels[m->n_told - 1];
    if (depth == 8 && (first || k->n_arguments)) argument_member(k, name, value, first);
    if (depth != 4) return true;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0) *(int *)((char *)k + numbers[i].at) = atoi(value);
    if (strcmp(name, ".wavefront_size") == 0) k->described |= 2;
    if ((strcmp(name, ".name") == 0 && strcmp(value, k->name)) ||
        (strcmp(name, ".wavefront_size") == 0 && strcmp(value, "64")) ||
        (strcmp(name, ".group_segment_fixed_size") == 0 && atoi(value) != k->told.shared_bytes))
        return gcn_refuse(m, "line %d: kernel %s: its descriptor does not fit, or waves are not of 64: %s", number,
                          k->name, line);
    return true;
}

bool gcn_kernels_complete(gcn_module *m)
{
    for (int i = 0; i < m->n_kernels; i++) {
        kernel *k = &m->kernels[i];
        k->told.name = k->name;
        k->lds_shift = 3;
        k->global_shift = 1; /* a halfword: reach() */
        if (k->told.first < 0) return gcn_refuse(m, "kernel %s has no code", k->name);
        if (k->described != 3) return gcn_refuse(m, "kernel %s has no metadata", k->name);
        if (k->descriptor_bytes != k->argument_bytes)
            return gcn_refuse(m, "kernel %s: %d bytes of arguments in its descriptor, %d in its metadata", k->name,
                              k->descriptor_bytes, k->argument_bytes);
        for (int a = 0; a < k->n_arguments; a++)
            if (k->arguments[a].offset + k->arguments[a].size > k->argument_bytes)
                return gcn_refuse(m, "kernel %s: argument %d lies behind its %d bytes of arguments", k->name, a,
                                  k->argument_bytes);
        for (int at = k->told.first; at < k->told.end; at++) {
            const instruction *x = &m->code[at];
            bool               lds = x->row->kind == LDS_READ || x->row->kind == LDS_WRITE;
            while (lds && x->row->bytes && x->row->bytes >> k->lds_shift == 0) k->lds_shift--;
            if (x->row->bytes == 1) k->global_shift = 0;
            for (int o = 0; o < x->n; o++) {
                bool a = x->o[o].at >= ACCUMULATORS;
                int  end = x->o[o].at + x->o[o].count - (a ? ACCUMULATORS : 0);
                if (x->o[o].kind == VECTOR && end > (a ? k->told.accumulators : k->told.registers))
                    return gcn_refuse(m, "line %d: kernel %s does not have these registers: %s", x->line, k->name,
                                      x->text);
            }
        }
    }
    return true;
}
