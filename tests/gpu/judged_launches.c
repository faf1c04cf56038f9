/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/judged_launches.h"

#include "base/file.h"
#include "base/hash.h"
#include "device/backend.h"
#include "device/gpu/own.h"
#include "gpu/trials.h"

#include <dlfcn.h>

#include "support/test.h"

enum {
    HASH = 16,
    REST = HASH + 5
}; /* characters of a hash; and of a blank, the number of trials and the end of the line */

typedef struct {
    tm_device *device;
    tm_hasher *hasher;
    int        taken; /* trials */
    uint64_t (*noted)(bool on);
} noting;

static void add_number(tm_hasher *hasher, uint64_t number)
{
    tm_hasher_add(hasher, &number, sizeof number);
}

/* Addresses that nobody looks at: operand `i`, or the workspace. */
static void *made_up(int i)
{
    return (void *)((uintptr_t)(i + 1) << 40); // NOLINT(performance-no-int-to-ptr)
}

/* The texts and definitions of its kernels, which are called by their numbers from here on. */
static void add_modules(const noting *n, tm_gpu_noted *p)
{
    for (int k = 0; p && k < p->n; k++) {
        if (!p->all[k].name) continue;
        const tm_gpu_module *m = &p->own->modules[p->all[k].module];
        tm_hasher_add(n->hasher, m->name, strlen(m->name) + 1);
        tm_hasher_add(n->hasher, p->all[k].name, strlen(p->all[k].name) + 1);
        for (int d = 0; d < m->defines.n; d++)
            tm_hasher_add(n->hasher, m->defines.text[d], strlen(m->defines.text[d]) + 1);
        p->all[k].kernel = made_up(100 + k);
    }
}

static void launch(const noting *n, const tm_kernel *kernel, tm_call *call)
{
    tm_error err = { 0 };
    add_number(n->hasher, 1);
    call->workspace_bytes = kernel->workspace ? kernel->workspace(call) : 0;
    call->workspace = call->workspace_bytes ? made_up(TM_MAX_IN + TM_MAX_OUT) : NULL;
    call->queue = n->device->queues[TM_ON_COMPUTE];
    call->state = NULL;
    add_number(n->hasher, call->workspace_bytes);
    if (kernel->prepare(n->device, call, &call->state, &err) != TM_OK) fail_msg("%s: %s", kernel->name, err.text);
    add_modules(n, call->state);
    (void)n->noted(true);
    add_number(n->hasher, tm_kernel_run(kernel, call, &err)); /* the library of attention looks at addresses */
    add_number(n->hasher, n->noted(false));
    kernel->release(call->state);
}

/* As the trials of views have it (trials.c). */
static void launch_views(const noting *n, const trial_of *trial, const tm_call *plain, int64_t gap, size_t shift)
{
    tm_call call = *plain;
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_view *view = i < TM_MAX_IN ? &call.in[i] : &call.out[i - TM_MAX_IN];
        unsigned may = i < TM_MAX_IN ? trial->op->strided_in >> i : trial->op->strided_out >> (i - TM_MAX_IN);
        if (!(may & 1U) || !view->data || view->shape.rank < 1) continue;
        view->ld = view->shape.n[view->shape.rank - 1] + trial->shape.gap + gap;
        view->data = (char *)view->data + shift * tm_dtype_bytes(view->dtype);
    }
    if (!trial->kernel->refuse(&call)) launch(n, trial->kernel, &call);
}

/* Plain, with views, added to what is there, and in place. */
static void add_trial(void *out, const trial_of *trial, const tm_call *of)
{
    noting *n = out;
    tm_call call = *of;
    n->taken++;
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_view *view = i < TM_MAX_IN ? &call.in[i] : &call.out[i - TM_MAX_IN];
        view->data = tm_view_present(view) ? made_up(i) : NULL;
    }
    launch(n, trial->kernel, &call);
    if (trial->op->strided_in | trial->op->strided_out)
        launch_views(n, trial, &call, 3, 0), launch_views(n, trial, &call, 8, 1);
    for (unsigned adds = 1; adds < 1U << trial->op->n_out; adds++) {
        call.accumulate = adds;
        if (!trial->kernel->refuse(&call)) launch(n, trial->kernel, &call);
    }
    call.accumulate = 0;
    for (int i = 0; i < trial->op->n_in; i++) {
        if (!(trial->op->inplace >> i & 1U) || !call.in[i].data) continue;
        call.out[0].data = call.in[i].data;
        launch(n, trial->kernel, &call);
    }
}

static tm_text line_of(tm_device *device, const char *maker, const tm_kernel *kernel)
{
    noting  n = { .device = device, .hasher = tm_hasher_create() };
    void   *runtime = dlopen(getenv("TRAINMARK_GPU_RUNTIME"), RTLD_NOW);
    tm_text line = { 0 };
    *(void **)&n.noted = runtime ? dlsym(runtime, "standin_noted") : NULL;
    if (!n.noted) fail_msg("%s notes nothing", getenv("TRAINMARK_GPU_RUNTIME"));
    if (kernel->release == tm_gpu_forget) /* the others read counts, and launch what these want (test_gpu_ranks.c) */
        trials_each(device, tm_op_get(kernel->op), kernel, &n, add_trial);
    tm_text_printf(&line, "%s %s %016llx %03d\n", maker, kernel->name, (unsigned long long)tm_hasher_value(n.hasher),
                   n.taken);
    tm_hasher_destroy(n.hasher);
    return line;
}

tm_text judged_launches_list(void)
{
    tm_text  list = { 0 };
    tm_error err = { 0 };
    if (tm_file_read(JUDGED_LAUNCHES, 1 << 20, &list, &err) != TM_OK && !getenv("TM_RECORD")) fail_msg("%s", err.text);
    return list;
}

bool judged_launches_changed(const char *list, tm_device *device, const char *maker, const tm_kernel *kernel)
{
    tm_text line = line_of(device, maker, kernel);
    bool    has = strstr(list, line.data);
    size_t  name = line.length - REST;
    char   *hash = line.data + name, kept = *hash;
    *hash = '\0';
    const char *old = strstr(list, line.data);
    *hash = kept;
    if (old && atoi(hash + HASH) < atoi(old + name + HASH))
        fail_msg("%.*stakes%s of the trials that were right, which are%.4s", (int)name, line.data, hash + HASH,
                 old + name + HASH);
    tm_text_fini(&line);
    return !has;
}

/* The lines of a maker: of every `parts`-th op, from `part` on, as they are, of the others as the list has them. */
static void add_lines(tm_text *out, tm_device *device, const char *maker, int part, int parts, const char *list)
{
    const tm_kernel *kernel;
    for (int id = 0; id < TM_OP_COUNT; id++)
        for (int k = 0; (kernel = trials_kernel(device, id, k)); k++) {
            char        name[96];
            tm_text     line = line_of(device, maker, kernel);
            int         n = snprintf(name, sizeof name, "%s %s ", maker, kernel->name);
            const char *old = id % parts == part ? NULL : strstr(list, name);
            tm_text_add_n(out, old ? old : line.data, (size_t)n + REST);
            tm_text_fini(&line);
        }
}

const char *judged_launches_differ(tm_device *device, const char *maker, int part, int parts)
{
    tm_text  list = judged_launches_list(), wanted = { 0 };
    tm_error err = { 0 };
    tm_text_add(&list, "");
    for (int hip = 0; hip < 2; hip++)
        if ((strcmp(maker, "hip") == 0) == hip)
            add_lines(&wanted, device, maker, part, parts, list.data);
        else
            for (const char *at = list.data; *at; at += strcspn(at, "\n") + 1)
                if (*at == (hip ? 'h' : 'c')) tm_text_add_n(&wanted, at, strcspn(at, "\n") + 1);
    bool same = strcmp(list.data, wanted.data) == 0;
    if (getenv("TM_RECORD") && tm_file_write(JUDGED_LAUNCHES, wanted.data, wanted.length, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_text_fini(&list), tm_text_fini(&wanted);
    return same || getenv("TM_RECORD") ? NULL
                                       : "all kernels are right, but " JUDGED_LAUNCHES " has hashes of other "
                                         "launches: TM_RECORD=1 TM_TEST_FULL=1 "
                                         "build/release/tests/gpu/test_gpu_kernels on_ writes it";
}
