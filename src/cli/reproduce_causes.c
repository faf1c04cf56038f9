/* SPDX-License-Identifier: Apache-2.0 */
/* cli/reproduce_causes.c - why a figure may differ from the published one: what the run had that the page had not. A
 * rule is a row; nothing is guessed. */
#include "cli/reproduce.h"

#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const reproduce_row  *row;
    const reproduce_page *page;
    tm_arena             *arena;
    json_t               *result; /* the run's result.json */
} case_of;

/* Appends what differs, "" if nothing; `keys` of the rule. */
typedef void (*look)(const case_of *c, const char *keys, tm_text *out);

enum { SHOWN = 3 };

/* A value of a configuration as text; NULL for lists and maps. */
static const char *shown(tm_arena *arena, const json_t *value)
{
    char text[32];
    if (!value || json_is_null(value)) return "none";
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    if (json_is_number(value)) return tm_arena_text(arena, tm_format_double(text, json_number_value(value)));
    return NULL;
}

/* "a,b.*": is `key` among them? */
static bool among(const char *keys, const char *key)
{
    for (const char *at = keys; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t n = strcspn(at, ",");
        if (n > 1 && at[n - 1] == '*' && strncmp(at, key, n - 1) == 0) return true;
        if (strlen(key) == n && strncmp(at, key, n) == 0) return true;
    }
    return false;
}

/* Keys of the configuration whose values are others than those that the page's own line has. */
static void of_keys(const case_of *c, const char *keys, tm_text *out)
{
    json_t     *theirs = c->row->configuration, *ours = json_object_get(c->result, "configuration"), *value;
    const char *key;
    int         n = 0;
    json_object_foreach(theirs, key, value)
    {
        const char *wanted = shown(c->arena, value), *have = shown(c->arena, json_object_get(ours, key));
        if (!among(keys, key) || !json_object_get(ours, key) || !wanted || !have || strcmp(wanted, have) == 0) continue;
        if (n++ < SHOWN) tm_text_printf(out, "%s%s %s instead of %s", out->length ? ", " : "", key, have, wanted);
    }
    if (n > SHOWN) tm_text_printf(out, " and %d more", n - SHOWN);
}

/* Another GPU, or processors where the page has GPUs. */
static void of_device(const case_of *c, const char *keys, tm_text *out)
{
    const tm_platform *p = &c->row->page->platform;
    const char        *device = json_string_value(json_object_get(c->result, "device"));
    (void)keys;
    if (!p->gpu) return;
    bool gpu = !device || strcmp(device, "hip") == 0 || strcmp(device, "cuda") == 0; /* a benchmark's: as it was run */
    const char *have = gpu && c->row->gpu ? c->row->gpu : device ? device : "cpu";
    if (!strstr(have, p->gpu->name)) tm_text_printf(out, "%s instead of %s", have, p->gpu->name);
}

static void of_devices(const case_of *c, const char *keys, tm_text *out)
{
    const tm_platform *p = &c->row->page->platform;
    long long          wanted = (long long)p->nodes * p->gpus, have;
    (void)keys;
    if (!json_is_integer(json_object_get(c->result, "devices"))) return;
    have = json_integer_value(json_object_get(c->result, "devices"));
    if (p->gpu && have != wanted) tm_text_printf(out, "%lld instead of %lld", have, wanted);
}

/* Checks of the host that did not pass, and what they saw. */
static void of_checks(const case_of *c, const char *keys, tm_text *out)
{
    json_t *failed = json_object_get(json_object_get(c->result, "checks"), "not_passed"), *one;
    size_t  i;
    json_array_foreach(failed, i, one)
    {
        const char *id = json_string_value(json_object_get(one, "id"));
        const char *observed = json_string_value(json_object_get(one, "observed"));
        const char *status = json_string_value(json_object_get(one, "status"));
        bool        bad = status && (strcmp(status, "WARN") == 0 || strcmp(status, "FAIL") == 0);
        if (id && bad && among(keys, id))
            tm_text_printf(out, "%s%s: %s", out->length ? ", " : "", id, observed ? observed : "");
    }
}

/* The processor's clock moved meanwhile, or it was throttled. */
static void of_clock(const case_of *c, const char *keys, tm_text *out)
{
    json_t *machine = json_object_get(c->result, "machine");
    double  change = json_number_value(json_object_get(machine, "frequency_change_percent"));
    double  throttles = json_number_value(json_object_get(machine, "thermal_throttles"));
    if (fabs(change) > 5) tm_text_printf(out, "it changed by %.3g %% meanwhile", change);
    if (throttles > 0) tm_text_printf(out, "%sthrottled %g times for heat", out->length ? ", " : "", throttles);
    tm_text checks = { 0 };
    of_checks(c, keys, &checks);
    if (checks.length) tm_text_printf(out, "%s%s", out->length ? ", " : "", checks.data);
    tm_text_fini(&checks);
}

/* Other programs took the processors: the verdict on the machine; of a benchmark, on the first row that was disturbed.
 */
static void of_machine(const case_of *c, const char *keys, tm_text *out)
{
    json_t *machine = json_object_get(c->result, "machine"), *rows = json_object_get(c->result, "rows");
    for (size_t i = 0; !machine && i < json_array_size(rows); i++) {
        const char *judged = json_string_value(json_object_get(json_array_get(rows, i), "verdict"));
        if (judged && strcmp(judged, "valid") != 0) machine = json_array_get(rows, i);
    }
    const char *verdict = json_string_value(json_object_get(machine, "verdict"));
    const char *reason = json_string_value(json_object_get(machine, "reason"));
    (void)keys;
    if (verdict && (strcmp(verdict, "noisy") == 0 || strcmp(verdict, "invalid") == 0))
        tm_text_printf(out, "%s: %s", verdict, reason ? reason : "disturbed");
}

/* "6.3" of "6.3.42133": releases differ by these. */
static size_t release_length(const char *version)
{
    size_t first = strcspn(version, ".");
    return version[first] ? first + 1 + strcspn(version + first + 1, ".") : first;
}

/* The version of the library that has this name in its own: "ROCm" is that of HIP's runtime. NULL: not known. */
static const char *version_of(const case_of *c, const char *name)
{
    json_t     *libraries = json_object_get(json_object_get(c->result, "environment"), "libraries"), *one;
    const char *file, *wanted = tm_names_equal(name, "ROCm") ? "amdhip64" : name;
    json_object_foreach(libraries, file, one)
    {
        const char *version = json_string_value(json_object_get(one, "version"));
        for (const char *at = file; version && *at; at++) {
            size_t n = 0;
            while (wanted[n] && tolower((unsigned char)at[n]) == tolower((unsigned char)wanted[n])) n++;
            if (!wanted[n]) return version;
        }
    }
    return NULL;
}

static void of_software(const case_of *c, const char *keys, tm_text *out)
{
    (void)keys;
    for (size_t i = 0; i < c->page->n_software; i++) {
        const page_software *s = &c->page->software[i];
        const char          *have = version_of(c, s->name);
        size_t               n = release_length(s->version);
        if (have && (release_length(have) != n || strncmp(have, s->version, n) != 0))
            tm_text_printf(out, "%s%s %s instead of %s", out->length ? ", " : "", s->name, have, s->version);
    }
}

static void add_once(tm_text *out, const char *words)
{
    if (!out->length || !strstr(out->data, words)) tm_text_printf(out, "%s%s", out->length ? ", " : "", words);
}

/* Figures that the run has no number for by the page's way of counting. */
static void of_convention(const case_of *c, const char *keys, tm_text *out)
{
    (void)keys;
    for (size_t i = 0; i < c->row->page->n_figures; i++) {
        const tm_figure *f = &c->row->page->figures[i];
        if (*f->convention && isnan(row_measure(c->row, f).value))
            add_once(out, tm_arena_format(c->arena, "%s is counted as '%s', which is not counted here", f->column,
                                          f->convention));
        if (strstr(f->note, "counted ")) add_once(out, f->note);
    }
}

/* The likeliest first. */
static const struct {
    const char *cause;
    look        of;
    const char *keys;
} rules[] = {
    { "device", of_device, NULL },
    { "devices", of_devices, NULL },
    { "model", of_keys,
      "model.n_layers,model.dim,model.ffn_dim,model.n_heads,model.n_kv_heads,model.vocab_size,"
      "model.sliding_window,model.n_experts,model.*" },
    { "batch", of_keys, "training.local_batch_size,training.grad_accumulation,training.global_batch_size" },
    { "sequence", of_keys, "training.seq_len" },
    { "recompute", of_keys, "activation_checkpoint.*" },
    { "precision", of_keys,
      "training.dtype,training.regime,training.mixed_precision_param,training.mixed_precision_reduce,"
      "quantize.*,model.converters" },
    { "layout", of_keys, "parallelism.*" },
    { "offload", of_keys, "offload.*" },
    { "clock", of_clock, "gpu_clocks,gpu_level,gpu_temp,governor" },
    { "power cap", of_checks, "gpu_power" },
    { "library version", of_software, NULL },
    { "library", of_checks, "rocm,amdgpu,cuda,firmware" },
    { "links", of_checks, "xgmi,nvlink,pcie,nic" },
    { "convention", of_convention, NULL },
    { "machine", of_machine, NULL },
};

/* The document of a result: of a run, or the table of a benchmark, which has no configuration. */
static json_t *document_of(const tm_result *result)
{
    json_error_t   cause;
    const tm_text *text = result ? tm_result_document(result, TM_DOCUMENT_RESULT) : NULL;
    return text && text->data ? json_loadb(text->data, text->length, 0, &cause) : NULL;
}

const char *row_causes(const reproduce_row *row, const reproduce_page *page, bool slice, tm_arena *arena)
{
    case_of c = { .row = row, .page = page, .arena = arena, .result = document_of(row->result) };
    tm_text all = { 0 };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        tm_text found = { 0 };
        if (c.result && !(slice && rules[i].of == of_convention)) rules[i].of(&c, rules[i].keys, &found);
        if (found.length) tm_text_printf(&all, "%s%s: %s", all.length ? "\n" : "", rules[i].cause, found.data);
        tm_text_fini(&found);
    }
    json_decref(c.result);
    const char *out = all.length ? tm_arena_text(arena, all.data) : NULL;
    tm_text_fini(&all);
    return out;
}
