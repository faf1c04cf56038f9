/* SPDX-License-Identifier: Apache-2.0 */
/* cli/platform.c - `--platform 8xMI300X`: plans for hardware that is not here. */
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static bool of_environment(const tm_config *config, const char *key)
{
    return strncmp(tm_config_origin(config, key), "environment", 11) == 0;
}

/* What a launcher left in the environment is of the machine here. */
static void set_launch(tm_config *config, const char *key, int value)
{
    char text[24];
    if (tm_config_is_set(config, key) && !of_environment(config, key)) return;
    snprintf(text, sizeof text, "%d", value);
    tm_config_set(config, key, text, "--platform");
}

/* A variable asks for other hardware than the option: the option counts. */
static void say_other(const tm_config *config, const char *key, int value)
{
    if (!tm_config_is_set(config, key) || !of_environment(config, key) || tm_config_i64(config, key) == value) return;
    tm_note("%s %lld (%s) does not count, --platform says %d; several nodes are --platform NODESxGPUSxNAME", key,
            (long long)tm_config_i64(config, key), tm_config_origin(config, key), value);
}

/* Of a prediction: from a hardware file, whose GPU need not have a data sheet here. GPUs train in bfloat16 unless it is
 * said otherwise. */
static tm_status read_machine(tm_cli_options *options, tm_config *config, tm_error *err)
{
    tm_platform *p = &options->hardware;
    tm_arena    *arena = tm_config_arena(config);
    options->machine = tm_arena_take(arena, sizeof *options->machine);
    TM_TRY(tm_machine_plan_read(arena, options->platform, options->machine, err));
    *p = (tm_platform){ .nodes = options->machine->nodes, .gpus = options->machine->devices };
    for (size_t i = 0; tm_gpu_sheet_at(i); i++)
        if (tm_names_equal(tm_gpu_sheet_at(i)->name, options->machine->device.name)) p->gpu = tm_gpu_sheet_at(i);
    if (options->memory_bytes == 0)
        options->memory_bytes =
            (int64_t)((options->machine->device.number[TM_HARDWARE_MEMORY] - (options->machine->device.cpu ? 0 : 3)) *
                      0x1p30);
    if (!options->machine->device.cpu && !tm_config_is_set(config, "training.dtype") &&
        !tm_config_is_set(config, "training.mixed_precision_param"))
        tm_config_set(config, "training.dtype", "bfloat16", "--platform, a GPU");
    return TM_OK;
}

tm_status tm_cli_take_platform(tm_cli_options *options, tm_config *config, tm_error *err)
{
    static const char *const of_processes[] = { "launch.world_size", "launch.local_world_size" };
    tm_platform             *p = &options->hardware;
    if (!options->platform) return TM_OK;
    if (options->predicts)
        TM_TRY(read_machine(options, config, err));
    else
        TM_TRY(tm_platform_read(options->platform, p, err));
    if (!tm_config_plans(config))
        return tm_fail(err, TM_USAGE,
                       "--platform plans for hardware that need not be here; add --dry-run, or leave it out");
    if (options->memory_bytes == 0) options->memory_bytes = tm_platform_usable(p->gpu);
    if (options->ranks_per_host == 0 && p->nodes > 1) options->ranks_per_host = p->gpus;
    say_other(config, "launch.nnodes", p->nodes);
    say_other(config, "launch.gpus_per_node", p->gpus);
    set_launch(config, "launch.nnodes", p->nodes);
    set_launch(config, "launch.gpus_per_node", p->gpus);
    for (int i = 0; i < 2; i++)
        if (of_environment(config, of_processes[i])) set_launch(config, of_processes[i], 1);
    return TM_OK;
}

/* Does the device choose the kernels of such a GPU? */
static bool is_its_program(const tm_platform *p, const tm_device *device)
{
    const char *name = tm_device_describe(device)->name;
    return strcmp(name, strcmp(p->gpu->maker, "AMD") == 0 ? "hip" : "cuda") == 0;
}

void tm_cli_print_platform(const tm_cli_options *options, const tm_device *device, const char *prefix, tm_text *out)
{
    const tm_platform *p = &options->hardware;
    tm_text            line = { 0 };
    if (!p->gpu) return;
    tm_platform_describe(p, &line);
    tm_text_printf(out, "%s%s\n", prefix, line.data);
    tm_text_fini(&line);
    if (is_its_program(p, device))
        tm_text_printf(
            out, "%sthe plan is of the program for %s, without what drivers and libraries keep; no time is known\n",
            prefix, tm_device_describe(device)->name);
    else
        tm_text_printf(out,
                       "%sthe plan is of the program for %s, not for %s: kernels, workspaces and times differ there\n",
                       prefix, tm_device_describe(device)->name, p->gpu->name);
}

void tm_cli_platform_json(const tm_cli_options *options, const tm_device *device, tm_json *json)
{
    const tm_platform *p = &options->hardware;
    if (!p->gpu) return;
    tm_json_open(json, "platform", '{');
    tm_json_string(json, "gpu", p->gpu->name);
    tm_json_string(json, "maker", p->gpu->maker);
    tm_json_string(json, "arch", p->gpu->arch);
    tm_json_i64(json, "nodes", p->nodes);
    tm_json_i64(json, "gpus_per_node", p->gpus);
    tm_json_i64(json, "published_memory_bytes", p->gpu->memory_bytes);
    tm_json_open(json, "published_dense_tflops", '{');
    tm_json_f64(json, "float32", p->gpu->tflops_f32);
    tm_json_f64(json, "bfloat16", p->gpu->tflops_bf16);
    if (p->gpu->tflops_fp8 > 0) tm_json_f64(json, "fp8", p->gpu->tflops_fp8);
    if (p->gpu->tflops_fp4 > 0) tm_json_f64(json, "fp4", p->gpu->tflops_fp4);
    tm_json_close(json, '}');
    tm_json_string(json, "published_in", p->gpu->source);
    tm_json_string(json, "program_of", tm_device_describe(device)->name);
    tm_json_close(json, '}');
}
