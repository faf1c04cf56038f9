/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/log.h"

#include <string.h>

static tm_status take_tf32(tm_device *device, const tm_run_options *run, bool planning, tm_error *err)
{
    if (!run->step.tf32) return TM_OK;
    if (run->step.precision->compute != TM_F32)
        return tm_fail(err, TM_INVALID,
                       "training.tf32 rounds products of float32, and training.dtype is %s; leave one out",
                       tm_dtype_name(run->step.precision->compute));
    if (run->step.quantize.on)
        return tm_fail(err, TM_INVALID,
                       "training.tf32 and low precision (quantize.recipe) round the same products; leave "
                       "one of the two out");
    if (tm_device_describe(device)->kind != TM_DEVICE_GPU)
        return tm_fail(err, TM_INVALID, "training.tf32 is a GPU's: add --device cuda or --device hip, or leave it out");
    if (!planning && !tm_device_describe(device)->products)
        return tm_fail(err, TM_UNSUPPORTED,
                       "training.tf32 is the GPU's library's, and there is none here: `trainmark devices` says what is "
                       "missing");
    tm_device_tf32(device, true);
    return TM_OK;
}

/* Does the device, or the hardware that is planned for, multiply FNUZ's formats of 8 bits alone? */
static bool has_fnuz(const tm_cli_options *options, bool planning, const tm_device *device)
{
    const tm_gpu_sheet *gpu = planning ? options->hardware.gpu : NULL;
    return tm_device_describe(device)->fnuz || (gpu && gpu->arch && strcmp(gpu->arch, "gfx942") == 0);
}

tm_status tm_cli_open_device(const tm_cli_options *options, tm_run_options *run, bool planning, tm_device **out,
                             tm_error *err)
{
    tm_device *device;
    tm_status  st = planning ? tm_device_open_planning(options->device, run->threads, &device, err)
                             : tm_device_open(options->device, run->threads, &device, err);
    TM_TRY(st);
    st = options->isa ? tm_device_limit_isa(device, options->isa, err) : TM_OK;
    if (st != TM_OK) {
        tm_device_close(device);
        return st;
    }
    tm_device_allow_reference(device, run->reference_kernels);
    if (planning && options->memory_bytes) tm_device_plan_bytes(device, options->memory_bytes);
    bool wide = tm_device_describe(device)->float64_only;
    if (wide && run->step.compared) {
        tm_device_close(device);
        return tm_fail(err, TM_INVALID,
                       "debug.microscope compares with float32, --device %s computes in float64; leave one of the two "
                       "out",
                       options->device);
    }
    if (wide) run->step.precision = &tm_precision_f64;
    if ((st = take_tf32(device, run, planning, err)) != TM_OK) {
        tm_device_close(device);
        return st;
    }
    if (has_fnuz(options, planning, device) && tm_run_options_take_fnuz(run) && !planning)
        tm_note("formats of 8 bits are FNUZ's, which this GPU multiplies; quantize.fnuz=false emulates OCP's");
    if (tm_device_describe(device)->near_memory) {
        tm_offload *offload = &run->step.offload;
        if ((offload->optimizer || offload->activations) && offload->folder) {
            tm_device_close(device);
            return tm_fail(err, TM_UNSUPPORTED,
                           "--device %s offloads to the host's memory, and training.offload_path names a directory for "
                           "a file; leave it out",
                           options->device);
        }
        offload->space = TM_SPACE_HOST;
    }
    *out = device;
    return TM_OK;
}
