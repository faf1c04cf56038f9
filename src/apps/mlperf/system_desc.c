/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/system_desc.h"

#include "apps/mlperf/python.h"

#include <stdlib.h>
#include <string.h>

static const char *const required[] = {
    "submitter",
    "division",
    "status",
    "system_name",
    "number_of_nodes",
    "host_processors_per_node",
    "host_processor_model_name",
    "host_processor_core_count",
    "host_processor_vcpu_count",
    "host_processor_frequency",
    "host_processor_caches",
    "host_processor_interconnect",
    "host_memory_capacity",
    "host_storage_type",
    "host_storage_capacity",
    "host_networking",
    "host_networking_topology",
    "host_memory_configuration",
    "accelerators_per_node",
    "accelerator_model_name",
    "accelerator_host_interconnect",
    "accelerator_frequency",
    "accelerator_on-chip_memories",
    "accelerator_memory_configuration",
    "accelerator_memory_capacity",
    "accelerator_interconnect",
    "accelerator_interconnect_topology",
    "cooling",
    "hw_notes",
    "framework",
    "other_software_stack",
    "operating_system",
    "sw_notes",
};
static const char *const statuses[] = {
    "Available on-premise",
    "Available cloud",
    "Research, Development, or Internal (RDI)",
    "Preview",
};
static const char *const counts[] = { "number_of_nodes", "host_processors_per_node", "accelerators_per_node" };

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static void check_members(tm_system_desc *desc, tm_arena *arena)
{
    for (size_t i = 0; i < COUNT(required); i++)
        if (!tm_json_member(desc->object, required[i]))
            tm_notes_add(&desc->errors, arena, "systems/%s.json: required member '%s' is missing", desc->name,
                         required[i]);
    const tm_json_value *status = tm_json_member(desc->object, "status");
    bool                 known = !status; /* missing is named above */
    for (size_t i = 0; i < COUNT(statuses); i++) known = known || tm_json_is_text(status, statuses[i]);
    if (!known)
        tm_notes_add(&desc->errors, arena, "systems/%s.json: status is none of '%s', '%s', '%s', '%s'", desc->name,
                     statuses[0], statuses[1], statuses[2], statuses[3]);
    for (size_t i = 0; i < COUNT(counts); i++) {
        const tm_json_value *value = tm_json_member(desc->object, counts[i]);
        if (value && !tm_python_int(value, arena))
            tm_notes_add(&desc->errors, arena, "systems/%s.json: '%s' does not read as an integer", desc->name,
                         counts[i]);
    }
    for (const tm_json_value *v = desc->object->first; v; v = v->next)
        if (v->kind != TM_JSON_TEXT)
            tm_notes_add(&desc->warnings, arena, "systems/%s.json: '%.100s' is not text", desc->name, v->name);
}

tm_system_desc tm_system_desc_check(const char *name, const char *bytes, size_t n, tm_arena *arena)
{
    tm_system_desc       desc = { .name = name };
    const char          *problem;
    size_t               where;
    const tm_json_value *value = tm_json_parse(arena, bytes, n, &problem, &where);
    if (!value) {
        tm_notes_add(&desc.errors, arena, "systems/%s.json is not JSON: byte %zu: %s", name, where, problem);
    } else if (value->kind != TM_JSON_OBJECT) {
        tm_notes_add(&desc.errors, arena, "systems/%s.json holds no object", name);
    } else {
        desc.object = value;
        desc.closed = tm_json_is_text(tm_json_member(value, "division"), "closed");
        check_members(&desc, arena);
    }
    return desc;
}

const char *tm_system_desc_text(const tm_system_desc *desc, const char *member)
{
    const tm_json_value *value = tm_json_member(desc->object, member);
    return value && value->kind == TM_JSON_TEXT ? value->text : "";
}

long long tm_system_desc_product(const tm_system_desc *desc, const char *a, const char *b, tm_arena *arena)
{
    const tm_json_value *x = tm_json_member(desc->object, a), *y = tm_json_member(desc->object, b);
    const char          *digits[2] = { x ? tm_python_int(x, arena) : NULL, y ? tm_python_int(y, arena) : NULL };
    long long            product = 1;
    for (int i = 0; i < 2; i++) {
        if (!digits[i] || strlen(digits[i]) > 9 || digits[i][0] == '-') return -1;
        product *= strtoll(digits[i], NULL, 10);
    }
    return product <= 1000000000 ? product : -1;
}
