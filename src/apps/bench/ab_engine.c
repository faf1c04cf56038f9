/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/ab_engine.c - a live session: who plays when, and when it is over. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "apps/bench/ab.h"
#include "apps/bench/ab_player.h"
#include "stats/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WARMUP_TURNS = 2,   /* of each process; the first holds page faults and cold caches */
    ROUNDS_WANTED = 12, /* in the budget, of at most ROUND_SECONDS: the fewer, the wider the interval */
    ROUND_SECONDS = 10,
    ROUNDS_LEAST = TM_PAIRED_UNITS + 1 /* for which rounds are made shorter */
};

typedef struct {
    const tm_ab_options *options;
    tm_ab_session       *session;
    ab_player            players[TM_AB_SIDES];
    tm_process          *living[TM_AB_SIDES];
    regex_t              patterns[2];
    tm_text              room;
    ab_table             table;
    int64_t              begin_ns, drawn_ns;
    int64_t              round, block;     /* under way */
    int64_t              blocks_per_round; /* 0: not known yet */
    double               startup_seconds, block_seconds;
    bool                 over;
} engine;

static double passed(const engine *e)
{
    return (double)(tm_now_ns() - e->begin_ns) * 1e-9;
}

static double left(const engine *e)
{
    return e->options->budget_seconds - passed(e);
}

/* One of the six orders of three; each comes once in six draws in a row. */
static void shuffled(uint64_t seed, const char *purpose, int64_t draw, int order[TM_AB_SIDES])
{
    static const int orders[6][TM_AB_SIDES] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                                { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    uint64_t         stream = tm_random_stream(purpose) + (uint64_t)(draw / 6);
    memcpy(order, orders[tm_random_permute(seed, stream, (uint64_t)(draw % 6), 6)], sizeof orders[0]);
}

static void draw_progress(engine *e)
{
    int64_t now = tm_now_ns(), n;
    if (!e->options->progress || now - e->drawn_ns < 500000000) return;
    tm_pair         *pairs = tm_ab_pairs(e->session, 0, e->session->n_turns, NULL, 1, &n);
    tm_paired_result r = tm_paired_judge(pairs, n, e->options->least_difference);
    free(pairs);
    fprintf(e->options->progress, "\r\033[K%.0f of %.0f s, round %lld, %lld pairs", passed(e),
            e->options->budget_seconds, (long long)e->round + 1, (long long)n);
    if (r.half_width > 0) fprintf(e->options->progress, ": B / A %.4f +- %.2f %%", r.b.ratio, 100 * r.half_width);
    fflush(e->options->progress);
    e->drawn_ns = now;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

static tm_status heed(engine *e, ab_turn_end end, tm_error *err)
{
    if (end == AB_TURN_OUT_OF_TIME) e->over = true;
    if (end != AB_TURN_INTERRUPTED) return TM_OK;
    e->session->end = TM_AB_END_INTERRUPTED;
    return tm_fail(err, TM_INTERRUPTED, "stopped after %.1f s", passed(e));
}

static tm_status live_turn(engine *e, tm_ab_side side, tm_ab_kind kind, tm_error *err)
{
    tm_ab_turn turn = { .round = e->round, .block = kind == TM_AB_COUNTED ? e->block : -1, .side = side, .kind = kind };
    ab_turn_end end;
    TM_TRY(ab_player_turn(&e->players[side], e->options->turn_seconds, &e->table, &e->room, &turn, &end, err));
    if (end == AB_TURN_DONE) tm_ab_session_add(e->session, &turn);
    return heed(e, end, err);
}

/* A whole run: started, run to its end. Its warm-up steps are a turn that does not count. */
static tm_status run_turn(engine *e, tm_ab_side side, tm_error *err)
{
    ab_player  *player = &e->players[side];
    tm_ab_turn  turn = { .round = e->round, .block = e->block, .side = side };
    ab_turn_end end = AB_TURN_DONE;
    TM_TRY(ab_player_start(player, e->options->folder, false, err));
    e->living[side] = player->process;
    TM_TRY(ab_player_turn(player, (double)INFINITY, &e->table, &e->room, &turn, &end, err));
    e->living[side] = NULL;
    ab_player_end(player);
    if (end != AB_TURN_DONE) return heed(e, end, err);
    int64_t warm = tm_stats_steady(turn.seconds, turn.n).warmup;
    if (warm == 0) warm = 1; /* the first step is never like the others */
    if (turn.n <= warm)
        return tm_fail(err, TM_INVALID,
                       "a whole run of %s (%.200s) has %lld step(s), and the first does not count; let it do "
                       "more steps",
                       player->name, player->program->text, (long long)turn.n);
    tm_ab_turn first = turn;
    first.kind = TM_AB_WARMUP;
    first.block = -1;
    first.n = warm;
    first.work = turn.work * (double)warm / (double)turn.n;
    tm_ab_session_add(e->session, &first);
    turn.work -= first.work;
    turn.first_step += warm;
    turn.seconds += warm;
    turn.n -= warm;
    turn.cut = 0;
    tm_ab_session_add(e->session, &turn);
    return TM_OK;
}

/* x y z z y x. */
static tm_status play_block(engine *e, tm_error *err)
{
    int     order[TM_AB_SIDES];
    int64_t begin = tm_now_ns();
    shuffled(e->options->seed, "bench.ab.block", e->block, order);
    for (int i = 0; i < 2 * TM_AB_SIDES && !e->over; i++) {
        tm_ab_side side = (tm_ab_side)order[i < TM_AB_SIDES ? i : 2 * TM_AB_SIDES - 1 - i];
        TM_TRY(e->options->whole_runs ? run_turn(e, side, err) : live_turn(e, side, TM_AB_COUNTED, err));
    }
    e->block++;
    e->block_seconds = (double)(tm_now_ns() - begin) * 1e-9;
    draw_progress(e);
    return TM_OK;
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static void close_round(engine *e)
{
    for (int i = 0; i < TM_AB_SIDES; i++) {
        ab_player_end(&e->players[i]);
        e->living[i] = NULL;
    }
}

static tm_status open_round(engine *e, tm_error *err)
{
    int     order[TM_AB_SIDES];
    int64_t begin = tm_now_ns();
    if (e->options->whole_runs) return TM_OK;
    shuffled(e->options->seed, "bench.ab.start", e->round, order);
    for (int i = 0; i < TM_AB_SIDES && !e->over; i++) {
        TM_TRY(ab_player_start(&e->players[order[i]], e->options->folder, true, err));
        e->living[order[i]] = e->players[order[i]].process;
        for (int k = 0; k < WARMUP_TURNS && !e->over; k++)
            TM_TRY(live_turn(e, (tm_ab_side)order[i], TM_AB_WARMUP, err));
    }
    e->startup_seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return TM_OK;
}

/* After the first block: how long a round is. Long enough that starting takes less than half of it, but only rounds are
 * independent: if then too few fit into the budget, they are shorter. */
static void plan_rounds(engine *e)
{
    double budget = e->options->budget_seconds, wanted = fmin(budget / ROUNDS_WANTED, ROUND_SECONDS);
    double blocks = ceil(fmax(wanted - e->startup_seconds, e->startup_seconds) / e->block_seconds);
    double room = floor((budget / ROUNDS_LEAST - e->startup_seconds) / e->block_seconds);
    e->blocks_per_round = e->options->whole_runs ? 1 : (int64_t)fmax(1, fmin(fmax(blocks, 2), room));
}

/* Once, when the first round is known. */
static void tell_budget(engine *e)
{
    e->session->seconds = passed(e);
    double needed = tm_ab_budget_needed(e->session);
    if (e->round > 0 || !(needed > e->options->budget_seconds)) return;
    tm_note(
        "a verdict takes %d rounds, and one takes %.1f s: --budget %g is too short; the verdict will say what it takes",
        TM_PAIRED_UNITS, e->startup_seconds + e->block_seconds, e->options->budget_seconds);
}

static bool enough(const engine *e)
{
    int64_t n;
    if (!(e->options->target > 0) || e->over) return false;
    tm_pair         *pairs = tm_ab_pairs(e->session, 0, e->session->n_turns, NULL, 1, &n);
    tm_paired_result r = tm_paired_judge(pairs, n, e->options->least_difference);
    free(pairs);
    return tm_paired_enough(&r, e->options->target, e->options->least_pairs);
}

static void settle(engine *e, double next_seconds)
{
    if (enough(e)) {
        e->over = true;
        e->session->end = TM_AB_END_TARGET;
    } else if (left(e) < next_seconds) {
        e->over = true;
    }
}

static tm_status play_round(engine *e, tm_error *err)
{
    TM_TRY(open_round(e, err));
    for (int64_t k = 0; !e->over && (e->blocks_per_round == 0 || k < e->blocks_per_round); k++) {
        TM_TRY(play_block(e, err));
        if (e->over) break;
        if (e->blocks_per_round == 0) {
            plan_rounds(e);
            tell_budget(e);
        }
        if (k + 1 < e->blocks_per_round && left(e) < e->block_seconds) e->over = true;
    }
    close_round(e);
    if (!e->over) settle(e, e->startup_seconds + e->block_seconds);
    e->round++;
    return TM_OK;
}

/* --- begin and end ------------------------------------------------------------------------------------------------ */

static tm_status compile_pattern(const tm_ab_program *program, regex_t *room, regex_t **out, tm_error *err)
{
    char why[128];
    if (!program->pattern || program->turns) return TM_OK;
    int code = regcomp(room, program->pattern, REG_EXTENDED | REG_NOSUB);
    if (code == 0) {
        *out = room;
        return TM_OK;
    }
    regerror(code, room, why, sizeof why);
    return tm_fail(err, TM_INVALID, "'%.200s' is not an extended regular expression: %s", program->pattern, why);
}

static char *copy_of(const char *text)
{
    return text ? strcpy(tm_alloc(strlen(text) + 1), text) : NULL;
}

static void begin(engine *e)
{
    static const char *const names[] = { "A", "B", "A again" };
    const tm_ab_options     *o = e->options;
    *e->session = (tm_ab_session){ .whole_runs = o->whole_runs,
                                   .turn_seconds = o->turn_seconds,
                                   .budget_seconds = o->budget_seconds,
                                   .target = o->target,
                                   .least_pairs = o->least_pairs,
                                   .least_difference = o->least_difference,
                                   .seed = o->seed,
                                   .end = TM_AB_END_BUDGET };
    e->session->a = copy_of(o->a.text);
    e->session->b = copy_of(o->b.text);
    e->session->a_build = copy_of(o->a.build);
    e->session->b_build = copy_of(o->b.build);
    e->begin_ns = tm_now_ns();
    e->table = (ab_table){ .all = e->living,
                           .n_all = TM_AB_SIDES,
                           .stop = o->stop,
                           .until_ns = e->begin_ns + (int64_t)(o->budget_seconds * 1e9) };
    for (int i = 0; i < TM_AB_SIDES; i++)
        e->players[i] = (ab_player){ .program = i == TM_AB_B ? &o->b : &o->a, .name = names[i] };
}

static tm_status conclude(engine *e, tm_error *err)
{
    int64_t n;
    free(tm_ab_pairs(e->session, 0, e->session->n_turns, NULL, 1, &n));
    if (n > 0) return TM_OK;
    double needed = tm_ab_budget_needed(e->session);
    char   enough_text[64] = "";
    if (isfinite(needed)) snprintf(enough_text, sizeof enough_text, " to about %.0f", ceil(needed));
    return tm_fail(err, TM_INVALID, "the budget of %g s ended before the first block of six turns; raise --budget%s%s",
                   e->options->budget_seconds, enough_text,
                   e->options->whole_runs ? ", or let a run do fewer steps" : "");
}

tm_status tm_ab_run(const tm_ab_options *options, tm_ab_session *out, tm_error *err)
{
    engine   e = { .options = options, .session = out };
    regex_t *compiled[2] = { NULL, NULL };
    begin(&e);
    tm_status st = compile_pattern(&options->a, &e.patterns[0], &compiled[0], err);
    if (st == TM_OK) st = compile_pattern(&options->b, &e.patterns[1], &compiled[1], err);
    e.players[TM_AB_A].pattern = e.players[TM_AB_AGAIN].pattern = compiled[0];
    e.players[TM_AB_B].pattern = compiled[1];
    while (st == TM_OK && !e.over) st = play_round(&e, err);
    close_round(&e);
    out->seconds = passed(&e);
    if (options->progress && e.drawn_ns) fputs("\r\033[K", options->progress);
    for (int i = 0; i < TM_AB_SIDES; i++) tm_text_fini(&e.players[i].input);
    for (int i = 0; i < 2; i++)
        if (compiled[i]) regfree(compiled[i]);
    tm_text_fini(&e.room);
    return st == TM_OK ? conclude(&e, err) : st;
}
