/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/ab_session.c - the record of a session: kept, written, read, and turned into pairs. */
#include "apps/bench/ab.h"

#include "base/arena.h"
#include "stats/summary.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char        format_name[] = "trainmark.ab/1";
static const char *const side_names[TM_AB_SIDES] = { "A", "B", "A again" };
static const char *const kind_names[] = { "counted", "warmup" };
static const char *const end_names[TM_AB_ENDS] = { "budget", "target", "interrupted" };

enum { BLOCK_TURNS = 6, MOST_TURNS = 1 << 24 };

void tm_ab_session_fini(tm_ab_session *session)
{
    for (int64_t i = 0; i < session->n_turns; i++) free(session->turns[i].seconds);
    free(session->turns);
    free(session->a);
    free(session->b);
    free(session->a_build);
    free(session->b_build);
    *session = (tm_ab_session){ 0 };
}

void tm_ab_session_add(tm_ab_session *session, const tm_ab_turn *turn)
{
    size_t bytes = (size_t)turn->n * sizeof *turn->seconds;
    session->turns = tm_grow(session->turns, &session->room, (size_t)session->n_turns, sizeof *session->turns);
    tm_ab_turn *kept = &session->turns[session->n_turns++];
    *kept = *turn;
    kept->seconds = tm_alloc(bytes ? bytes : 1);
    if (bytes) memcpy(kept->seconds, turn->seconds, bytes);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

enum { ROUND_TURNS = 12 }; /* two for warm-up and two that count, of three processes */
static const double shortest_turn = 0.05, longest_turn = 0.2, turns_of_budget = 160;

double tm_ab_usual_turn(double budget_seconds)
{
    return fmin(longest_turn, fmax(shortest_turn, budget_seconds / turns_of_budget));
}

double tm_ab_budget_needed(const tm_ab_session *session)
{
    double seconds = 0, steps = 0, spare = 1.1 * TM_PAIRED_UNITS, turn = session->turn_seconds;
    if (session->n_turns == 0) return (double)NAN;
    for (int64_t i = 0; i < session->n_turns; i++) {
        steps += (double)session->turns[i].n;
        for (int64_t k = 0; k < session->turns[i].n; k++) seconds += session->turns[i].seconds[k];
    }
    double round = session->seconds * ROUND_TURNS / (double)session->n_turns, step = steps > 0 ? seconds / steps : 0;
    bool   usual = fabs(turn - tm_ab_usual_turn(session->budget_seconds)) < 1e-9;
    if (session->whole_runs || !usual || step >= longest_turn) return spare * round;
    /* With more budget a turn is longer, but no shorter than a step. */
    double rest = fmax(0, round - ROUND_TURNS * fmax(turn, step)), needed = 0;
    for (double budget = 1; budget < 1e7 && !(needed > 0 && needed <= budget); budget *= 1.02)
        needed = spare * (rest + ROUND_TURNS * fmax(step, tm_ab_usual_turn(budget)));
    return needed;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void print_turn(const tm_ab_turn *turn, tm_text *out)
{
    tm_json json = { .out = out };
    tm_json_open(&json, NULL, '{');
    tm_json_i64(&json, "round", turn->round);
    tm_json_i64(&json, "block", turn->block);
    tm_json_string(&json, "side", side_names[turn->side]);
    tm_json_string(&json, "kind", kind_names[turn->kind]);
    tm_json_i64(&json, "first_step", turn->first_step);
    tm_json_f64(&json, "tokens", turn->work);
    tm_json_i64(&json, "cut_steps", turn->cut);
    tm_json_open(&json, "step_seconds", '[');
    for (int64_t i = 0; i < turn->n; i++) tm_json_f64(&json, NULL, turn->seconds[i]);
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

void tm_ab_session_print(const tm_ab_session *session, tm_text *out)
{
    tm_json json = { .out = out };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "format", format_name);
    tm_json_string(&json, "a", session->a);
    tm_json_string(&json, "b", session->b);
    if (session->a_build) tm_json_string(&json, "a_build", session->a_build);
    if (session->b_build) tm_json_string(&json, "b_build", session->b_build);
    tm_json_bool(&json, "whole_runs", session->whole_runs);
    tm_json_f64(&json, "turn_seconds", session->turn_seconds);
    tm_json_f64(&json, "budget_seconds", session->budget_seconds);
    tm_json_f64(&json, "target", session->target);
    tm_json_i64(&json, "least_pairs", session->least_pairs);
    tm_json_f64(&json, "least_difference", session->least_difference);
    tm_json_i64(&json, "seed", (int64_t)session->seed);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
    for (int64_t i = 0; i < session->n_turns; i++) print_turn(&session->turns[i], out);
    json = (tm_json){ .out = out };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "end", end_names[session->end]);
    tm_json_f64(&json, "seconds", session->seconds);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *path;
    int64_t     line;
    json_t     *object;
    tm_error   *err;
} reader;

static tm_status bad(const reader *r, const char *what)
{
    return tm_fail(r->err, TM_FORMAT, "'%s', line %lld: %s; wanted a session.jsonl of `trainmark ab --out`", r->path,
                   (long long)r->line, what);
}

static bool take_number(const reader *r, const char *key, double lo, double hi, double *out)
{
    json_t *value = json_object_get(r->object, key);
    if (!json_is_number(value)) return false;
    *out = json_number_value(value);
    return *out >= lo && *out <= hi;
}

static bool take_integer(const reader *r, const char *key, int64_t lo, int64_t hi, int64_t *out)
{
    json_t *value = json_object_get(r->object, key);
    if (!json_is_integer(value)) return false;
    *out = json_integer_value(value);
    return *out >= lo && *out <= hi;
}

static bool take_bool(const reader *r, const char *key, bool *out)
{
    json_t *value = json_object_get(r->object, key);
    *out = json_is_true(value);
    return json_is_boolean(value);
}

static bool take_name(const reader *r, const char *key, const char *const *names, int n, int *out)
{
    const char *text = json_string_value(json_object_get(r->object, key));
    for (*out = 0; text && *out < n; (*out)++)
        if (strcmp(text, names[*out]) == 0) return true;
    return false;
}

static char *take_text(const reader *r, const char *key)
{
    const char *text = json_string_value(json_object_get(r->object, key));
    if (!text) return NULL;
    char *copy = tm_alloc(strlen(text) + 1);
    return strcpy(copy, text);
}

static tm_status parse_head(const reader *r, tm_ab_session *out)
{
    const char *format = json_string_value(json_object_get(r->object, "format"));
    int64_t     seed = 0;
    if (!format || strcmp(format, format_name) != 0)
        return bad(r, "the first line does not say \"format\": \"trainmark.ab/1\"");
    out->a = take_text(r, "a");
    out->b = take_text(r, "b");
    out->a_build = take_text(r, "a_build"); /* not in every record */
    out->b_build = take_text(r, "b_build");
    bool ok = out->a && out->b && take_bool(r, "whole_runs", &out->whole_runs) &&
              take_number(r, "turn_seconds", 0, 1e9, &out->turn_seconds) &&
              take_number(r, "budget_seconds", 0, 1e9, &out->budget_seconds) &&
              take_number(r, "target", 0, 1e9, &out->target) &&
              take_integer(r, "least_pairs", 0, INT64_MAX, &out->least_pairs) &&
              take_number(r, "least_difference", 0, 1e9, &out->least_difference) &&
              take_integer(r, "seed", INT64_MIN, INT64_MAX, &seed);
    out->seed = (uint64_t)seed;
    return ok ? TM_OK : bad(r, "a member of the first line is missing or out of range");
}

/* Blocks follow each other, and so do rounds: pairs and resampling count on it. */
static bool in_order(const tm_ab_session *session, const tm_ab_turn *turn)
{
    int64_t block = -1;
    if (session->n_turns == 0) return true;
    const tm_ab_turn *last = &session->turns[session->n_turns - 1];
    for (int64_t i = session->n_turns - 1; i >= 0 && block < 0; i--) block = session->turns[i].block;
    return turn->round >= last->round && (turn->block < 0 || turn->block >= block);
}

static tm_status parse_turn(const reader *r, tm_ab_session *out)
{
    tm_ab_turn turn = { 0 };
    int        side, kind;
    if (!take_integer(r, "round", 0, MOST_TURNS, &turn.round) ||
        !take_integer(r, "block", -1, MOST_TURNS, &turn.block) ||
        !take_name(r, "side", side_names, TM_AB_SIDES, &side) || !take_name(r, "kind", kind_names, 2, &kind) ||
        !take_integer(r, "first_step", 0, INT64_MAX, &turn.first_step) ||
        !take_number(r, "tokens", 0, 1e18, &turn.work) || (turn.work > 0 && turn.work < 1) ||
        !take_integer(r, "cut_steps", 0, MOST_TURNS, &turn.cut))
        return bad(r, "a member of the turn is missing or out of range");
    turn.side = (tm_ab_side)side;
    turn.kind = (tm_ab_kind)kind;
    if (turn.kind == TM_AB_COUNTED && turn.block < 0) return bad(r, "a turn that counts belongs to a block");
    if (out->n_turns >= MOST_TURNS || !in_order(out, &turn)) return bad(r, "rounds and blocks must follow each other");
    json_t *seconds = json_object_get(r->object, "step_seconds"), *value;
    size_t  i;
    if (!json_is_array(seconds)) return bad(r, "step_seconds is not a list");
    turn.n = (int64_t)json_array_size(seconds);
    if (turn.kind == TM_AB_COUNTED && turn.n == 0) return bad(r, "a turn that counts has at least one step");
    turn.seconds = tm_alloc(((size_t)turn.n + 1) * sizeof *turn.seconds);
    json_array_foreach(seconds, i, value)
    {
        turn.seconds[i] = json_number_value(value);
        if (json_is_number(value) && turn.seconds[i] > 0 && turn.seconds[i] <= 1e9) continue;
        free(turn.seconds);
        return bad(r, "a step does not have a positive number of seconds");
    }
    tm_ab_session_add(out, &turn);
    free(turn.seconds);
    return TM_OK;
}

static tm_status parse_end(const reader *r, tm_ab_session *out)
{
    int end;
    if (!take_name(r, "end", end_names, TM_AB_ENDS, &end) || !take_number(r, "seconds", 0, 1e9, &out->seconds))
        return bad(r, "a member of the last line is missing or out of range");
    out->end = (tm_ab_end)end;
    return TM_OK;
}

tm_status tm_ab_session_parse(const char *text, const char *path, tm_ab_session *out, tm_error *err)
{
    reader    r = { .path = path, .err = err };
    bool      ended = false;
    tm_status st = TM_OK;
    for (const char *line = text; *line && st == TM_OK;) {
        const char *end = strchr(line, '\n');
        size_t      n = end ? (size_t)(end - line) : strlen(line);
        r.line++;
        r.object = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(r.object))
            st = bad(&r, "not a JSON object");
        else if (r.line == 1)
            st = parse_head(&r, out);
        else if (ended)
            st = bad(&r, "a line after the end of the session");
        else if ((ended = json_object_get(r.object, "end") != NULL))
            st = parse_end(&r, out);
        else
            st = parse_turn(&r, out);
        json_decref(r.object);
        line += n + (end != NULL);
    }
    if (st == TM_OK && !ended) st = bad(&r, r.line == 0 ? "the file is empty" : "the session's last line is missing");
    return st;
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

/* Do all counted turns tell their tokens? */
static bool counts_tokens(const tm_ab_session *session)
{
    for (int64_t i = 0; i < session->n_turns; i++)
        if (session->turns[i].kind == TM_AB_COUNTED && !(session->turns[i].work > 0)) return false;
    return true;
}

static double sum_of(const tm_ab_turn *turn)
{
    double sum = 0;
    for (int64_t i = 0; i < turn->n; i++) sum += turn->seconds[i];
    return sum;
}

/* A complete block: two counted turns of each side among turns [0, n); false if it is not. */
static bool pair_of(const tm_ab_turn *turns, int64_t n, bool tokens, const int roles[TM_AB_SIDES], double b_factor,
                    tm_pair *out)
{
    double cost[TM_AB_SIDES][2] = { { 0 } };
    int    seen[TM_AB_SIDES] = { 0 };
    for (int64_t i = 0; i < n; i++) {
        int side = turns[i].side;
        if (turns[i].kind != TM_AB_COUNTED) continue;
        if (seen[side] == 2 || turns[i].round != turns[0].round) return false;
        cost[side][seen[side]++] = sum_of(&turns[i]) / (tokens ? turns[i].work : (double)turns[i].n);
    }
    for (int side = 0; side < TM_AB_SIDES; side++)
        if (seen[side] != 2) return false;
    double *b = cost[roles[TM_AB_B]];
    b[0] *= b_factor;
    b[1] *= b_factor;
    *out = tm_pair_of(cost[roles[TM_AB_A]], b, cost[roles[TM_AB_AGAIN]], turns[0].round);
    return true;
}

tm_pair *tm_ab_pairs(const tm_ab_session *session, int64_t from, int64_t to, const int roles[TM_AB_SIDES],
                     double b_factor, int64_t *n)
{
    static const int as_they_are[TM_AB_SIDES] = { TM_AB_A, TM_AB_B, TM_AB_AGAIN };
    TM_ASSERT(from >= 0 && from <= to && to <= session->n_turns);
    const tm_ab_turn *turns = session->turns;
    tm_pair          *pairs = tm_alloc((size_t)((to - from) / BLOCK_TURNS + 1) * sizeof *pairs);
    bool              tokens = counts_tokens(session);
    *n = 0;
    for (int64_t i = from, next; i < to; i = next) {
        next = i + 1;
        if (turns[i].block < 0) continue;
        while (next < to && (turns[next].block == turns[i].block || turns[next].block < 0)) next++;
        if (pair_of(&turns[i], next - i, tokens, roles ? roles : as_they_are, b_factor, &pairs[*n])) (*n)++;
    }
    return pairs;
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static double median(double *x, int64_t n)
{
    tm_stats_sort(x, n);
    return n == 0 ? (double)NAN : (x[(n - 1) / 2] + x[n / 2]) / 2;
}

tm_ab_figures tm_ab_figures_of(const tm_ab_session *session)
{
    int64_t       n;
    tm_pair      *pairs = tm_ab_pairs(session, 0, session->n_turns, NULL, 1, &n);
    tm_ab_figures f = { .paired = tm_paired_judge(pairs, n, session->least_difference),
                        .tokens = counts_tokens(session) };
    free(pairs);
    double *step = tm_alloc(((size_t)session->n_turns + 1) * sizeof *step);
    double *rate = tm_alloc(((size_t)session->n_turns + 1) * sizeof *rate);
    for (int side = 0; side < 2; side++) {
        int64_t found = 0;
        for (int64_t i = 0; i < session->n_turns; i++) {
            const tm_ab_turn *turn = &session->turns[i];
            if (turn->kind != TM_AB_COUNTED || (turn->side == TM_AB_B) != side) continue;
            step[found] = sum_of(turn) / (double)turn->n;
            rate[found++] = turn->work / sum_of(turn);
        }
        f.step_seconds[side] = median(step, found);
        f.tokens_per_second[side] = f.tokens ? median(rate, found) : (double)NAN;
    }
    for (int64_t i = 0; i < session->n_turns; i++) {
        bool counted = session->turns[i].kind == TM_AB_COUNTED;
        f.turns += counted;
        f.warmup_turns += !counted;
        *(counted ? &f.steps : &f.warmup_steps) += session->turns[i].n;
        f.cut_steps += session->turns[i].cut;
    }
    free(step);
    free(rate);
    return f;
}
