/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/rows.h"

#include "base/csv.h"
#include "base/file.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(id, name, must it be there) */
#define COLUMNS(X)                                                                                                     \
    X(ID, "id", 1)                                                                                                     \
    X(SOURCE, "source", 1)                                                                                             \
    X(DATE, "date", 0)                                                                                                 \
    X(MODEL, "model", 1)                                                                                               \
    X(HARDWARE, "hardware", 1)                                                                                         \
    X(GPUS, "gpus", 1)                                                                                                 \
    X(PRECISION, "precision", 1)                                                                                       \
    X(DP, "dp", 0)                                                                                                     \
    X(TP, "tp", 0)                                                                                                     \
    X(PP, "pp", 0)                                                                                                     \
    X(VP, "vp", 0)                                                                                                     \
    X(CP, "cp", 0)                                                                                                     \
    X(EP, "ep", 0)                                                                                                     \
    X(MICRO_BATCH, "micro_batch", 0)                                                                                   \
    X(GLOBAL_BATCH, "global_batch", 0)                                                                                 \
    X(SEQ, "seq", 0)                                                                                                   \
    X(RECOMPUTE, "recompute", 0)                                                                                       \
    X(METRIC, "metric", 1)                                                                                             \
    X(UNIT, "unit", 1)                                                                                                 \
    X(CONVENTION, "convention", 0)                                                                                     \
    X(VALUE, "value", 1)                                                                                               \
    X(NOTES, "notes", 0)
enum {
#define X(id, name, needed) COL_##id,
    COLUMNS(X)
#undef X
        N_COLUMNS
};
static const char *const column_names[] = {
#define X(id, name, needed) name,
    COLUMNS(X)
#undef X
};
static const bool column_needed[] = {
#define X(id, name, needed) needed,
    COLUMNS(X)
#undef X
};

typedef struct {
    tm_arena   *arena;
    const char *path;
    int         line;
    int         at[N_COLUMNS]; /* the cell's place in the file; -1: there is none */
    const char *cell[N_COLUMNS];
} reader;

/* --- cells ----------------------------------------------------------------------------------------------------------
 */

/* A number, perhaps with a question mark behind it; 0: empty, or none. */
static double number(const char *cell)
{
    char  *end;
    double value = strtod(cell, &end);
    if (end == cell || value < 0 || !isfinite(value)) return 0;
    return value;
}

static bool mentions(const char *text, const char *word)
{
    for (size_t n = strlen(word); *text; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
}

static tm_status check_numbers(const reader *r, tm_error *err)
{
    static const int whole[] = { COL_GPUS, COL_DP, COL_TP,          COL_PP,           COL_VP,
                                 COL_CP,   COL_EP, COL_MICRO_BATCH, COL_GLOBAL_BATCH, COL_SEQ };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        const char *cell = r->cell[whole[i]];
        double      value = number(cell);
        if (*cell && strcmp(cell, "?") != 0 && (value < 1 || value > 1e9 || value != floor(value)))
            return tm_fail(err, TM_FORMAT, "%s:%d: %s is '%.40s'; wanted a whole number from 1 on, or nothing", r->path,
                           r->line, column_names[whole[i]], cell);
    }
    if (!(number(r->cell[COL_VALUE]) > 0))
        return tm_fail(err, TM_FORMAT, "%s:%d: value is '%.40s'; wanted a number above 0", r->path, r->line,
                       r->cell[COL_VALUE]);
    return number(r->cell[COL_GPUS]) > 0
               ? TM_OK
               : tm_fail(err, TM_FORMAT, "%s:%d: gpus is empty; wanted how many devices", r->path, r->line);
}

/* --- what a row says ------------------------------------------------------------------------------------------------
 */

/* A built-in name that the cell begins with, the longest; or one of these. */
static const char *hardware_name(tm_arena *arena, const char *cell)
{
    static const char *const others[][2] = { { "B200 power-limited", "B200-limited" },
                                             { "H100-96G", "H100-96GB" },
                                             { "A100", "A100-80GB" } };
    const char              *name, *best = NULL;
    for (size_t i = 0; (name = tm_hardware_name(arena, i)) != NULL; i++) {
        size_t n = strlen(name);
        if (strncasecmp(cell, name, n) == 0 && !isalnum((unsigned char)cell[n]) && (!best || n > strlen(best)))
            best = name;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strncasecmp(cell, others[i][0], strlen(others[i][0])) == 0 &&
            (!best || strlen(others[i][0]) > strlen(best)))
            return others[i][1];
    return best;
}

/* "Llama-2-70B LoRA": the words behind the name say what is trained of it. */
static const char *read_model(reader *r, tm_published_row *row, int64_t *seq)
{
    static const char *const words[] = { " LoRA", " SFT", " full", " noMTP", " QLoRA", " pretrain" };
    char                    *name = tm_arena_text(r->arena, row->model);
    tm_their_job            *j = &row->job;
    j->adapter = mentions(name, "lora");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(name), w = strlen(words[i]);
        if (n <= w || strcasecmp(name + n - w, words[i]) != 0) continue;
        name[n - w] = '\0';
        i = (size_t)-1; /* there may be another */
    }
    if (!tm_published_model(name, &j->shape, seq))
        return tm_arena_format(r->arena, "the model '%s' is not known", row->model);
    if (tm_model_images(&j->shape)) return "images are not described for other trainers";
    j->predicted_tokens = strcmp(name, "DeepSeek-V3") == 0 && !mentions(row->model, "noMTP");
    return NULL;
}

static const char *read_precision(tm_published_row *row)
{
    const char *p = row->precision;
    row->job.rows = mentions(p, "row");
    row->job.format = mentions(p, "fp4")                                                      ? TM_RATE_FP4
                      : mentions(p, "fp8")                                                    ? TM_RATE_FP8
                      : mentions(p, "bf16") || mentions(p, "fp16") || mentions(p, "bfloat16") ? TM_RATE_BF16
                                                                                              : TM_RATE_F32;
    if (row->job.format == TM_RATE_F32 && !mentions(p, "fp32") && !mentions(p, "float32"))
        return "the precision is not known";
    return tm_rate_best(&row->device, row->job.format) > 0 ? NULL : "the hardware file has no rate for that precision";
}

/* What notes say of how it was run. */
static void read_notes(tm_published_row *row)
{
    tm_their_job *j = &row->job;
    const char   *batch = strstr(row->notes, "local batch ");
    if (mentions(row->notes, "torchtune")) j->trainer = tm_trainer_row_find("torchtune");
    j->sharing = mentions(row->notes, "DDP")                                        ? TM_THEY_SHARE_NOTHING
                 : mentions(row->notes, "FSDP") && !mentions(row->notes, "no FSDP") ? TM_THEY_SHARE_ALL
                                                                                    : j->trainer->sharing;
    j->fusion =
        mentions(row->notes, "eager") || mentions(row->notes, "no compile") ? TM_THEY_EAGER : j->trainer->fusion;
    j->plain_tensor = mentions(row->notes, "vanilla TP") || mentions(row->notes, " sync TP");
    j->bubble = mentions(row->notes, "zero-bubble") || mentions(row->notes, "zbv") || mentions(row->notes, "DualPipe")
                    ? 1.0 / 3
                    : 1;
    if (batch && j->accumulation <= 0) j->accumulation = strtod(batch + strlen("local batch "), NULL) / j->micro_batch;
}

static tm_again read_again(const char *cell)
{
    if (!*cell) return TM_AGAIN_UNKNOWN;
    if (mentions(cell, "full")) return TM_AGAIN_FULL;
    if (mentions(cell, "SAC") || mentions(cell, "per-op")) return TM_AGAIN_PER_OP;
    return mentions(cell, "selective") ? TM_AGAIN_ATTENTION : TM_AGAIN_NONE;
}

/* Not published: no parts but of experts, which as many devices hold as divide them; two stages of a rank; a step of
 * one micro-batch, in pipelines of eight for each stage. */
static const char *read_layout(reader *r, tm_published_row *row, int64_t seq)
{
    tm_their_job *j = &row->job;
    int           degree[6];
    for (int i = 0; i < 6; i++) degree[i] = (int)number(r->cell[COL_DP + i]);
    j->devices = (int)number(r->cell[COL_GPUS]);
    j->layout_known = degree[1] > 0;
    j->tp = degree[1] ? degree[1] : 1;
    j->pp = degree[2] ? degree[2] : 1;
    row->interleaved = degree[3] > 0;
    j->vp = degree[3] ? degree[3] : j->pp > 1 ? 2 : 1;
    j->cp = degree[4] ? degree[4] : 1;
    if (j->devices % (j->tp * j->pp * j->cp) != 0) return "tp x pp x cp do not divide the number of devices";
    j->dp = degree[0] ? degree[0] : j->devices / (j->tp * j->pp * j->cp);
    j->ep = degree[5] ? degree[5] : 1;
    if (!degree[5] && j->shape.moe.experts > 0)
        for (int n = 1; n <= j->devices && n <= j->shape.moe.experts; n++)
            if (j->devices % n == 0 && j->shape.moe.experts % n == 0) j->ep = n;
    if (j->dp * j->tp * j->pp * j->cp != j->devices) return "dp x tp x pp x cp is not the number of devices";
    if (j->shape.moe.experts == 0 && j->ep > 1) return "the model has no experts that ep could divide";
    if (j->shape.moe.experts % j->ep != 0) return "ep does not divide the experts";
    if (j->shape.n_layers < j->pp) return "there are more stages than layers";
    j->micro_batch = number(r->cell[COL_MICRO_BATCH]);
    row->sized = j->micro_batch > 0;
    if (!row->sized) j->micro_batch = 1;
    j->seq = number(r->cell[COL_SEQ]);
    if (j->seq <= 0) j->seq = (double)seq;
    double global = number(r->cell[COL_GLOBAL_BATCH]);
    j->sequences = global;
    j->accumulation = global > 0 ? fmax(1, floor(global / j->dp / j->micro_batch)) : 0;
    j->again = read_again(r->cell[COL_RECOMPUTE]);
    return NULL;
}

/* --- what was published ---------------------------------------------------------------------------------------------
 */

/* FLOPs of a token with the forward pass twice: Narayanan et al. 2021, equation 3. */
static double with_recompute(const tm_model_shape *s, double seq)
{
    double l = (double)s->n_layers, d = (double)s->dim;
    return 96 * l * d * d * (1 + seq / (6 * d) + (double)s->vocab_size / (16 * l * d));
}

static double flops(const tm_published_row *row, const char *convention)
{
    const tm_model_shape *s = &row->job.shape;
    int64_t               seq = (int64_t)row->job.seq;
    if (mentions(convention, "recompute") || mentions(convention, "HFU")) return with_recompute(s, row->job.seq);
    return tm_model_flops_per_token(s,
                                    mentions(convention, "F2")   ? TM_FLOPS_MATMUL
                                    : mentions(convention, "F3") ? TM_FLOPS_MEGATRON
                                    : mentions(convention, "6N") ? TM_FLOPS_6N
                                                                 : TM_FLOPS_TITAN,
                                    seq);
}

static const char *read_speed(reader *r, tm_published_row *row)
{
    const tm_their_job *j = &row->job;
    double              value = number(r->cell[COL_VALUE]), tokens = j->accumulation * j->micro_batch * j->dp * j->seq;
    const char         *unit = r->cell[COL_UNIT], *convention = r->cell[COL_CONVENTION];
    double              peak = tm_rate_peak(&row->device, j->format);
    if (strcmp(unit, "tok/s/GPU") == 0)
        row->published = value;
    else if (strcmp(unit, "tok/s total") == 0 || strcmp(unit, "tok/s") == 0)
        row->published = value / j->devices;
    else if (strcmp(unit, "samples/s") == 0)
        row->published = value * j->seq / j->devices;
    else if (strcmp(unit, "s") == 0 || strcmp(unit, "s/step") == 0)
        row->published = tokens / value / j->devices;
    else if (strncmp(unit, "TFLOP", 5) == 0)
        row->published = value * 1e12 / flops(row, convention);
    else if (strcmp(unit, "%") == 0)
        row->published = value / 100 * peak * 1e12 / flops(row, convention);
    else
        return "the unit is not known: wanted tok/s/GPU, tok/s total, samples/s, s, TFLOPS/GPU or %";
    return NULL;
}

static const char *read_published(reader *r, tm_published_row *row)
{
    const char *metric = r->cell[COL_METRIC], *unit = r->cell[COL_UNIT];
    double      value = number(r->cell[COL_VALUE]);
    row->kind = mentions(metric, "batch") || strcmp(unit, "seq") == 0                             ? TM_ROW_BATCH
                : strcmp(unit, "GiB") == 0 || strcmp(unit, "GB") == 0 || mentions(metric, "peak") ? TM_ROW_MEMORY
                                                                                                  : TM_ROW_SPEED;
    row->part = mentions(metric, "activation")  ? TM_ROW_KEPT
                : mentions(metric, "optimizer") ? TM_ROW_STATE
                                                : TM_ROW_ALL;
    row->published = value;
    row->largest = row->kind == TM_ROW_BATCH && mentions(metric, "max");
    if (row->kind == TM_ROW_MEMORY) row->published = value * (strcmp(unit, "GiB") == 0 ? 0x1p30 : 1e9);
    return row->kind == TM_ROW_SPEED ? read_speed(r, row) : NULL;
}

/* A date, or that of a container: "cont 26.04". */
static bool before_2026_05(const char *date)
{
    if (strncmp(date, "cont ", 5) == 0) return strcmp(date + 5, "26.05") < 0;
    return *date && strcmp(date, "2026-05") < 0;
}

static const char *read_row(reader *r, tm_published_row *row)
{
    int64_t     seq = 0;
    const char *name = hardware_name(r->arena, row->hardware), *why;
    tm_error    own = { 0 };
    if (!name) return tm_arena_format(r->arena, "there is no hardware file for '%s'", row->hardware);
    if (tm_hardware_read(r->arena, name, &row->device, &own) != TM_OK) return tm_arena_text(r->arena, own.text);
    row->job.device = &row->device;
    row->job.trainer = tm_trainer_row_of(row->source);
    if (!row->job.trainer) row->job.trainer = tm_trainer_row_find("megatron");
    if ((why = read_model(r, row, &seq)) != NULL) return why;
    if ((why = read_precision(row)) != NULL) return why;
    if ((why = read_layout(r, row, seq)) != NULL) return why;
    read_notes(row);
    if (strcmp(row->job.trainer->name, "ptb") == 0 && row->job.shape.window > 0)
        row->job.shape.window = 1024; /* its own */
    if (row->job.accumulation <= 0) row->job.accumulation = row->job.pp > 1 ? 8 * row->job.pp : 1;
    row->job.early = row->job.trainer->early || (*row->date && strcmp(row->date, "2023") < 0);
    row->job.permutes_apart =
        row->job.trainer->permutes_apart ||
        (row->job.fusion == TM_THEY_FUSE && before_2026_05(row->date) && !mentions(row->notes, "DualPipe"));
    /* Since 2025 torchtitan compiles the loss, too. */
    row->job.fused_loss = row->job.fusion == TM_THEY_COMPILE && strcmp(row->job.trainer->name, "torchtitan") == 0 &&
                          !(*row->date && strcmp(row->date, "2025") < 0);
    row->job.sequence_parallel = !row->job.early || mentions(r->cell[COL_RECOMPUTE], "SP");
    return read_published(r, row);
}

/* --- the file -------------------------------------------------------------------------------------------------------
 */

enum { MOST_CELLS = 64 };

static tm_status read_head(reader *r, const tm_text *cells, const size_t *offsets, size_t n, tm_error *err)
{
    for (int c = 0; c < N_COLUMNS; c++) {
        r->at[c] = -1;
        for (size_t i = 0; i < n; i++)
            if (strcmp(cells->data + offsets[i], column_names[c]) == 0) r->at[c] = (int)i;
        if (r->at[c] < 0 && column_needed[c])
            return tm_fail(err, TM_FORMAT, "%s:1: no column '%s'; docs/plan.md lists the columns", r->path,
                           column_names[c]);
    }
    return TM_OK;
}

/* Does a source give the stages of a rank? Then there is one where it does not. */
static bool says_interleaved(const tm_published_rows *rows, const char *source)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->row[i].interleaved && strcmp(rows->row[i].source, source) == 0) return true;
    return false;
}

tm_status tm_rows_read(tm_arena *arena, const char *path, tm_published_rows *out, tm_error *err)
{
    reader      r = { .arena = arena, .path = path };
    tm_text     file = { 0 }, cells = { 0 };
    size_t      offsets[MOST_CELLS], n, room = 0;
    tm_status   st = tm_file_read(path, (size_t)16 << 20, &file, err);
    const char *at = file.data ? file.data : "";
    *out = (tm_published_rows){ 0 };
    if (st == TM_OK && (n = tm_csv_read(&at, &cells, offsets, MOST_CELLS)) > 0 && n <= MOST_CELLS)
        st = read_head(&r, &cells, offsets, n, err);
    else if (st == TM_OK)
        st = tm_fail(err, TM_FORMAT, "%s: no line with the names of columns", path);
    for (const char *c = at; *c; c++) room += *c == '\n';
    if (st == TM_OK) out->row = tm_arena_take(arena, (room + 1) * sizeof *out->row);
    for (r.line = 2; st == TM_OK && (n = tm_csv_read(&at, &cells, offsets, MOST_CELLS)) > 0; r.line++) {
        if (n == 1 && cells.data[offsets[0]] == '\0') continue;
        if (n > MOST_CELLS) st = tm_fail(err, TM_FORMAT, "%s:%d: more than %d cells", path, r.line, MOST_CELLS);
        if (st != TM_OK) break;
        for (int c = 0; c < N_COLUMNS; c++)
            r.cell[c] = r.at[c] >= 0 && (size_t)r.at[c] < n ? tm_arena_text(arena, cells.data + offsets[r.at[c]]) : "";
        if ((st = check_numbers(&r, err)) != TM_OK) break;
        tm_published_row *row = &out->row[out->n++];
        *row = (tm_published_row){ .line = r.line, .id = r.cell[COL_ID], .source = r.cell[COL_SOURCE] };
        row->date = r.cell[COL_DATE];
        row->model = r.cell[COL_MODEL];
        row->hardware = r.cell[COL_HARDWARE];
        row->precision = r.cell[COL_PRECISION];
        row->notes = r.cell[COL_NOTES];
        row->refused = read_row(&r, row);
    }
    for (size_t i = 0; i < out->n; i++)
        if (!out->row[i].interleaved && says_interleaved(out, out->row[i].source)) out->row[i].job.vp = 1;
    tm_text_fini(&cells);
    tm_text_fini(&file);
    return st;
}

/* --- predictions ----------------------------------------------------------------------------------------------------
 */

/* Sequences of the largest micro-batch that fits without more recomputation than is said. */
static double largest_batch(tm_their_job job, const tm_parameters *p)
{
    double   batch = 0, room = tm_their_room(job.device, p);
    tm_again how = job.again == TM_AGAIN_UNKNOWN ? TM_AGAIN_NONE : job.again;
    for (job.micro_batch = 1; job.micro_batch <= 4096; job.micro_batch++) {
        if (tm_their_memory_of(&job, how, p).needed > room) break;
        batch = job.micro_batch;
    }
    return batch;
}

double tm_row_predict(const tm_published_row *row, const tm_parameters *p)
{
    tm_their_job job = row->job;
    if (row->kind == TM_ROW_BATCH) return largest_batch(job, p);
    tm_their_layout(&job, p);
    if (row->kind == TM_ROW_SPEED) return tm_their_time_of(&job, p).tokens_per_second;
    tm_again        how = job.again == TM_AGAIN_UNKNOWN ? tm_their_again(&job, p) : job.again;
    tm_their_memory m = tm_their_memory_of(&job, how, p);
    if (row->part == TM_ROW_KEPT) return m.bytes[TM_THEIRS_ACTIVATIONS];
    return row->part == TM_ROW_ALL
               ? m.total
               : m.bytes[TM_THEIRS_WEIGHTS] + m.bytes[TM_THEIRS_GRADIENTS] + m.bytes[TM_THEIRS_OPTIMIZER];
}

static bool fits(const tm_their_job *job, double micro_batch, const tm_parameters *p)
{
    tm_their_job own = *job;
    own.micro_batch = micro_batch;
    return tm_their_memory_of(&own, own.again, p).needed <= tm_their_room(own.device, p);
}

int tm_row_verdicts(const tm_published_row *row, const tm_parameters *p, bool right[2])
{
    const tm_their_job *job = &row->job;
    bool                batch = row->kind == TM_ROW_BATCH;
    int                 n = 0;
    if (row->refused || job->again == TM_AGAIN_UNKNOWN || !job->layout_known || row->part != TM_ROW_ALL) return 0;
    if (!batch && !row->sized) return 0;
    right[n++] = fits(job, batch ? row->published : job->micro_batch, p);
    if (row->largest) right[n++] = !fits(job, row->published + 1, p);
    return n;
}
