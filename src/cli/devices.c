/* SPDX-License-Identifier: Apache-2.0 */
/* trainmark devices: where programs can run on this machine, from which files, and what is missing. */
#include "base/arena.h"
#include "cli/cli.h"
#include "device/device.h"
#include "gpu/blas.h"
#include "gpu/dnn.h"
#include "gpu/compile.h"
#include "gpu/defaults.h"
#include "gpu/embedded.h"
#include "gpu/visible.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool json;
} devices_options;

static void version_of(const tm_gpu_facts *f, char text[32])
{
    if (f->version > 1000000) /* HIP: 60342133 is 6.3.42133 */
        snprintf(text, 32, "%s %d.%d", f->runtime, f->version / 10000000, f->version / 100000 % 100);
    else
        snprintf(text, 32, "%s %d.%d", f->runtime, f->version / 1000, f->version % 1000 / 10);
}

/* Modules of judged code that this program has for a GPU; a damaged set is what opening the device will tell. */
static int judged_for(const tm_gpu_facts *f)
{
    tm_gpu_embedded *embedded = NULL;
    tm_error         ignored = { 0 };
    if (tm_gpu_embedded_open(f, &embedded, &ignored) != TM_OK) return -1;
    int count = tm_gpu_embedded_count(embedded);
    tm_gpu_embedded_close(embedded);
    return count;
}

static void print_gpu(const char *name, const tm_gpu_facts *f, tm_text *out)
{
    char version[32], memory[32];
    version_of(f, version);
    tm_text_printf(out, "%-10s%s, %s, %s, %d %s, %s\n", name, f->name, f->arch,
                   tm_format_bytes(memory, (double)f->memory), f->multiprocessors,
                   f->runtime[0] == 'H' ? "compute units" : "multiprocessors", f->bus);
    tm_text_printf(out, "          runtime   %s, %s\n", version, f->library);
    int judged = judged_for(f);
    if (judged > 0)
        tm_text_printf(out, "          kernels   %d modules of judged code; others are compiled here, not judged\n",
                       judged);
    else
        tm_text_printf(out, "          kernels   %s\n",
                       judged < 0 ? "judged code is damaged: install trainmark anew" : "compiled here, not judged");
}

static void gpu_json(const char *name, const tm_gpu_facts *f, tm_json *json)
{
    char version[32];
    version_of(f, version);
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "name", name);
    tm_json_string(json, "gpu", f->name);
    tm_json_string(json, "arch", f->arch);
    tm_json_i64(json, "memory_bytes", (int64_t)f->memory);
    tm_json_i64(json, "multiprocessors", f->multiprocessors);
    tm_json_i64(json, "shared_bytes", f->shared_bytes);
    tm_json_string(json, "bus", f->bus);
    tm_json_string(json, "runtime", version);
    tm_json_string(json, "library", f->library);
    tm_json_i64(json, "judged_modules", judged_for(f));
    tm_json_close(json, '}');
}

/* The GPUs of one maker. *why: what is missing; empty: nothing. */
static void list_gpus(tm_gpu_maker maker, tm_text *out, tm_json *json, tm_error *why)
{
    int count = 1;
    for (int i = 0; i < count; i++) {
        tm_gpu *gpu;
        char    name[32];
        if (tm_gpu_open(maker, i, &gpu, why) != TM_OK) return;
        count = tm_gpu_facts_of(gpu)->count;
        snprintf(name, sizeof name, "%s:%d", maker == TM_GPU_HIP ? "hip" : "cuda", i);
        if (json)
            gpu_json(name, tm_gpu_facts_of(gpu), json);
        else
            print_gpu(name, tm_gpu_facts_of(gpu), out);
        tm_gpu_close(gpu);
    }
}

static void print_library(const char *what, const char *name, const char *path, tm_text *out, tm_json *json)
{
    if (json) {
        tm_json_open(json, NULL, '{');
        tm_json_string(json, what, name);
        tm_json_string(json, "library", path);
        tm_json_close(json, '}');
    } else {
        tm_text_printf(out, "          %-9s %s, %s\n", what, name, path);
    }
}

/* The compiler of kernels of one maker, where it has GPUs. */
static void find_compiler(tm_gpu_maker maker, tm_text *out, tm_json *json, tm_error *why)
{
    tm_gpu_compiler *compiler;
    if (tm_gpu_compiler_open(maker, &compiler, why) != TM_OK) return;
    print_library("compiler", tm_gpu_compiler_name(compiler), tm_gpu_compiler_library(compiler), out, json);
    tm_gpu_compiler_close(compiler);
}

/* The library of matrix products: it begins on a GPU only. */
static void find_products(tm_gpu_maker maker, tm_text *out, tm_json *json, tm_error *why)
{
    tm_gpu      *gpu;
    tm_gpu_blas *blas;
    if (tm_gpu_open(maker, 0, &gpu, why) != TM_OK) return;
    if (tm_gpu_blas_open(gpu, &blas, why) == TM_OK) {
        print_library("products", tm_gpu_blas_name(blas), tm_gpu_blas_library(blas), out, json);
        tm_gpu_blas_close(blas);
    }
    tm_gpu_close(gpu);
}

/* The library of attention, which NVIDIA's GPUs have. */
static void find_attention(tm_gpu_maker maker, tm_text *out, tm_json *json, tm_error *why)
{
    tm_gpu     *gpu;
    tm_gpu_dnn *dnn;
    if (maker != TM_GPU_CUDA || tm_gpu_open(maker, 0, &gpu, why) != TM_OK) return;
    if (tm_gpu_dnn_open(gpu, &dnn, why) == TM_OK) {
        print_library("attention", tm_gpu_dnn_name(dnn), tm_gpu_dnn_library(dnn), out, json);
        tm_gpu_dnn_close(dnn);
    }
    tm_gpu_close(gpu);
}

extern char **environ;

/* Variables that hide GPUs of a maker, and how many are left. The runtime has counted already: no index is unknown. */
static void find_visible(tm_gpu_maker maker, tm_text *out, tm_json *json)
{
    char    wrong[96];
    tm_text told = { 0 };
    int     count = tm_gpu_count(maker);
    (void)tm_gpu_visible(maker, environ, 1 << 20, &told, wrong);
    if (told.length && json) {
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "name", maker == TM_GPU_HIP ? "hip" : "cuda");
        tm_json_i64(json, "devices", count);
        tm_json_string(json, "variables", told.data);
        tm_json_close(json, '}');
    } else if (told.length) {
        tm_text_printf(out, "          visible   %d device%s: %s\n", count, count == 1 ? "" : "s", told.data);
    }
    tm_text_fini(&told);
}

/* What is set for the libraries of a maker before they are loaded. */
static void find_variables(tm_gpu_maker maker, tm_text *out, tm_json *json)
{
    size_t                n;
    const tm_gpu_default *rows = tm_gpu_defaults(&n);
    for (size_t i = 0; i < n; i++) {
        const char *value = getenv(rows[i].name), *by = tm_gpu_default_is_ours(rows[i].name) ? "trainmark" : "the user";
        if (rows[i].maker != maker || !value) continue;
        if (json) {
            tm_json_open(json, NULL, '{');
            tm_json_string(json, "variable", rows[i].name);
            tm_json_string(json, "value", value);
            tm_json_string(json, "set_by", by);
            tm_json_close(json, '}');
        } else {
            tm_text_printf(out, "          variable  %s=%s, set by %s\n", rows[i].name, value, by);
        }
    }
}

static tm_status print_cpu(tm_text *out, tm_json *json, tm_error *err)
{
    tm_device *device;
    TM_TRY(tm_device_open("cpu", 0, &device, err));
    const tm_device_info *info = tm_device_describe(device);
    if (json) {
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "name", info->name);
        tm_json_string(json, "kernels", info->kernels);
        tm_json_i64(json, "threads", info->threads);
        tm_json_close(json, '}');
    } else {
        tm_text_printf(out, "%-10s%s kernels, %d thread%s\n", info->name, info->kernels, info->threads,
                       info->threads == 1 ? "" : "s");
    }
    tm_device_close(device);
    return TM_OK;
}

enum { MAKERS = 2 };

/* What is missing of a maker: with a GPU its libraries may be. */
typedef struct {
    tm_error gpus, compiler, products, attention;
} missing;

static void print_missing(const char *name, const char *what, const tm_error *why, tm_text *out, tm_json *json)
{
    char key[32];
    snprintf(key, sizeof key, "%s%s%s", name, *what ? " " : "", what);
    if (why->status == TM_OK) return;
    if (json)
        tm_json_string(json, key, why->text);
    else
        tm_text_printf(out, "%-10s", name), tm_text_fill(out, why->text, 10, 10, tm_cli_width(SIZE_MAX));
}

static void list(tm_text *out, tm_json *json, missing *why)
{
    for (int m = 0; m < MAKERS; m++) {
        list_gpus((tm_gpu_maker)m, out, json, &why[m].gpus);
        if (json || why[m].gpus.status != TM_OK) continue;
        find_compiler((tm_gpu_maker)m, out, NULL, &why[m].compiler);
        find_products((tm_gpu_maker)m, out, NULL, &why[m].products);
        find_attention((tm_gpu_maker)m, out, NULL, &why[m].attention);
        find_visible((tm_gpu_maker)m, out, NULL);
        find_variables((tm_gpu_maker)m, out, NULL);
    }
    if (!json) return;
    tm_json_close(json, ']'), tm_json_open(json, "compilers", '[');
    for (int m = 0; m < MAKERS; m++)
        if (why[m].gpus.status == TM_OK) find_compiler((tm_gpu_maker)m, out, json, &why[m].compiler);
    tm_json_close(json, ']'), tm_json_open(json, "products", '[');
    for (int m = 0; m < MAKERS; m++)
        if (why[m].gpus.status == TM_OK) find_products((tm_gpu_maker)m, out, json, &why[m].products);
    tm_json_close(json, ']'), tm_json_open(json, "attention", '[');
    for (int m = 0; m < MAKERS; m++)
        if (why[m].gpus.status == TM_OK) find_attention((tm_gpu_maker)m, out, json, &why[m].attention);
    tm_json_close(json, ']'), tm_json_open(json, "visible", '[');
    for (int m = 0; m < MAKERS; m++)
        if (why[m].gpus.status == TM_OK) find_visible((tm_gpu_maker)m, out, json);
    tm_json_close(json, ']'), tm_json_open(json, "variables", '[');
    for (int m = 0; m < MAKERS; m++)
        if (why[m].gpus.status == TM_OK) find_variables((tm_gpu_maker)m, out, json);
    tm_json_close(json, ']');
}

static tm_status devices(tm_cli_line *line, tm_error *err)
{
    static const char *const names[] = { "cuda", "hip" };
    const devices_options   *o = line->options;
    tm_text                  out = { 0 };
    tm_json                  all = { .out = &out, .indent = true }, *json = o->json ? &all : NULL;
    missing                 *why = memset(tm_alloc(MAKERS * sizeof *why), 0, MAKERS * sizeof *why);
    if (json) tm_json_open(json, NULL, '{'), tm_json_open(json, "devices", '[');
    tm_status st = print_cpu(&out, json, err);
    if (st == TM_OK) {
        list(&out, json, why);
        if (json) tm_json_open(json, "missing", '{');
        for (int m = 0; m < MAKERS; m++) {
            print_missing(names[m], "", *why[m].gpus.text ? &why[m].gpus : &why[m].compiler, &out, json);
            print_missing(names[m], "products", &why[m].products, &out, json);
            print_missing(names[m], "attention", &why[m].attention, &out, json);
        }
        if (json) tm_json_close(json, '}'), tm_json_close(json, '}'), tm_text_add(&out, "\n");
        st = tm_cli_print(&out, err);
    }
    tm_text_fini(&out);
    free(why);
    return st;
}

static const tm_option rows[] = { TM_OPTION_JSON(devices_options) };

const tm_cli_command tm_command_devices = {
    .name = "devices",
    .summary = "list the devices that programs can run on, and what is missing",
    TM_CLI_OPTIONS(rows, devices_options),
    .run = devices,
};
