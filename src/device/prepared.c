/* SPDX-License-Identifier: Apache-2.0 */
#include "device/prepared.h"

#include "base/arena.h"
#include "base/text.h"
#include "device/backend.h"
#include "op/kernel.h"

#include <stdlib.h>
#include <string.h>

struct tm_prepared {
    tm_device       *device;
    const tm_kernel *kernel;
    tm_call          call;
    tm_address       workspace;
    tm_text          refusals;
};

/* --- a call ------------------------------------------------------------------------------------------------------- */

/* In one line: "linear/library: ...; linear/tiles: ...". */
static void join_lines(tm_text *text)
{
    while (text->length && text->data[text->length - 1] == '\n') text->data[--text->length] = '\0';
    for (char *at = text->data; at && *at; at++)
        if (*at == '\n') *at = ';';
}

static tm_status prepare(tm_prepared *p, tm_error *err)
{
    tm_device        *device = p->device;
    const tm_backend *backend = device->backend;
    tm_call          *call = &p->call;
    p->kernel = backend->choose(device, call, &p->refusals);
    if (!p->kernel) {
        join_lines(&p->refusals);
        return tm_fail(err, TM_UNSUPPORTED, "device %s has no fast kernel for it%s%.1000s", device->info.name,
                       p->refusals.length ? ": " : "", p->refusals.length ? p->refusals.data : "");
    }
    call->workspace_bytes = p->kernel->workspace ? p->kernel->workspace(call) : 0;
    if (call->workspace_bytes) TM_TRY(tm_device_alloc(device, call->workspace_bytes, &p->workspace, err));
    call->workspace = (void *)p->workspace.at; // NOLINT(performance-no-int-to-ptr): the device's
    call->queue = device->queues[TM_ON_COMPUTE];
    tm_error  own = { 0 };
    tm_status st = p->kernel->prepare ? p->kernel->prepare(device, call, &call->state, &own) : TM_OK;
    if (st == TM_OK && backend->prepared) st = backend->prepared(device, &own);
    return tm_device_noted(device, st, &own, err);
}

tm_status tm_prepared_open(tm_device *device, const tm_call *call, tm_prepared **out, tm_error *err)
{
    TM_TRY(tm_device_ready(device, err));
    tm_prepared *p = memset(tm_alloc(sizeof *p), 0, sizeof *p);
    p->device = device;
    p->call = *call;
    p->call.device = device;
    p->call.threads = device->info.threads;
    p->call.state = NULL;
    for (int i = 0; i < TM_MAX_IN; i++) p->call.in[i].data = NULL;
    for (int k = 0; k < TM_MAX_OUT; k++) p->call.out[k].data = NULL;
    tm_status st = prepare(p, err);
    if (st == TM_OK)
        *out = p;
    else
        tm_prepared_close(p);
    return st;
}

void tm_prepared_close(tm_prepared *p)
{
    if (!p) return;
    if (p->call.state && p->kernel->release) p->kernel->release(p->call.state);
    tm_device_release(p->device, p->workspace, p->call.workspace_bytes);
    tm_text_fini(&p->refusals);
    free(p);
}

const char *tm_prepared_kernel(const tm_prepared *p)
{
    return p->kernel->name;
}

bool tm_prepared_by_library(const tm_prepared *p)
{
    return p->kernel->library;
}

const char *tm_prepared_refusals(const tm_prepared *p)
{
    return p->refusals.length ? p->refusals.data : "";
}

tm_status tm_prepared_run(tm_prepared *p, const tm_address in[TM_MAX_IN], const tm_address out[TM_MAX_OUT],
                          tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(p->device, err));
    for (int i = 0; i < TM_MAX_IN; i++)
        if (tm_view_present(&p->call.in[i]))
            p->call.in[i].data = (void *)in[i].at; // NOLINT(performance-no-int-to-ptr): the device's
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (tm_view_present(&p->call.out[k]))
            p->call.out[k].data = (void *)out[k].at; // NOLINT(performance-no-int-to-ptr): the device's
    tm_status st = p->device->backend->launch(p->call.queue, p->kernel, &p->call, &own);
    return tm_device_noted(p->device, st, &own, err);
}

/* --- the device's clock ------------------------------------------------------------------------------------------- */

struct tm_stopwatch {
    tm_device  *device;
    tm_instant *at[2];
};

tm_status tm_stopwatch_open(tm_device *device, tm_stopwatch **out, tm_error *err)
{
    TM_TRY(tm_device_ready(device, err));
    tm_stopwatch *w = memset(tm_alloc(sizeof *w), 0, sizeof *w);
    tm_error      own = { 0 };
    tm_status     st = TM_OK;
    w->device = device;
    for (int i = 0; i < 2 && st == TM_OK; i++) st = device->backend->instant_open(device, &w->at[i], &own);
    if (st == TM_OK)
        *out = w;
    else
        tm_stopwatch_close(w);
    return tm_device_noted(device, st, &own, err);
}

void tm_stopwatch_close(tm_stopwatch *w)
{
    if (!w) return;
    for (int i = 0; i < 2; i++)
        if (w->at[i]) w->device->backend->instant_close(w->at[i]);
    free(w);
}

static tm_status record(tm_stopwatch *w, int i, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(w->device, err));
    tm_status st = w->device->backend->record(w->device->queues[TM_ON_COMPUTE], w->at[i], &own);
    return tm_device_noted(w->device, st, &own, err);
}

tm_status tm_stopwatch_start(tm_stopwatch *w, tm_error *err)
{
    return record(w, 0, err);
}

tm_status tm_stopwatch_stop(tm_stopwatch *w, double *seconds, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(record(w, 1, err));
    TM_TRY(tm_device_wait(w->device, err));
    return tm_device_noted(w->device, w->device->backend->time(w->at[0], w->at[1], seconds, &own), &own, err);
}
