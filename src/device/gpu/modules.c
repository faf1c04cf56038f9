/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/modules.c - texts with definitions become modules of the GPU, each once, when a plan is loaded. */
#include "base/arena.h"
#include "base/log.h"
#include "device/gpu/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- definitions
 * ------------------------------------------------------------------------------------------------------ */

static void define(tm_gpu_defines *d, const char *name, const char *value)
{
    TM_ASSERT(d->n < TM_GPU_MOST_DEFINES);
    int n = snprintf(d->text[d->n++], sizeof d->text[0], "%s=%s", name, value);
    TM_ASSERT(n < (int)sizeof d->text[0]);
}

void tm_gpu_define(tm_gpu_defines *d, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    define(d, name, text);
}

void tm_gpu_define_format(tm_gpu_defines *d, const char *name, tm_dtype dtype)
{
    TM_ASSERT(dtype == TM_F32 || dtype == TM_BF16 || dtype == TM_F64);
    define(d, name, dtype == TM_F32 ? "f32" : dtype == TM_F64 ? "f64" : "bf16");
}

/* --- modules
 * ---------------------------------------------------------------------------------------------------------- */

static void add_lines(tm_text *out, const char *const *lines)
{
    for (; *lines; lines++) tm_text_printf(out, "%s\n", *lines);
}

/* `whole` has the text, and is released with tm_text_fini. */
static tm_gpu_source source_of(const tm_gpu_own *own, const tm_gpu_module *m, tm_text *whole)
{
    tm_gpu_source source = { .name = m->name, .arch = tm_gpu_facts_of(own->gpu)->arch };
    for (int i = 0; i < m->defines.n; i++) source.defines[i] = m->defines.text[i];
    add_lines(whole, tm_gpu_text_dialect);
    add_lines(whole, m->text);
    source.source = whole->data;
    return source;
}

static const void *judged_code(const tm_gpu_own *own, const tm_gpu_module *m, const char *kernel)
{
    if (!own->embedded) return NULL;
    tm_text       text = { 0 };
    tm_gpu_source source = source_of(own, m, &text);
    const void   *code = tm_gpu_embedded_find(own->embedded, &source, kernel);
    tm_text_fini(&text);
    return code;
}

/* A module of which some kernels were judged, and others not, is two: of judged code, and compiled here. */
static size_t module_of(tm_gpu_own *own, const char *name, const char *const *text, const tm_gpu_defines *defines,
                        const char *kernel)
{
    tm_gpu_module wanted = { .name = name, .text = text, .defines = *defines };
    wanted.judged = judged_code(own, &wanted, kernel);
    for (size_t i = 0; i < own->n_modules; i++) {
        const tm_gpu_module *m = &own->modules[i];
        if (m->text != text || m->judged != wanted.judged || m->defines.n != defines->n) continue;
        if (memcmp(m->defines.text, defines->text, (size_t)defines->n * sizeof defines->text[0]) == 0) return i;
    }
    if (own->n_modules == own->modules_room) {
        own->modules_room = own->modules_room ? 2 * own->modules_room : 16;
        own->modules = tm_realloc(own->modules, own->modules_room * sizeof *own->modules);
    }
    own->modules[own->n_modules] = wanted;
    return own->n_modules++;
}

static tm_gpu_noted *noted_of(const void *device, void **state)
{
    tm_gpu_noted *p = *state;
    if (!p) {
        *state = p = memset(tm_alloc(sizeof *p), 0, sizeof *p);
        p->own = ((const tm_device *)device)->own;
    }
    TM_ASSERT(p->n < TM_GPU_MOST_NOTED);
    return p;
}

void tm_gpu_note(const void *device, const char *name, const char *const *text, const tm_gpu_defines *defines,
                 const char *kernel, void **state)
{
    tm_gpu_noted *p = noted_of(device, state);
    p->all[p->n].module = module_of(p->own, name, text, defines, kernel);
    p->all[p->n++].name = kernel;
}

void tm_gpu_note_none(const void *device, void **state)
{
    noted_of(device, state)->n++;
}

void tm_gpu_forget(void *state)
{
    free(state);
}

tm_status tm_gpu_compiler_needed(tm_gpu_own *own, tm_error *err)
{
    return own->compiler ? TM_OK : tm_gpu_compiler_open(own->maker, &own->compiler, err);
}

static tm_status compile(tm_gpu_own *own, tm_gpu_module *m, tm_error *err)
{
    tm_text     text = { 0 };
    tm_gpu_code code;
    tm_error    why = { 0 };
    if (tm_gpu_compiler_needed(own, &why) != TM_OK)
        return tm_fail(err, why.status, "the kernels of '%s' have to be compiled here: %s", m->name, why.text);
    tm_gpu_source source = source_of(own, m, &text);
    tm_status     st = tm_gpu_compile(own->compiler, &source, &code, err);
    tm_text_fini(&text);
    if (st != TM_OK) return st;
    st = tm_gpu_module_load(own->gpu, code.code, &m->loaded, err);
    free(code.code);
    return st;
}

/* A driver that does not load one module of judged code is not asked for the next one. */
static tm_status load(tm_gpu_own *own, tm_gpu_module *m, tm_error *err)
{
    tm_error why = { 0 };
    if (m->judged && own->embedded && tm_gpu_module_load(own->gpu, m->judged, &m->loaded, &why) == TM_OK) return TM_OK;
    if (m->judged && own->embedded) {
        tm_warn("the judged kernels of '%s' are not loaded, these and further ones are compiled here: %s", m->name,
                why.text);
        tm_gpu_embedded_close(own->embedded);
        own->embedded = NULL;
    }
    m->judged = NULL;
    return compile(own, m, err);
}

void tm_gpu_describe(tm_device *device)
{
    const tm_gpu_own   *own = device->own;
    const tm_gpu_facts *f = tm_gpu_facts_of(own->gpu);
    tm_device_info     *info = &device->info;
    tm_text             kernels = { 0 }, tuned = { 0 };
    info->judged_modules = info->compiled_modules = 0;
    for (size_t i = 0; i < own->n_modules; i++)
        ++*(own->modules[i].judged ? &info->judged_modules : &info->compiled_modules);
    if (own->n_modules == 0)
        tm_text_add(&kernels, own->embedded ? "kernels of judged code" : "kernels compiled here, not judged");
    else if (info->judged_modules)
        tm_text_printf(&kernels, "kernels: %d modules of judged code", info->judged_modules);
    if (info->compiled_modules)
        tm_text_printf(&kernels, "%s%d compiled here by %.24s, not judged",
                       info->judged_modules ? ", " : "kernels: ", info->compiled_modules,
                       tm_gpu_compiler_name(own->compiler));
    if (own->blas) tm_gpu_blas_tuned(own->blas, &tuned);
    if (own->attends) tm_text_printf(&tuned, "; attention by %.24s", tm_gpu_dnn_name(own->dnn));
    snprintf(info->text, sizeof info->text, "%s: %.40s, %.12s; %s; products by %.24s%s", info->name, f->name, f->arch,
             kernels.data, own->blas ? tm_gpu_blas_name(own->blas) : "own kernels", tuned.data ? tuned.data : "");
    tm_text_fini(&kernels);
    tm_text_fini(&tuned);
}

tm_status tm_gpu_modules_load(tm_device *device, tm_error *err)
{
    tm_gpu_own *own = device->own;
    for (size_t i = 0; i < own->n_modules; i++)
        if (!own->modules[i].loaded) TM_TRY(load(own, &own->modules[i], err));
    tm_gpu_describe(device);
    return TM_OK;
}

tm_status tm_gpu_prepared(tm_device *device, tm_error *err)
{
    TM_TRY(tm_gpu_modules_load(device, err));
    return tm_gpu_ranks_prepared(device, err);
}

void tm_gpu_modules_close(tm_gpu_own *own)
{
    for (size_t i = 0; i < own->n_modules; i++) tm_gpu_module_unload(own->gpu, own->modules[i].loaded);
    free(own->modules);
}

/* --- launches
 * --------------------------------------------------------------------------------------------------------- */

static void pass_at(tm_gpu_arguments *a, const void *value, size_t bytes, size_t align)
{
    size_t at = (a->bytes + align - 1) / align * align;
    TM_ASSERT(at + bytes <= sizeof a->data);
    memset(a->data + a->bytes, 0, at - a->bytes);
    memcpy(a->data + at, value, bytes);
    a->bytes = at + bytes;
}

static void pass(tm_gpu_arguments *a, const void *value, size_t bytes)
{
    pass_at(a, value, bytes, bytes);
}

void tm_gpu_pass(tm_gpu_arguments *a, const void *address)
{
    pass(a, &address, sizeof address);
}

void tm_gpu_pass_int(tm_gpu_arguments *a, int value)
{
    pass(a, &value, sizeof value);
}

void tm_gpu_pass_i64(tm_gpu_arguments *a, int64_t value)
{
    pass(a, &value, sizeof value);
}

void tm_gpu_pass_float(tm_gpu_arguments *a, double value)
{
    float rounded = (float)value;
    pass(a, &rounded, sizeof rounded);
}

void tm_gpu_pass_double(tm_gpu_arguments *a, double value)
{
    pass(a, &value, sizeof value);
}

tm_status tm_gpu_pass_map(tm_gpu_arguments *a, const tm_call *call, const tm_view *view, int64_t sequence,
                          unsigned box_rows, tm_error *err)
{
    _Alignas(TM_GPU_MAP_ALIGN) unsigned char map[TM_GPU_MAP_BYTES];
    const tm_gpu_noted                      *p = call->state;
    tm_gpu_tensor                            tensor = { .at = view->data,
                                                        .columns = view->shape.n[1],
                                                        .rows = sequence,
                                                        .sequences = view->shape.n[0] / sequence,
                                                        .row_bytes = tm_view_ld(view) * 2,
                                                        .box_rows = box_rows };
    TM_TRY(tm_gpu_map(p->own->gpu, &tensor, map, err));
    pass_at(a, map, sizeof map, TM_GPU_MAP_ALIGN);
    return TM_OK;
}

tm_status tm_gpu_start(const tm_call *call, int kernel, int64_t x, int64_t y, int64_t z, int threads,
                       const tm_gpu_arguments *a, tm_error *err)
{
    tm_gpu_noted *p = call->state;
    void        **found = &p->all[kernel].kernel;
    TM_ASSERT(kernel < p->n && p->all[kernel].name);
    if (x == 0 || y == 0 || z == 0) return TM_OK;
    if (!*found)
        TM_TRY(tm_gpu_module_kernel(p->own->gpu, p->own->modules[p->all[kernel].module].loaded, p->all[kernel].name,
                                    a->shared, found, err));
    tm_gpu_launch_of launch = { .kernel = *found,
                                .blocks = { (unsigned)x, (unsigned)y, (unsigned)z },
                                .threads = (unsigned)threads,
                                .shared = a->shared,
                                .arguments = a->data,
                                .argument_bytes = a->bytes };
    return tm_gpu_launch(p->own->gpu, tm_gpu_stream_of(call->queue), &launch, err);
}

/* Of a grid whose threads go on to further elements: several times what runs at once. */
static int64_t most_blocks(const tm_call *call)
{
    enum { EACH_UNIT = 32 };
    return (int64_t)EACH_UNIT * tm_gpu_facts_of(((const tm_gpu_noted *)call->state)->own->gpu)->multiprocessors;
}

tm_status tm_gpu_start_each(const tm_call *call, int kernel, int64_t n, const tm_gpu_arguments *a, tm_error *err)
{
    enum { THREADS = 256 };
    int64_t blocks = (n + THREADS - 1) / THREADS, most = most_blocks(call);
    return tm_gpu_start(call, kernel, blocks < most ? blocks : most, 1, 1, THREADS, a, err);
}

tm_status tm_gpu_start_rows(const tm_call *call, int kernel, int64_t rows, int64_t columns, const tm_gpu_arguments *a,
                            tm_error *err)
{
    enum { THREADS = 256 };
    int64_t across = (columns + THREADS - 1) / THREADS, most = most_blocks(call) / (across + !across);
    if (most < 1) most = 1;
    return tm_gpu_start(call, kernel, across, rows < most ? rows : most, 1, THREADS, a, err);
}

int tm_gpu_run(tm_dtype a, tm_dtype b)
{
    size_t bytes = tm_dtype_bytes(a) < tm_dtype_bytes(b) ? tm_dtype_bytes(a) : tm_dtype_bytes(b);
    return (int)(16 / bytes);
}

bool tm_gpu_is_wide(const tm_view *view)
{
    return (uintptr_t)view->data % 16 == 0;
}

bool tm_gpu_call_is_wide(const tm_call *call)
{
    bool wide = true;
    for (int k = 0; k < call->op->n_in; k++) wide = wide && tm_gpu_is_wide(&call->in[k]);
    for (int k = 0; k < call->op->n_out; k++) wide = wide && tm_gpu_is_wide(&call->out[k]);
    return wide;
}

int64_t tm_gpu_pieces(int64_t n, int run, bool wide)
{
    return wide ? n / run + n % run : n;
}

int tm_gpu_wave(const void *device)
{
    return ((const tm_gpu_own *)((const tm_device *)device)->own)->maker == TM_GPU_HIP ? 64 : 32;
}

tm_status tm_gpu_copy_of(const tm_call *call, void *to, const void *from, size_t bytes, tm_error *err)
{
    const tm_gpu_noted *p = call->state;
    return tm_gpu_queue_copy(p->own->gpu, tm_gpu_stream_of(call->queue), to, from, bytes, err);
}

/* --- what kernels refuse
 * ------------------------------------------------------------------------------------------------ */

const char *tm_gpu_refuse_strided(const tm_view *view)
{
    if (!tm_view_present(view)) return NULL;
    return view->dtype == TM_F32 || view->dtype == TM_BF16 ? NULL : "takes float32 and bfloat16";
}

const char *tm_gpu_refuse_view(const tm_view *view)
{
    const char *why = tm_gpu_refuse_strided(view);
    if (why || !tm_view_present(view)) return why;
    return tm_view_dense(view) ? NULL : "takes operands without gaps between their rows";
}

const char *tm_gpu_refuse_whole(const tm_view *view)
{
    return view->dtype == TM_I32 && tm_view_dense(view) ? NULL : "takes whole numbers of 32 bits";
}

const char *tm_gpu_refuse_other(const tm_view *view, tm_dtype dtype)
{
    return !tm_view_present(view) || view->dtype == dtype ? NULL : "takes operands of one format";
}
