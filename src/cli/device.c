/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

tm_status tm_cli_open_device(const tm_cli_options *options, tm_run_options *run, tm_device **out, tm_error *err)
{
    tm_device *device;
    TM_TRY(tm_device_open(options->device, run->threads, &device, err));
    tm_status st = options->isa ? tm_device_limit_isa(device, options->isa, err) : TM_OK;
    if (st != TM_OK) {
        tm_device_close(device);
        return st;
    }
    tm_device_allow_reference(device, run->reference_kernels);
    if (tm_device_describe(device)->float64_only) run->step.precision = &tm_precision_f64;
    *out = device;
    return TM_OK;
}
