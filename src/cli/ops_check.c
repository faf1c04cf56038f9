/* SPDX-License-Identifier: Apache-2.0 */
/* cli/ops_check.c - the kernels of a device beside the references of their operations. */
#include "cli/ops_check.h"

#include "base/json.h"
#include "cli/cli.h"
#include "device/trial.h"

#include <string.h>

/* Longer examples are for the blocks of CPUs. */
#define MOST_FLOPS 5e6
enum { MOST_VALUES = 200000 };

/* Beside the operations, and as one of them: what no program has, but every training begins with. */
#define DRAW "initial_values"

typedef struct {
    int ops, without, moves, calls, wrong;
} sum;

static void add_json(tm_json *json, const char *name, const tm_tried *tried)
{
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "op", name);
    tm_json_i64(json, "calls", tried->calls);
    tm_json_i64(json, "wrong", tried->wrong);
    if (tried->calls) {
        tm_json_string(json, "worst", tried->where);
        tm_json_i64(json, "output", tried->worst.output);
        tm_json_i64(json, "element", tried->worst.element);
        tm_json_f64(json, "got", tried->worst.got);
        tm_json_f64(json, "wanted", tried->worst.wanted);
        tm_json_f64(json, "bound", tried->worst.bound);
    }
    tm_json_close(json, '}');
}

static void add_line(tm_text *out, const char *name, const tm_tried *tried)
{
    const tm_trial_worst *w = &tried->worst;
    tm_text_printf(out, "%-26s %5d calls  ", name, tried->calls);
    if (tried->wrong)
        tm_text_printf(out, "%d WRONG: %s: %.9g at element %lld of output %d, wanted %.9g within %.3g\n", tried->wrong,
                       tried->where, w->got, (long long)w->element, w->output, w->wanted, w->bound);
    else
        tm_text_printf(out, "at most %.3f of the bound: %s\n", w->part > 0 ? w->part : 0.0, tried->where);
}

static void add(const char *name, const tm_tried *tried, tm_json *json, tm_text *out, sum *all)
{
    all->ops++;
    all->without += !tried->kernel;
    all->calls += tried->calls;
    all->wrong += tried->wrong;
    if (json) add_json(json, name, tried);
    if (!json && tried->calls) add_line(out, name, tried);
}

static tm_status check_all(tm_device *device, const char *name, tm_json *json, tm_text *out, sum *all, tm_error *err)
{
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_tried     tried;
        if (name && strcmp(op->name, name) != 0) continue;
        if (op->stream != TM_ON_COMPUTE) { /* data of other memories and other ranks */
            all->ops++, all->moves++;
            continue;
        }
        tm_error  why = { 0 };
        tm_status st = tm_try_op(device, op, MOST_FLOPS, MOST_VALUES, &tried, &why);
        if (st != TM_OK) return tm_fail(err, st, "%s: %.400s", tried.where[0] ? tried.where : op->name, why.text);
        add(op->name, &tried, json, out, all);
    }
    if (name && strcmp(name, DRAW) != 0) return TM_OK;
    tm_tried  tried;
    tm_error  why = { 0 };
    tm_status st = tm_try_draw(device, &tried, &why);
    if (st != TM_OK) return tm_fail(err, st, "%s: %.400s", DRAW, why.text);
    add(DRAW, &tried, json, out, all);
    return TM_OK;
}

tm_status ops_check(const char *name, const char *device_name, bool as_json, tm_error *err)
{
    tm_device *device = NULL;
    tm_text    out = { 0 };
    tm_json    json = { .out = &out, .indent = true };
    sum        all = { 0 };
    tm_status  st = tm_device_open(device_name, 0, &device, err);
    if (st == TM_OK && !tm_device_describe(device)->computes)
        st = tm_fail(err, TM_USAGE, "--device %.100s computes nothing", device_name);
    if (st == TM_OK && as_json) {
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "device", tm_device_describe(device)->text);
        tm_json_open(&json, "ops", '[');
    }
    if (st == TM_OK) st = check_all(device, name, as_json ? &json : NULL, &out, &all, err);
    if (st == TM_OK && as_json) {
        tm_json_close(&json, ']');
        tm_json_close(&json, '}');
        tm_text_add(&out, "\n");
    }
    if (st == TM_OK && !as_json)
        tm_text_printf(
            &out, "%d operations, of which %d move data and are left out, %d have no kernel here: %d calls, %d wrong\n",
            all.ops, all.moves, all.without, all.calls, all.wrong);
    if (st == TM_OK && all.ops == 0)
        st = tm_fail(err, TM_INVALID, "unknown op '%.100s'; `trainmark ops` lists them", name);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    if (st == TM_OK && all.wrong)
        st = tm_fail(err, TM_NEGATIVE, "%d of %d calls are beyond their bound", all.wrong, all.calls);
    tm_text_fini(&out);
    tm_device_close(device);
    return st;
}
