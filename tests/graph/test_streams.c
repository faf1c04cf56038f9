/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, waits and spaces of a plan: whatever order the waits allow, every instruction reads what it would
 * have read in the order of the list; and no wait is there without need. */
#include "base/random.h"
#include "support/training.h"

#include "support/test.h"

/* --- an interpreter that runs streams side by side ---------------------------------------------------------------- */

enum { CELL = 64, OPERANDS = TM_MAX_IN + TM_MAX_OUT, IDLE = -1 };

/* Which instruction wrote each cell of 64 bytes last: 0 none, its number + 1; while it writes, that number negative. */
typedef struct {
    const tm_plan    *plan;
    const tm_program *program;
    int32_t          *writer[TM_SPACE_COUNT];
    uint64_t (*expected)[OPERANDS]; /* (instructions) what each operand that is read is made of, by the list */
    char problem[240];
} machine;

typedef struct {
    int32_t *from;
    size_t   cells;
} range;

/* A view's rows lie among its base's: the whole base is taken for it. */
static range range_of(const machine *m, tm_tensor_id id)
{
    tm_place place = tm_plan_place(m->plan, tm_graph_base(m->plan->graph, id));
    size_t   first = place.offset / CELL, end = (place.offset + place.bytes + CELL - 1) / CELL;
    return (range){ m->writer[tm_graph_at(m->plan->graph, id)->space] + first, end - first };
}

static range workspace_of(const machine *m, const tm_instruction *i)
{
    return (range){ m->writer[TM_SPACE_DEVICE] + i->workspace_offset / CELL,
                    (i->call.workspace_bytes + CELL - 1) / CELL };
}

static uint64_t digest_of(range r)
{
    uint64_t digest = 14695981039346656037u;
    for (size_t k = 0; k < r.cells; k++) digest = (digest ^ (uint32_t)r.from[k]) * 1099511628211u;
    return digest;
}

static void give(range r, int32_t who)
{
    for (size_t k = 0; k < r.cells; k++) r.from[k] = who;
}

static bool overlap(range a, range b)
{
    return a.from < b.from + b.cells && b.from < a.from + a.cells;
}

/* Operand k that the instruction reads: an input, or an output that it adds to; TM_NONE: none. */
static tm_tensor_id operand(const tm_instruction *i, int k)
{
    if (k < TM_MAX_IN) return i->node->in[k];
    return i->node->accumulate >> (k - TM_MAX_IN) & 1 ? i->node->out[k - TM_MAX_IN] : TM_NONE;
}

static void mark_outputs(const machine *m, const tm_instruction *i, int32_t who)
{
    give(workspace_of(m, i), who);
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (i->node->out[k] != TM_NONE) give(range_of(m, i->node->out[k]), who);
}

static bool written_by_itself(const machine *m, const tm_instruction *i, range r)
{
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (i->node->out[k] != TM_NONE && overlap(r, range_of(m, i->node->out[k]))) return true;
    return overlap(r, workspace_of(m, i));
}

static void complain(machine *m, size_t x, const char *what, tm_tensor_id id)
{
    if (!*m->problem)
        snprintf(m->problem, sizeof m->problem, "%s %zu (%s): %s '%s'", m->program->name, x,
                 m->program->instructions[x].call.op->name, what, id < 0 ? "" : m->plan->graph->tensors[id].name);
}

static void begin(machine *m, size_t x)
{
    const tm_instruction *i = &m->program->instructions[x];
    for (int k = 0; k < OPERANDS; k++)
        if (operand(i, k) != TM_NONE && digest_of(range_of(m, operand(i, k))) != m->expected[x][k])
            complain(m, x, "begins and reads something else:", operand(i, k));
    mark_outputs(m, i, -(int32_t)x - 1);
}

static void end(machine *m, size_t x)
{
    const tm_instruction *i = &m->program->instructions[x];
    for (int k = 0; k < TM_MAX_IN; k++) {
        if (i->node->in[k] == TM_NONE || written_by_itself(m, i, range_of(m, i->node->in[k]))) continue;
        if (digest_of(range_of(m, i->node->in[k])) != m->expected[x][k])
            complain(m, x, "was still reading:", i->node->in[k]);
    }
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (i->node->out[k] == TM_NONE) continue;
        range r = range_of(m, i->node->out[k]);
        for (size_t c = 0; c < r.cells; c++)
            if (r.from[c] != -(int32_t)x - 1) complain(m, x, "somebody else wrote:", i->node->out[k]);
    }
    range w = workspace_of(m, i);
    for (size_t c = 0; c < w.cells; c++)
        if (w.from[c] != -(int32_t)x - 1) complain(m, x, "somebody else wrote its workspace", TM_NONE);
    mark_outputs(m, i, (int32_t)x + 1);
}

/* In the order of the list: does all of an operand come from what wrote that tensor? */
static void check_owner(machine *m, size_t x, tm_tensor_id id)
{
    const tm_graph *graph = m->plan->graph;
    tm_tensor_id    base = tm_graph_base(graph, id);
    range           r = range_of(m, id);
    for (size_t c = 0; c < r.cells; c++) {
        bool right = r.from[c] == 0 && tm_role_persistent(tm_graph_at(graph, base)->role);
        for (int k = 0; k < TM_MAX_OUT && r.from[c] > 0; k++) {
            tm_tensor_id out = m->program->instructions[r.from[c] - 1].node->out[k];
            right = right || (out != TM_NONE && tm_graph_base(graph, out) == base);
        }
        if (!right) complain(m, x, "by the list itself reads what is not there:", id);
        if (!right) return;
    }
}

static void forget(machine *m)
{
    for (int s = 0; s < TM_SPACE_COUNT; s++)
        if (m->writer[s]) memset(m->writer[s], 0, (m->plan->spaces[s].arena_bytes / CELL + 1) * sizeof(int32_t));
    *m->problem = 0;
}

static machine machine_open(const tm_plan *plan, const tm_program *program)
{
    machine m = { .plan = plan, .program = program };
    for (int s = 0; s < TM_SPACE_COUNT; s++)
        m.writer[s] = calloc(plan->spaces[s].arena_bytes / CELL + 1, sizeof(int32_t));
    m.expected = calloc(program->count + 1, sizeof *m.expected);
    assert_non_null(m.expected);
    for (size_t x = 0; x < program->count; x++) {
        const tm_instruction *i = &program->instructions[x];
        for (int k = 0; k < OPERANDS; k++) {
            if (operand(i, k) == TM_NONE) continue;
            m.expected[x][k] = digest_of(range_of(&m, operand(i, k)));
            check_owner(&m, x, operand(i, k));
        }
        mark_outputs(&m, i, (int32_t)x + 1);
    }
    if (*m.problem) fail_msg("%s", m.problem);
    return m;
}

static void machine_close(machine *m)
{
    for (int s = 0; s < TM_SPACE_COUNT; s++) free(m->writer[s]);
    free(m->expected);
}

typedef struct {
    size_t  next[TM_STREAMS];    /* first instruction of the stream that has not begun */
    int32_t running[TM_STREAMS]; /* or IDLE */
    bool   *done;
} progress;

static void skip_to_own(const machine *m, progress *p, int stream)
{
    while (p->next[stream] < m->program->count && (int)m->program->instructions[p->next[stream]].stream != stream)
        p->next[stream]++;
}

/* One event of a stream: an instruction ends or begins. False: it has to wait, or is through. */
static bool advance(machine *m, progress *p, int stream)
{
    if (p->running[stream] != IDLE) {
        end(m, (size_t)p->running[stream]);
        p->done[p->running[stream]] = true;
        p->running[stream] = IDLE;
        return true;
    }
    size_t x = p->next[stream];
    if (x == m->program->count) return false;
    for (int s = 0; s < TM_STREAMS; s++) {
        int32_t wait = m->program->instructions[x].waits[s];
        if (wait >= 0 && !p->done[wait]) return false;
    }
    begin(m, x);
    p->running[stream] = (int32_t)x;
    p->next[stream]++;
    skip_to_own(m, p, stream);
    return true;
}

/* order[]: who goes first; chaos: in so many of 16 cases somebody else does; held: an instruction that ends only when
 * nothing else can move. "" or what went wrong. */
static const char *interleave(machine *m, const int order[TM_STREAMS], uint64_t chaos, uint64_t seed, int32_t held)
{
    progress p = { .running = { IDLE, IDLE, IDLE } };
    uint64_t tick = 0;
    p.done = calloc(m->program->count + 1, sizeof *p.done);
    assert_non_null(p.done);
    forget(m);
    for (int s = 0; s < TM_STREAMS; s++) skip_to_own(m, &p, s);
    for (bool moved = true; moved;) {
        moved = false;
        if (tm_random_below(seed, 1, tick++, 16) < chaos)
            moved = advance(m, &p, (int)tm_random_below(seed, 2, tick, TM_STREAMS));
        for (int k = 0; k < TM_STREAMS && !moved; k++)
            if (held == IDLE || p.running[order[k]] != held) moved = advance(m, &p, order[k]);
        for (int k = 0; k < TM_STREAMS && !moved; k++) moved = advance(m, &p, order[k]);
    }
    for (size_t x = 0; x < m->program->count; x++)
        if (!p.done[x]) complain(m, x, "never began", TM_NONE);
    free(p.done);
    return m->problem;
}

static const int orders[][TM_STREAMS] = {
    { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 }
};
enum { ORDERS = sizeof orders / sizeof orders[0] };

static void check_program(const tm_plan *plan, const tm_program *program, const char *name)
{
    machine m = machine_open(plan, program);
    for (uint64_t k = 0; k < 3 * ORDERS; k++)
        if (*interleave(&m, orders[k % ORDERS], k < ORDERS ? 0 : 4 * (k / ORDERS), k, IDLE))
            fail_msg("%s: %s", name, m.problem);
    machine_close(&m);
}

static size_t count_waits(const tm_program *program)
{
    size_t waits = 0;
    for (size_t x = 0; x < program->count; x++)
        for (int s = 0; s < TM_STREAMS; s++) waits += program->instructions[x].waits[s] >= 0;
    return waits;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static const tm_offload nothing = { 0 }, moments = { .optimizer = true, .space = TM_SPACE_DISK },
                        saved = { .activations = true, .space = TM_SPACE_DISK },
                        both = { .optimizer = true, .activations = true, .space = TM_SPACE_HOST };

static tm_step_options step_options(int number, const tm_offload *offload)
{
    tm_step_options o = number & 1 ? test_gpt_options() : test_llama_options();
    o.shape.n_layers = 4;
    o.precision = number & 2 ? &tm_precision_bf16 : &tm_precision_f32;
    o.accumulation = number & 4 ? 2 : 1;
    o.recompute = (tm_recompute){ .cheap = (number & 1) != 0, .every_n = number & 2 };
    o.offload = *offload;
    return o;
}

TEST(no_order_that_the_waits_allow_reads_anything_else)
{
    const tm_offload *const offloads[] = { &moments, &saved, &both };
    for (int number = 0; number < 4; number++)
        for (int k = 0; k < 3; k++) {
            char            name[64];
            tm_step_options options = step_options(number, offloads[k]);
            tm_step        *step = test_step_of(&options);
            snprintf(name, sizeof name, "step %d, offload %d", number, k);
            for (size_t p = 0; p < step->plan->n_programs; p++)
                check_program(step->plan, &step->plan->programs[p], name);
            assert_true((count_waits(step->update) > 10) == offloads[k]->optimizer);
            assert_true((count_waits(step->first) > 5) == offloads[k]->activations);
            assert_int_equal(count_waits(step->evaluate), 0);
            tm_step_destroy(step);
        }
}

/* Leaves out one wait after the other; returns their number. */
static size_t drop_each(const tm_plan *plan, const tm_program *program)
{
    machine m = machine_open(plan, program);
    size_t  dropped = 0;
    for (size_t x = 0; x < program->count; x++)
        for (int s = 0; s < TM_STREAMS; s++) {
            tm_instruction *i = &program->instructions[x];
            int32_t         wait = i->waits[s];
            bool            wrong = false;
            if (wait < 0) continue;
            i->waits[s] = -1;
            for (int k = 0; k < ORDERS && !wrong; k++)
                if (orders[k][TM_STREAMS - 1] == s)
                    wrong = *interleave(&m, orders[k], 0, 0, (int32_t)x) != 0; /* s lags behind */
            if (!wrong) fail_msg("%s %zu need not wait for %d", program->name, x, (int)wait);
            i->waits[s] = wait;
            dropped++;
        }
    machine_close(&m);
    return dropped;
}

/* Any node on any stream: nothing but the waits keeps such a plan together. */
TEST(nodes_thrown_onto_streams_at_random_stay_right)
{
    tm_device *device = test_device_open("cpu", 2);
    tm_chooser chooser = tm_device_chooser(device);
    for (int number = 0; number < 4; number++) {
        tm_step_options options = step_options(number, number & 1 ? &nothing : &both);
        tm_step        *step = test_step_plan(&options, &chooser);
        for (uint64_t seed = 0; seed < 3; seed++) {
            tm_plan *plan;
            size_t   drawn = 0;
            for (size_t s = 0; s < step->graph->n_segments; s++)
                for (size_t x = 0; x < step->graph->segments[s]->n_nodes; x++)
                    step->graph->segments[s]->nodes[x].stream =
                        (tm_stream)tm_random_below(seed, (uint64_t)number, drawn++, TM_STREAMS);
            assert_int_equal(tm_plan_create(step->graph, &chooser, &plan, NULL), TM_OK);
            for (size_t p = 0; p < plan->n_programs; p++) {
                check_program(plan, &plan->programs[p], "at random");
                if (seed == 0) drop_each(plan, &plan->programs[p]);
                assert_true(count_waits(&plan->programs[p]) > plan->programs[p].count / 5);
            }
            tm_plan_destroy(plan);
        }
        tm_step_destroy(step);
    }
    tm_device_close(device);
}
