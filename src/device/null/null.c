/* SPDX-License-Identifier: Apache-2.0 */
/* device/null - computes nothing. What a step costs here is what our own bookkeeping costs. */
#include "device/backend.h"

#include <stdio.h>

static void run_nothing(const tm_call *call)
{
    (void)call;
}

static tm_status open_null(tm_device *device, int threads, tm_error *err)
{
    (void)err;
    device->info.kind = TM_DEVICE_CPU;
    device->info.computes = false;
    device->info.threads = threads > 0 ? threads : 1;
    snprintf(device->info.text, sizeof device->info.text, "null: computes nothing");
    return TM_OK;
}

static const tm_kernel *choose_null(const tm_device *device, const tm_call *call, tm_text *refusals)
{
    static const tm_kernel kernels[TM_OP_COUNT] = {
#define TM_OP(id) { .op = TM_OP_##id, .name = #id "/null", .run = run_nothing },
#include "op/ops.def"
#undef TM_OP
    };
    (void)device;
    (void)refusals;
    return &kernels[tm_op_id_of(call->op)];
}

const tm_backend tm_backend_null = { .name = "null", .open = open_null, .choose = choose_null };
