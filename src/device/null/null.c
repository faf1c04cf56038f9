/* SPDX-License-Identifier: Apache-2.0 */
/* device/null - computes nothing. What a step costs here is what our own bookkeeping costs. */
#include "device/host/host.h"

#include <stdio.h>

static void run_nothing(const tm_call *call)
{
    (void)call;
}

static void info(tm_device *device, int threads)
{
    tm_host_info(device, sizeof(tm_host), threads > 0 ? threads : 1);
    device->info.computes = false;
    snprintf(device->info.text, sizeof device->info.text, "null: computes nothing");
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

const tm_backend tm_backend_null = { .name = "null", .info = info, .choose = choose_null, TM_HOST_CALLS };
