/* SPDX-License-Identifier: Apache-2.0 */
/* cli/selftest.c - `trainmark selftest`: what this machine shows of itself, as one file that can be sent. */
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_input.h"
#include "base/lock.h"
#include "base/program.h"
#include "base/version.h"
#include "cli/child.h"
#include "cli/cli.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    const char *device, *only, *out;
    double      minutes;
    bool        list, json;
} selftest_options;

/* A command of this program, in a process of its own. */
typedef struct {
    const char *name;
    int         seconds; /* its limit, where all take five minutes */
    const char *words;   /* apart by spaces; DEVICE: the device; OUT: a folder of its own */
    const char *shows;
    bool        gpu;          /* on GPUs only */
    double      memory_bytes; /* of the device, for it to be tried */
    bool        findings;     /* exit code 5 tells of the machine's settings: no failure */
} stage;

#define FEW " --validation.enable false --data.source mock --training.steps"
#define SMALL " --model.n_layers 2 --model.dim 256 --model.n_heads 4 --model.n_kv_heads 2"

static const stage stages[] = {
    { "machine", 20, "check --json", "what the machine is, and how it is set up", false, 0, true },
    { "devices", 10, "devices --json", "GPUs, drivers, libraries", false, 0, false },
    { "kernels", 60, "ops --check --device DEVICE --json", "every kernel beside a reference in double", false, 0,
      false },
    { "float32", 40, "run tiny-llama --device DEVICE --out OUT", "a training to its verdict", false, 0, false },
    { "bfloat16", 40, "run tiny-llama --device DEVICE --training.dtype bfloat16 --out OUT", "the same in bfloat16",
      false, 0, false },
    { "float8", 20,
      "run tiny-llama --device DEVICE --training.dtype bfloat16 --quantize.recipe fp8_tensorwise --out OUT" FEW " 20",
      "steps in 8 bits", false, 0, false },
    { "adapters", 20,
      "run tiny-llama --device DEVICE --training.dtype bfloat16 --lora.rank 8 --lora.base_format nf4 --out OUT" FEW
      " 20",
      "steps of QLoRA", false, 0, false },
    { "experts", 20,
      "run mixtral_8x7B --device DEVICE --training.dtype bfloat16 --training.seq_len 256 --out OUT" SMALL
      " --model.ffn_dim 512 --model.moe_ffn_dim 512 --model.vocab_size 4096" FEW " 20",
      "steps of a mixture of experts", false, 0, false },
    { "gpt-small", 40,
      "run gpt-small --device DEVICE --training.dtype bfloat16 --training.local_batch_size 4 --out OUT" FEW " 20",
      "tokens/s of GPT Small", false, 0, false },
    { "gemm", 60, "bench gemm --device DEVICE --dtype bfloat16 --shapes llama70b --budget 40 --store none --json",
      "rates of matrix products", true, 0, false },
    { "memory", 20, "bench stream --device DEVICE --budget 10 --store none --json", "bandwidth of the device's memory",
      true, 4e9, false },
    { "attention", 30,
      "bench attention --device DEVICE --dtype bfloat16 --batch 4 --seq 4096 --heads 32 --kv-heads 8 --head-dim 128 "
      "--budget 15 --store none --json",
      "rates of attention, forward and backward", true, 8e9, false },
    { "llama-8b-width", 90,
      "run llama3.1_8B --device DEVICE --training.dtype bfloat16 --model.n_layers 8 --training.local_batch_size 4 "
      "--training.seq_len 4096 --out OUT" FEW " 12",
      "tokens/s of eight blocks of Llama 3.1 8B", true, 75e9, false },
};
enum { STAGES = sizeof stages / sizeof stages[0], MOST_WORDS = 60 };

typedef struct {
    const selftest_options *o;
    char                    program[TM_PROGRAM_PATH], path[TM_PROGRAM_PATH];
    const char             *device;
    double                  memory_bytes; /* of the device; 0: unknown */
    bool                    gpu;
    json_t                 *document, *list;
    int                     failed;
} job;

/* --- one stage ---------------------------------------------------------------------------------------------------- */

/* The words of a stage as arguments; `line`: memory for them. */
static void arguments_of(const job *j, const stage *s, char *line, size_t size, const char *out, char *argv[])
{
    int n = 0;
    snprintf(line, size, "%s", s->words);
    argv[n++] = (char *)(uintptr_t)j->program;
    for (char *rest = line, *word; (word = strtok_r(rest, " ", &rest)) && n < MOST_WORDS;) {
        if (strcmp(word, "DEVICE") == 0) word = (char *)(uintptr_t)j->device;
        if (strcmp(word, "OUT") == 0) word = (char *)(uintptr_t)out;
        argv[n++] = word;
    }
    argv[n] = NULL;
}

/* What the stage printed or wrote; NULL: no JSON. */
static json_t *result_of(const stage *s, const tm_text *output, const char *out)
{
    char         path[TM_PROGRAM_PATH + 20];
    json_error_t why;
    if (!strstr(s->words, " OUT")) return tm_json_input(output->data ? output->data : "", output->length, 0, &why);
    snprintf(path, sizeof path, "%s/result.json", out);
    return tm_json_input_file(path, 0, &why);
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* In a few words. */
static void describe(const stage *s, const json_t *result, tm_text *said)
{
    const json_t *ops = json_object_get(result, "ops");
    if (strcmp(s->name, "kernels") == 0 && ops) {
        double calls = 0, wrong = 0;
        for (size_t i = 0; i < json_array_size(ops); i++) {
            calls += number(json_array_get(ops, i), "calls");
            wrong += number(json_array_get(ops, i), "wrong");
        }
        tm_text_printf(said, "%.0f calls of %d operations, %.0f wrong", calls, (int)json_array_size(ops), wrong);
    } else if (strstr(s->words, "run ") && json_object_get(result, "tokens_per_second_per_device")) {
        tm_text_printf(said, "%.4g tokens/s, loss %.4f to %.4f",
                       number(json_object_get(result, "tokens_per_second_per_device"), "median"),
                       number(json_object_get(result, "loss"), "first"),
                       number(json_object_get(result, "loss"), "last"));
    }
}

static const char *word_of(const stage *s, const child_end *end, bool late)
{
    if (late) return "late";
    if (end->code == 5 && s->findings) return "findings";
    return end->code == 0 ? "ok" : end->code == 3 ? "no verdict" : "failed";
}

static void add_stage(job *j, const stage *s, const char *result, const child_end *end, json_t *shown, const char *said)
{
    json_t *row = json_object();
    json_object_set_new(row, "stage", json_string(s->name));
    json_object_set_new(row, "command", json_string(s->words));
    json_object_set_new(row, "result", json_string(result));
    json_object_set_new(row, "exit", json_integer(end->code));
    json_object_set_new(row, "seconds", json_real(end->seconds));
    json_object_set_new(row, "said", json_string(said));
    json_object_set_new(row, "output", shown ? shown : json_null());
    json_array_append_new(j->list, row);
    tm_text line = { 0 };
    if (j->o->json) return;
    tm_text_printf(&line, "%-15s %-10s %6.1f s  %s\n", s->name, result, end->seconds, said);
    fputs(line.data, stdout);
    fflush(stdout);
    tm_text_fini(&line);
}

/* The whole file so far: what a machine that hangs has shown is not lost. */
static tm_status write_document(const job *j, tm_error *err)
{
    char *text = json_dumps(j->document, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    TM_ASSERT(text);
    tm_status st = tm_file_write(j->path, text, strlen(text), err);
    free(text);
    return st;
}

static tm_status print_document(const job *j, tm_error *err)
{
    tm_text out = { 0 };
    char   *text = json_dumps(j->document, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    TM_ASSERT(text);
    tm_text_printf(&out, "%s\n", text);
    tm_status st = tm_cli_print(&out, err);
    free(text);
    tm_text_fini(&out);
    return st;
}

static tm_status run_stage(job *j, const stage *s, tm_error *err)
{
    char       line[600], out[TM_PROGRAM_PATH];
    char      *argv[MOST_WORDS + 1];
    tm_scratch scratch;
    tm_text    output = { 0 }, said = { 0 };
    child_end  end;
    bool       late = false;
    TM_TRY(tm_scratch_make("trainmark-selftest", &scratch, err));
    snprintf(out, sizeof out, "%.3900s/run", scratch.path);
    arguments_of(j, s, line, sizeof line, out, argv);
    double    limit = s->seconds * j->o->minutes / 5;
    tm_status st = child_run_within((tm_process_options){ .argv = argv }, limit, &output, &end, &late, err);
    if (st == TM_OK) {
        json_t *shown = result_of(s, &output, out);
        describe(s, shown, &said);
        const char *gap = said.length ? "; " : "", *word = word_of(s, &end, late);
        if (late) tm_text_printf(&said, "%slonger than %.3g s", gap, limit);
        if (end.code != 0 && !late) tm_text_printf(&said, "%s%.600s", gap, end.words);
        add_stage(j, s, word, &end, shown, said.data ? said.data : "");
        j->failed += late || strcmp(word, "failed") == 0;
        st = write_document(j, err);
    }
    tm_text_fini(&output);
    tm_text_fini(&said);
    tm_scratch_remove(&scratch);
    return st;
}

static tm_status leave_out(job *j, const stage *s, tm_error *err)
{
    const child_end nothing = { .code = 0 };
    char            said[100];
    if (!j->gpu)
        snprintf(said, sizeof said, "for GPUs");
    else
        snprintf(said, sizeof said, "the device has %.0f GB, wanted %.0f", j->memory_bytes * 1e-9,
                 s->memory_bytes * 1e-9);
    add_stage(j, s, "skipped", &nothing, NULL, said);
    return write_document(j, err);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

/* The device that is wanted, or the first GPU, or the CPU; it must open. */
static tm_status choose_device(job *j, tm_error *err)
{
    static const char *const candidates[] = { "hip", "cuda", "cpu" };
    const size_t             n = sizeof candidates / sizeof candidates[0];
    for (size_t i = j->o->device ? n - 1 : 0; i < n; i++) {
        tm_device  *device;
        tm_error    own = { 0 };
        const char *name = j->o->device ? j->o->device : candidates[i];
        tm_status   st = tm_device_open(name, 0, &device, &own);
        if (st != TM_OK && i == n - 1) return tm_fail(err, st, "%s", own.text);
        if (st != TM_OK) continue;
        const tm_device_info *info = tm_device_describe(device);
        j->device = name;
        j->gpu = info->own_memory;
        j->memory_bytes = (double)info->memory_bytes;
        json_object_set_new(j->document, "device", json_string(name));
        json_object_set_new(j->document, "description", json_string(info->text));
        tm_device_close(device);
        return TM_OK;
    }
    TM_ASSERT(!"the CPU is always there");
    return TM_OK;
}

/* Every name of --only is one of a stage. */
static tm_status check_names(const char *only, tm_error *err)
{
    tm_text all = { 0 };
    for (int i = 0; i < STAGES; i++) tm_text_printf(&all, "%s%s", i ? ", " : "", stages[i].name);
    tm_status st = TM_OK;
    for (const char *at = only; at && *at && st == TM_OK;) {
        size_t n = strcspn(at, ",");
        bool   found = false;
        for (int i = 0; i < STAGES; i++) found |= strlen(stages[i].name) == n && strncmp(stages[i].name, at, n) == 0;
        if (!found)
            st = tm_fail(err, TM_USAGE, "--only '%.*s' is no stage; they are: %s", n < 60 ? (int)n : 60, at, all.data);
        at += n + (at[n] == ',');
    }
    tm_text_fini(&all);
    return st;
}

static bool wanted(const char *only, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = only; at && *at;) {
        size_t n = strcspn(at, ",");
        if (n == length && strncmp(at, name, n) == 0) return true;
        at += n + (at[n] == ',');
    }
    return !only;
}

static tm_status run_all(job *j, tm_error *err)
{
    char   stamp[40];
    time_t now = time(NULL);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    json_object_set_new(j->document, "schema", json_string("trainmark-selftest-1"));
    json_object_set_new(j->document, "version", json_string(TM_VERSION));
    json_object_set_new(j->document, "begun", json_string(stamp));
    TM_TRY(choose_device(j, err));
    json_object_set(j->document, "stages", j->list);
    for (int i = 0; i < STAGES; i++) {
        const stage *s = &stages[i];
        if (!wanted(j->o->only, s->name)) continue;
        bool fits = !s->gpu || (j->gpu && (s->memory_bytes == 0 || j->memory_bytes >= s->memory_bytes));
        TM_TRY(fits ? run_stage(j, s, err) : leave_out(j, s, err));
    }
    json_object_set_new(j->document, "failed", json_integer(j->failed));
    return write_document(j, err);
}

static tm_status list_stages(bool as_json, tm_error *err)
{
    tm_text out = { 0 };
    tm_json json = { .out = &out, .indent = true };
    if (as_json) tm_json_open(&json, NULL, '[');
    for (int i = 0; i < STAGES; i++) {
        const stage *s = &stages[i];
        if (!as_json) {
            tm_text_printf(&out, "%-15s %3d s  %s%s\n", s->name, s->seconds, s->shows, s->gpu ? " (GPUs)" : "");
            continue;
        }
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "stage", s->name);
        tm_json_string(&json, "command", s->words);
        tm_json_i64(&json, "seconds", s->seconds);
        tm_json_close(&json, '}');
    }
    if (as_json) tm_json_close(&json, ']');
    if (as_json) tm_text_add(&out, "\n");
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

static tm_status selftest(tm_cli_line *line, tm_error *err)
{
    const selftest_options *o = line->options;
    job                     j = { .o = o };
    if (o->list) return list_stages(o->json, err);
    TM_TRY(check_names(o->only, err));
    if (o->out)
        snprintf(j.path, sizeof j.path, "%s", o->out);
    else
        snprintf(j.path, sizeof j.path, "selftest-%lld.json", (long long)time(NULL));
    if (tm_file_exists(j.path)) return tm_fail(err, TM_INVALID, "'%s' is there; name another file with -o", j.path);
    TM_TRY(tm_file_check_writable(j.path, "-o", err));
    TM_TRY(tm_program_path(j.program, err));
    j.document = json_object(), j.list = json_array();
    tm_status st = run_all(&j, err);
    if (st == TM_OK && o->json) st = print_document(&j, err);
    json_decref(j.list), json_decref(j.document);
    if (st == TM_OK && !o->json) printf("%s holds all of it; it names this host and its settings\n", j.path);
    if (st == TM_OK && j.failed) st = tm_fail(err, TM_NEGATIVE, "%d stages failed; '%s' says how", j.failed, j.path);
    return st;
}

static const tm_option rows[] = {
    { "device", 0, TM_OPTION_TEXT, offsetof(selftest_options, device), .value = "NAME",
      .help = "cpu, cuda or hip (cuda:1: the second GPU); default: the first GPU, else the CPU" },
    { "only", 0, TM_OPTION_TEXT, offsetof(selftest_options, only), .value = "NAMES",
      .help = "stages by name, comma-separated; default: all" },
    { "minutes", 0, TM_OPTION_F64, offsetof(selftest_options, minutes), .value = "N", .fallback = "5", .lo = 0.01,
      .hi = 1000, .help = "what all stages may take together, about; each has its part" },
    { "out", 'o', TM_OPTION_TEXT, offsetof(selftest_options, out), .value = "FILE.json",
      .help = "a new file for what was found; default: selftest-TIME.json" },
    { "list", 0, TM_OPTION_FLAG, offsetof(selftest_options, list), .help = "list the stages and stop" },
    TM_OPTION_JSON(selftest_options),
};

const tm_cli_command tm_command_selftest = {
    .name = "selftest",
    .summary = "judge kernels, train, and measure in five minutes, as one file to send",
    .about = "Runs stages, each a command of this program in a process with a time limit: what the machine is, every "
             "kernel beside a reference, trainings to their verdict, rates of products and of steps. A stage that "
             "fails does not stop the next one. The file is written anew after every stage. Exit code 5: one failed.",
    TM_CLI_OPTIONS(rows, selftest_options),
    .run = selftest,
};
