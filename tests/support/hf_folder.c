/* SPDX-License-Identifier: Apache-2.0 */
#include "support/hf_folder.h"

#include "support/test.h"

#include "base/file.h"
#include "graph/value.h"
#include "hf/layout.h"
#include "hf/numerics.h"
#include "support/full_config.h"
#include "support/golden.h"

double test_hf_value(const char *name, int64_t i)
{
    bool   norm = (strstr(name, "norm") || strstr(name, "ln_")) && strstr(name, "weight");
    double scale = strstr(name, "sinks") ? 1 : 0.25;
    return (norm ? 1 : 0) + scale * golden_unit(name, (uint32_t)i);
}

/* Their element i holds the value of element of[i]. */
static int64_t *order_of(const tm_hf_entry *entry, bool ours)
{
    int64_t *of = tm_alloc((size_t)entry->elements * sizeof *of);
    for (int64_t i = 0; i < entry->elements; i++) of[i] = i;
    for (size_t k = 0; ours && k < entry->n_slices; k++) {
        const tm_hf_slice *s = &entry->slices[k];
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t c = 0; c < s->columns; c++)
                of[s->start + tm_hf_row(s, r) * s->row_step + c * s->column_step] = r * s->columns + c;
    }
    return of;
}

static void write_entry(tm_safetensors_writer *writer, const tm_hf_entry *entry, int64_t elements, tm_dtype dtype,
                        const test_hf_options *o)
{
    int64_t    *of = order_of(entry, o->ours);
    const char *name = o->same_head && strcmp(entry->name, "lm_head.weight") == 0 ? "wte.weight" : entry->name;
    for (int64_t i = 0; i < elements; i++) {
        uint64_t bits = 0;
        tm_value_set(&bits, dtype, 0, test_hf_value(name, of[i]));
        tm_safetensors_write(writer, &bits, tm_dtype_bytes(dtype));
    }
    free(of);
}

static int64_t elements_of(const tm_tensor_heading *heading)
{
    int64_t n = 1;
    for (int i = 0; i < heading->rank; i++) n *= heading->n[i];
    return n;
}

/* Entries first, first + step, ... into one file. */
static void write_file(const char *path, const tm_hf_layout *layout, const tm_hf_form *form, size_t first, size_t step,
                       const test_hf_options *o, tm_text *map, const char *name)
{
    static const char *const metadata[][2] = { { "format", "pt" }, { NULL, NULL } };
    tm_tensor_heading       *headings = tm_alloc((layout->n + 1) * sizeof *headings);
    const tm_hf_entry      **entries = tm_alloc((layout->n + 1) * sizeof *entries);
    size_t                   n = 0;
    tm_dtype                 dtype = o->dtype == TM_F64 ? TM_F32 : o->dtype;
    tm_arena                *arena = tm_arena_create();
    for (size_t i = first; i < layout->n; i += step) {
        const tm_hf_entry *e = &layout->entries[i];
        if (o->leave_out && strcmp(o->leave_out, e->name) == 0) continue;
        tm_text written = { 0 };
        tm_hf_written_name(form, e->name, &written);
        headings[n] =
            (tm_tensor_heading){ .name = tm_arena_text(arena, written.data), .dtype = dtype, .rank = e->rank };
        tm_text_fini(&written);
        memcpy(headings[n].n, e->n, sizeof e->n);
        if (o->narrow && strcmp(o->narrow, e->name) == 0) headings[n].n[e->rank - 1]--;
        entries[n++] = e;
    }
    if (o->extra && first == 0)
        headings[n++] = (tm_tensor_heading){ .name = o->extra, .dtype = dtype, .rank = 1, .n = { 2 } };
    tm_safetensors_writer *writer;
    assert_ok(tm_safetensors_create(path, headings, n, metadata, &writer, err));
    for (size_t i = 0; i < n; i++) {
        if (entries[i])
            write_entry(writer, entries[i], elements_of(&headings[i]), dtype, o);
        else
            tm_safetensors_write(writer, "\0\0\0\0\0\0\0\0", 2 * tm_dtype_bytes(dtype));
        tm_text_printf(map, "%s\"%s\": \"%s\"", map->length ? ", " : "", headings[i].name, name);
    }
    assert_ok(tm_safetensors_finish(writer, err));
    free(entries);
    free(headings);
    tm_arena_destroy(arena);
}

void test_hf_write(const char *path, const char *config_json, const test_hf_options *options)
{
    static const test_hf_options plain = { 0 };
    const test_hf_options       *o = options ? options : &plain;
    tm_config                   *config = test_full_config();
    tm_hf_description            description;
    tm_model_shape               shape;
    tm_model                     model;
    tm_hf_layout                *layout;
    tm_text                      map = { 0 }, index = { 0 };
    char                         file[1024], name[64];
    test_file_write(path, "config.json", config_json);
    assert_ok(tm_hf_folder_shape(path, config, &description, &shape, err));
    tm_graph *graph = tm_graph_create(&tm_precision_f32);
    tm_model_declare(graph, &shape, 1, NULL, &model);
    assert_ok(tm_hf_layout_create(graph, &shape, description.form, &layout, err));
    size_t shards = o->shards > 1 ? (size_t)o->shards : 1;
    for (size_t s = 0; s < shards; s++) {
        if (shards == 1)
            snprintf(name, sizeof name, "model.safetensors");
        else
            snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", s + 1, shards);
        snprintf(file, sizeof file, "%s/%s", path, name);
        write_file(file, layout, description.form, s, shards, o, &map, name);
    }
    tm_text_printf(&index, "{\"metadata\": {}, \"weight_map\": {%s}}", map.data);
    if (shards > 1) test_file_write(path, "model.safetensors.index.json", index.data);
    tm_text_fini(&index);
    tm_text_fini(&map);
    tm_hf_layout_destroy(layout);
    tm_graph_destroy(graph);
    tm_config_destroy(config);
}

tm_status test_hf_open(const char *path, const char *device, const tm_precision *precision, int64_t seq,
                       test_hf_model *out, tm_error *err)
{
    *out = (test_hf_model){ .config = test_full_config() };
    TM_TRY(tm_hf_folder_shape(path, out->config, &out->description, &out->shape, err));
    TM_TRY(tm_hf_folder_weights(path, &out->weights, err));
    assert_non_null(out->weights);
    TM_TRY(tm_device_open(device, 2, &out->device, err));
    tm_step_options step = tm_numerics_step(&out->shape, precision, seq);
    TM_TRY(tm_trainer_open(out->device, &step, 1, &out->trainer, err));
    tm_hf_memory memory = tm_hf_trainer_memory(out->trainer, out->description.form);
    return tm_hf_load(&memory, out->weights, 2, &out->report, err);
}

void test_hf_close(test_hf_model *model)
{
    tm_trainer_close(model->trainer);
    tm_device_close(model->device);
    tm_safetensors_close(model->weights);
    tm_config_destroy(model->config);
}
