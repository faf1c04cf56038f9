/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks whose streams do not run in the order of the list: every rank runs its instructions in an order of its own that
 * the waits of the plan allow, and the numbers stay the same, bit for bit; without any single wait they do not. Before
 * every program the memory that it may not rely on is full of NaN. */
#include "support/test.h"
#include "device/host/host.h"
#include "ranks_fixture.h"

/* Who goes first: AT_RANDOM anybody; LAST: that stream only when nothing else can; FIRST: that stream whenever it can.
 */
enum { AT_RANDOM, COMPUTE_LAST, COMMUNICATION_LAST, POLICIES };

typedef struct {
    uint64_t seed;
    int      policy[MOST_RANKS]; /* of each rank */
    /* The wait that is left out on all ranks: of instruction `drop` of this program, on that stream; -1: none. */
    const char *program;
    int         drop, stream;
} orders;

/* A rank is a thread and has one device. */
static _Thread_local struct {
    const orders         *orders;
    int                   rank;
    uint64_t              drawn;
    const tm_plan        *plan; /* NULL: the list's order (nothing is trained yet) */
    char                 *undefined;
    size_t                undefined_bytes;
    const tm_instruction *first; /* of what waits to be run */
    size_t                count;
    bool                 *done;
} own;

/* --- the device --------------------------------------------------------------------------------------------------- */

static bool dropped(const tm_program *program, size_t x, int stream)
{
    const orders *o = own.orders;
    return o->drop == (int)x && o->stream == stream && strcmp(o->program, program->name) == 0;
}

static bool may_begin(const tm_program *program, size_t x)
{
    const tm_instruction *i = &own.first[x];
    for (int s = 0; s < TM_STREAMS; s++)
        if (i->waits[s] >= 0 && !own.done[i->waits[s]] && !dropped(program, x, s)) return false;
    return true;
}

/* The next of a stream that may begin; own.count: none. */
static size_t next_of(const tm_program *program, int stream)
{
    for (size_t x = 0; x < own.count; x++)
        if ((int)own.first[x].stream == stream && !own.done[x]) return may_begin(program, x) ? x : own.count;
    return own.count;
}

static size_t choose(const tm_program *program)
{
    static const int lagging[] = { -1, TM_ON_COMPUTE, TM_ON_COMMUNICATION };
    size_t           ready[TM_STREAMS], n = 0, lag = own.count;
    int              policy = own.orders->policy[own.rank];
    for (int s = 0; s < TM_STREAMS; s++) {
        size_t x = next_of(program, s);
        if (x == own.count) continue;
        if (s == lagging[policy])
            lag = x;
        else
            ready[n++] = x;
    }
    if (n == 0) return lag;
    return ready[tm_random_below(own.orders->seed, (uint64_t)own.rank, own.drawn++, n)];
}

/* Stages of a pipeline have each program once for each slot. */
static const tm_program *program_of(const tm_instruction *first)
{
    const tm_plan    *plan = own.plan;
    const tm_program *programs = plan->in_slot ? plan->in_slot : plan->programs;
    for (size_t p = 0; p < plan->n_programs * (plan->in_slot ? (size_t)plan->graph->slots : 1); p++)
        if (programs[p].instructions == first) return &programs[p];
    return NULL;
}

static tm_status run_pending(tm_queue *queue, tm_error *err)
{
    if (own.count == 0) return TM_OK;
    const tm_program *program = program_of(own.first);
    CHECK(program && program->count == own.count); /* a program is run as a whole */
    memset(own.undefined, 0xff, own.undefined_bytes);
    own.done = calloc(own.count, sizeof *own.done);
    for (size_t left = own.count; left > 0; left--) {
        size_t x = choose(program);
        CHECK(x < own.count);
        own.done[x] = true;
        TM_TRY(tm_host_launch(queue, own.first[x].kernel, &own.first[x].call, err));
    }
    free(own.done);
    own.count = 0;
    return TM_OK;
}

static tm_status launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    const tm_instruction *i = (const tm_instruction *)((const char *)call - offsetof(tm_instruction, call));
    if (!own.plan) return tm_host_launch(queue, kernel, call, err);
    if (own.count > 0 && own.first + own.count != i) TM_TRY(run_pending(queue, err));
    if (own.count > 0 && program_of(i)) TM_TRY(run_pending(queue, err)); /* the next one lies behind it */
    if (own.count++ == 0) own.first = i;
    return TM_OK;
}

static tm_status write_after(tm_queue *queue, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    TM_TRY(run_pending(queue, err));
    return tm_host_write(queue, to, from, bytes, err);
}

static tm_status read_after(tm_queue *queue, void *to, tm_address from, size_t bytes, tm_error *err)
{
    TM_TRY(run_pending(queue, err));
    return tm_host_read(queue, to, from, bytes, err);
}

static tm_status fill_after(tm_queue *queue, tm_address to, unsigned char value, size_t bytes, tm_error *err)
{
    TM_TRY(run_pending(queue, err));
    return tm_host_fill(queue, to, value, bytes, err);
}

static tm_status wait_after(tm_queue *queue, tm_error *err)
{
    return run_pending(queue, err);
}

static tm_backend shuffling;

static tm_status open_device(const tm_backend_of_test *backend, int rank, tm_device **out, tm_error *err)
{
    memset(&own, 0, sizeof own);
    own.orders = backend->context;
    own.rank = rank;
    return tm_device_open_backend(&shuffling, 1, false, out, err);
}

static void begin(const tm_backend_of_test *backend, tm_trainer *trainer, int rank)
{
    (void)backend, (void)rank;
    own.plan = tm_trainer_step_of(trainer)->plan;
    const tm_space_plan *space = &own.plan->spaces[TM_SPACE_DEVICE];
    size_t               kept = space->persistent_bytes + (size_t)own.plan->graph->slots * space->slot_bytes;
    own.undefined = (char *)tm_trainer_arena(trainer).at + kept; // NOLINT(performance-no-int-to-ptr)
    own.undefined_bytes = space->arena_bytes - kept;
}

/* --- what is run -------------------------------------------------------------------------------------------------- */

/* The same with every rank's instructions in an order of its own. */
static job in_order(const job *plain, const orders *o)
{
    tm_backend_of_test backend = { open_device, begin, o };
    job                j = *plain;
    j.backend = &backend;
    run_world(ranks_of(&j), NULL, 120, false, rank_body, &j);
    j.backend = NULL;
    return j;
}

/* What divides what. */
typedef struct {
    int        model, replicate, shard, context, tensor, experts;
    bool       ring;
    tm_sharing sharing;
} layout;

static job job_of(const layout *l)
{
    job j = ranks_job(model_options(l->model), l->replicate, l->shard, l->sharing, 2);
    j.context = l->context, j.tensor = l->tensor, j.experts = l->experts;
    j.o.layout.ring = l->ring;
    j.o.layout.expert_capacity = 1;
    j.o.accumulation = 2;
    if (l->model < 3) j.o.shape.n_layers = 2;
    if (l->model < 3 && (l->context > 1 || l->tensor > 1)) j.o.shape.n_heads = j.o.shape.n_kv_heads = 4;
    return j;
}

static bool equal(const job *a, const job *b)
{
    for (int t = 0; t < a->steps; t++)
        if (memcmp(&a->loss[t], &b->loss[t], 8) != 0 || memcmp(&a->norm[t], &b->norm[t], 8) != 0) return false;
    for (int r = 0; r < ranks_of(a); r++)
        if (a->weights[r] != b->weights[r] || memcmp(&a->evaluation[r], &b->evaluation[r], 8) != 0) return false;
    return true;
}

TEST(every_order_has_the_same_bits)
{
    static const layout layouts[] = {
        { 0, 1, 1, 4, 1, 1, true, TM_SHARE_ALL },  { 2, 1, 1, 2, 1, 1, true, TM_SHARE_ALL },
        { 2, 1, 2, 2, 1, 4, false, TM_SHARE_ALL }, { 2, 1, 1, 1, 2, 2, false, TM_SHARE_ALL },
        { 3, 1, 1, 1, 2, 1, false, TM_SHARE_ALL }, { 0, 2, 1, 1, 1, 1, false, TM_SHARE_COPIES },
    };
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        job plain = job_of(&layouts[i]), listed = plain;
        run_job(&listed);
        for (uint64_t seed = 0; seed < 4; seed++) {
            orders order = { .seed = seed, .drop = -1 };
            for (int r = 0; r < MOST_RANKS; r++) order.policy[r] = (int)((seed + (uint64_t)r * (seed > 2)) % POLICIES);
            job other = in_order(&plain, &order);
            if (!equal(&listed, &other))
                fail_msg("layout %zu, order %d: another loss (%.17g, in order %.17g), norm or weights", i, (int)seed,
                         other.loss[1], listed.loss[1]);
        }
    }
}

/* One after the other, on all ranks: the stream that is no longer waited for lags behind. */
TEST(without_a_wait_the_numbers_are_others)
{
    static const layout layouts[] = { { 0, 2, 1, 1, 1, 1, false, TM_SHARE_COPIES },
                                      { 0, 1, 2, 1, 1, 1, false, TM_SHARE_OPTIMIZER },
                                      { 0, 1, 2, 1, 1, 1, false, TM_SHARE_ALL } };
    for (int l = 0; l < 3; l++) {
        job plain = job_of(&layouts[l]), listed = plain;
        run_job(&listed);
        tm_step_options planned = listed.o;
        planned.layout.mesh = tm_mesh_one();
        planned.layout.mesh.degree[TM_AXIS_REPLICATE] = layouts[l].replicate;
        planned.layout.mesh.degree[TM_AXIS_SHARD] = layouts[l].shard;
        tm_step *step = test_step_of(&planned);
        for (size_t p = 0; p < step->plan->n_programs; p++)
            for (size_t k = 0; k < step->plan->programs[p].count * TM_STREAMS; k++) {
                const tm_program *program = &step->plan->programs[p];
                const int         x = (int)(k / TM_STREAMS), s = (int)(k % TM_STREAMS);
                if (program->instructions[x].waits[s] < 0) continue;
                orders order = { .seed = 1, .program = program->name, .drop = x, .stream = s };
                for (int r = 0; r < MOST_RANKS; r++)
                    order.policy[r] = s == TM_ON_COMPUTE ? COMPUTE_LAST : COMMUNICATION_LAST;
                job other = in_order(&plain, &order);
                if (equal(&listed, &other))
                    fail_msg("layout %d: nobody notices that instruction %d of '%s' does not wait for %d", l, x,
                             program->name, (int)program->instructions[x].waits[s]);
            }
        tm_step_destroy(step);
    }
}

static int prepare(void **state)
{
    (void)state;
    shuffling = tm_backend_cpu;
    shuffling.launch = launch;
    shuffling.write = write_after;
    shuffling.read = read_after;
    shuffling.fill = fill_after;
    shuffling.wait = wait_after;
    return 0;
}

TEST_FIXTURE(prepare, NULL)
