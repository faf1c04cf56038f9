/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on several GPUs that are emulated, a process for each rank, over stand-ins for NCCL and RCCL: losses of every
 * step are those of processors in the same layout, and of one rank; two runs have the same bits; a checkpoint goes on
 * with another number of ranks; what fails, hangs or dies is named; what GPUs do not do together is refused. */
#include "support/test.h"
#include "gpu/emulated.h"
#include "support/folder.h"
#include "support/training.h"

#include "base/clock.h"
#include "base/log.h"
#include "train/run/run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 3, BATCH = 4, MOST = 4, VOCAB = 64, SEQ = 16 };

/* How ranks are laid out. */
typedef struct {
    const char *words;
    int         ranks, copies, tensor, context, stages;
    tm_sharing  sharing;
    bool        ring, whole_rows, narrow, keeps,
        codes; /* codes: products of 8 bits, on CPUs emulated; keeps: weights stay gathered after the forward pass */
} plan_of;

/* What a rank found; in memory that its process shares with the test. */
typedef struct {
    tm_status status;
    char      said[2048], device[240], sums[128];
    double    loss[STEPS + 1], norm[STEPS + 1], validation, communication, gap;
    uint64_t  weights;
    int64_t   first_step, last_step;
} found;

typedef struct {
    tm_sink               sink;
    const char           *device, *folder; /* folder: of checkpoints; NULL: none */
    const tm_precision   *precision;
    plan_of               plan;
    int64_t               stop_after; /* 0: it goes on to its end */
    double                deadline;
    bool                  one_by_one;
    int                   death; /* signal that rank 1 gets after its first step; 0: none */
    int                   rank;
    volatile sig_atomic_t stop;
    found                *out;
} job;

/* One that is stopped is killed later on. */
static void die(int how)
{
    pid_t self = getpid(), other = how == SIGSTOP ? fork() : -1;
    if (other == 0) {
        sleep(8);
        kill(self, SIGKILL);
        _exit(0);
    }
    raise(how);
}

static void take_event(tm_sink *sink, const tm_event *event)
{
    job   *j = (job *)sink;
    found *f = j->out;
    if (event->kind == TM_EVENT_RUN_STARTED) {
        f->first_step = event->run_started.first_step;
        snprintf(f->sums, sizeof f->sums, "%.127s", event->run_started.sums);
    } else if (event->kind == TM_EVENT_STEP_DONE) {
        const tm_step_done *s = &event->step_done;
        double              sum = 0;
        f->last_step = s->step;
        f->loss[s->step] = s->loss;
        f->norm[s->step] = s->grad_norm;
        for (size_t i = 0; i < s->n_phases; i++) {
            sum += s->phases[i].value;
            if (strstr(s->phases[i].name, "communication")) f->communication += s->phases[i].value;
        }
        f->gap = fmax(f->gap, fabs(sum - s->seconds));
        if (s->step == j->stop_after) j->stop = 1;
        if (j->death && j->rank == 1) die(j->death);
    } else if (event->kind == TM_EVENT_EVALUATION) {
        f->validation = event->evaluation.loss;
    } else if (event->kind == TM_EVENT_RUN_ENDED) {
        f->weights = event->run_ended.weights_hash;
    }
}

static tm_run_options options_of(const job *j)
{
    tm_run_options o = { .model_name = "small",
                         .steps = STEPS,
                         .learning_rate = 3e-3,
                         .max_norm = 1,
                         .seed = 77,
                         .validate = true,
                         .validation_freq = STEPS,
                         .validation_steps = MOST,
                         .checkpoint = j->folder != NULL,
                         .checkpoint_interval = 1000,
                         .checkpoint_load_step = -1,
                         .checkpoint_keep = 2,
                         .config_hash = 1,
                         .checkpoint_folder = j->folder };
    o.step = test_llama_options();
    o.step.precision = j->precision;
    o.step.shape.vocab_size = VOCAB;
    o.step.shape.dim = 32, o.step.shape.ffn_dim = 64, o.step.shape.head_dim = 8;
    o.step.shape.n_heads = 4, o.step.shape.n_kv_heads = 2, o.step.shape.n_layers = 2;
    o.step.seq = SEQ;
    o.step.micro_batch = 1;
    o.step.recompute.cheap = true;
    o.schedule =
        (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = STEPS, .warmup_steps = 1, .decay_ratio = -1 };
    o.source = (tm_source_options){ .name = "synthetic", .vocab = VOCAB, .seq = SEQ, .seed = o.seed };
    return o;
}

static int of(int degree)
{
    return degree ? degree : 1;
}

static tm_status lay_out(const plan_of *p, int rank, tm_step_options *step, tm_error *err)
{
    tm_layout *l = &step->layout;
    int        parts = of(p->tensor) * of(p->context) * of(p->stages);
    l->mesh = tm_mesh_one();
    l->mesh.degree[TM_AXIS_REPLICATE] = of(p->copies);
    l->mesh.degree[TM_AXIS_SHARD] = p->ranks / parts / of(p->copies);
    l->mesh.degree[TM_AXIS_TP] = of(p->tensor);
    l->mesh.degree[TM_AXIS_CP] = of(p->context);
    l->mesh.degree[TM_AXIS_PP] = of(p->stages);
    l->rank = rank;
    l->sharing = p->sharing;
    l->reshard = !p->keeps;
    l->prefetch = 1;
    l->narrow = p->narrow;
    l->ring = p->ring;
    l->whole_rows = p->whole_rows;
    if (p->codes) {
        step->quantize = (tm_quantize){ .on = true, .switch_step = -1, .history = 4, .seed = 1 };
        step->quantize.recipe[0] = *tm_quantize_recipe_find("fp8_tensorwise");
        for (int f = 0; f < TM_FACTORS; f++) {
            uint8_t *format = &step->quantize.recipe[0].factor[f].format; /* of gfx942 */
            *format = *format == TM_E5M2 ? TM_E5M2FNUZ : TM_E4M3FNUZ;
        }
    }
    step->accumulation = BATCH * parts / p->ranks;
    return tm_mesh_fill(&l->mesh, p->ranks, err);
}

/* A rank, in a process of its own; world NULL: alone. */
static tm_status run_rank(job *j, tm_comm *world, int rank, tm_error *err)
{
    tm_run_options o = options_of(j);
    tm_ranks       own;
    tm_device     *device;
    tm_source     *source;
    char           name[80];
    tm_event_bus   bus = { .sinks = (tm_sink *[]){ &j->sink }, .count = 1 };
    TM_TRY(lay_out(&j->plan, rank, &o.step, err));
    tm_device_name_of_rank(name, j->device, rank);
    TM_TRY(tm_device_open(world ? name : j->device, 1, &device, err));
    tm_device_one_by_one(device, j->one_by_one);
    if (world) {
        TM_TRY(tm_ranks_open(&o.step.layout.mesh, world, &own, err));
        o.ranks = &own;
        tm_device_join(device, &own.groups);
        TM_TRY(tm_device_connect(device, err));
    }
    TM_TRY(tm_source_open(&o.source, &source, err));
    TM_TRY(tm_run(&o, device, source, &bus, &j->stop, err));
    snprintf(j->out->device, sizeof j->out->device, "%s", tm_device_describe(device)->text);
    tm_source_close(source);
    tm_device_close(device);
    if (world) tm_ranks_close(&own);
    return TM_OK;
}

/* --- processes ---------------------------------------------------------------------------------------------------- */

static int free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          n = sizeof a;
    int                fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static _Noreturn void be_rank(job j, int rank, int port, found *out)
{
    tm_comm *world = NULL;
    tm_error err = { 0 };
    set_number("RANK", rank), set_number("LOCAL_RANK", rank), set_number("WORLD_SIZE", j.plan.ranks);
    set_number("MASTER_PORT", port), set_number("GROUP_RANK", 0);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    tm_log_set_level(TM_LOG_ERROR);
    j.sink.handle = take_event;
    j.out = out;
    j.rank = rank;
    out->status = TM_OK;
    if (j.plan.ranks > 1)
        out->status =
            tm_comm_open(&(tm_comm_options){ .deadline_seconds = j.deadline > 0 ? j.deadline : 100 }, &world, &err);
    if (out->status == TM_OK) out->status = run_rank(&j, world, rank, &err);
    snprintf(out->said, sizeof out->said, "%.2000s", err.text);
    bool failed = out->status != TM_OK && out->status != TM_INTERRUPTED;
    if (failed && world) {
        int nothing = open("/dev/null", O_WRONLY);
        dup2(nothing, 2); /* what it says is kept */
        tm_comm_abort(world, 1, err.text);
    }
    if (world) tm_comm_close(world);
    _exit(0);
}

/* All ranks of a job; each one's code of its end is left in `codes`, 128 + signal. */
static found *run_all(const job *j, int codes[MOST])
{
    size_t bytes = MOST * sizeof(found);
    found *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t  child[MOST];
    int    port = free_port();
    assert_ptr_not_equal(all, MAP_FAILED);
    fflush(NULL);
    for (int r = 0; r < j->plan.ranks; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] == 0) be_rank(*j, r, port, &all[r]);
    }
    for (int r = 0; r < j->plan.ranks; r++) {
        int status = 0;
        while (waitpid(child[r], &status, 0) < 0 && errno == EINTR) {
        }
        codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return all;
}

static found run_job(const job *j, tm_status wanted)
{
    int    codes[MOST];
    found *all = run_all(j, codes), first = all[0];
    for (int r = 0; r < j->plan.ranks; r++)
        if (codes[r] != 0 || all[r].status != wanted)
            fail_msg("%s on %s, rank %d: exit code %d, status %d: %s", j->plan.words, j->device, r, codes[r],
                     (int)all[r].status, all[r].said);
    munmap(all, MOST * sizeof *all);
    return first;
}

static void near(double a, double b, double bound, const char *what, const job *j, int step)
{
    if (!(fabs(a - b) <= bound * fmax(1, fabs(b))))
        fail_msg("%s on %s, %s of step %d: %.9g, wanted %.9g", j->plan.words, j->device, what, step, a, b);
}

static void compare(const job *j, const found *a, const found *b, int from, double bound)
{
    assert_int_equal(a->first_step, from);
    assert_int_equal(a->last_step, STEPS);
    for (int t = from; t <= STEPS; t++) {
        near(a->loss[t], b->loss[t], bound, "loss", j, t);
        near(a->norm[t], b->norm[t], 10 * bound, "norm", j, t);
    }
    near(a->validation, b->validation, bound, "held-out loss", j, STEPS);
}

/* --- layouts ------------------------------------------------------------------------------------------------------ */

static const plan_of layouts[] = {
    { .words = "two copies", .ranks = 2, .copies = 2 },
    { .words = "two shards of the optimizer", .ranks = 2, .sharing = TM_SHARE_OPTIMIZER },
    { .words = "two shards of gradients", .ranks = 2, .sharing = TM_SHARE_GRADIENTS },
    { .words = "two shards of weights", .ranks = 2, .sharing = TM_SHARE_ALL },
    { .words = "parts of matrices", .ranks = 2, .tensor = 2 },
    { .words = "parts of matrices, whole rows", .ranks = 2, .tensor = 2, .whole_rows = true },
    { .words = "parts of sequences", .ranks = 2, .context = 2, .sharing = TM_SHARE_ALL },
    { .words = "keys in a ring", .ranks = 2, .context = 2, .sharing = TM_SHARE_ALL, .ring = true },
    { .words = "sums in bfloat16", .ranks = 2, .sharing = TM_SHARE_ALL, .narrow = true },
    { .words = "keys in a ring of four", .ranks = 4, .context = 4, .sharing = TM_SHARE_ALL, .ring = true },
    { .words = "copies of shards", .ranks = 4, .copies = 2, .sharing = TM_SHARE_ALL },
    { .words = "shards of parts", .ranks = 4, .tensor = 2, .sharing = TM_SHARE_ALL, .keeps = true },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static job new_job(const char *device, const plan_of *plan, const tm_precision *precision)
{
    return (job){ .device = device, .plan = *plan, .precision = precision };
}

static double bound_for(const plan_of *plan, const tm_precision *precision)
{
    return precision == &tm_precision_bf16 || plan->narrow || plan->codes ? 1e-2 : 1e-4;
}

/* GPUs beside processors in the same layout, and those beside one rank. */
static void trains(const char *device, const plan_of *plan, const tm_precision *precision, const found *alone)
{
    job   gpus = new_job(device, plan, precision), cpus = new_job("cpu", plan, precision);
    found a = run_job(&gpus, TM_OK), b = run_job(&cpus, TM_OK);
    compare(&gpus, &a, &b, 1, bound_for(plan, precision));
    compare(&gpus, &a, alone, 1, bound_for(plan, precision));
    if (!strstr(a.sums, strcmp(device, "hip") == 0 ? "-rccl-2.28.9" : "-nccl-2.28.9"))
        fail_msg("%s: sums '%s'", device, a.sums);
    if (!(a.communication > 0 && a.gap < 1e-6))
        fail_msg("%s: %g s of communication, lines are off by %g s", plan->words, a.communication, a.gap);
}

static void begin_on(const char *device)
{
    if (gpu_is_real() || !emulated_device(device)) skip();
    setenv("TRAINMARK_NCCL", test_built(strcmp(device, "hip") == 0 ? "standins/rccl.so" : "standins/nccl.so"), 1);
}

static void all_layouts(const char *device, int from, int step, const tm_precision *precision)
{
    static const plan_of one = { .words = "one rank", .ranks = 1 };
    begin_on(device);
    job   j = new_job(device, &one, precision);
    found alone = run_job(&j, TM_OK);
    for (int k = from; k < LAYOUTS; k += step) trains(device, &layouts[k], precision, &alone);
}

static void layouts_train_on_cuda(void **state)
{
    (void)state;
    all_layouts("cuda", 0, test_is_full() ? 1 : 5, &tm_precision_f32);
}

static void layouts_train_on_hip(void **state)
{
    (void)state;
    all_layouts("hip", test_is_full() ? 0 : 3, test_is_full() ? 1 : 8, &tm_precision_bf16);
}

/* Parts of a fused weight are products of their own, whose gradients are sums of their own. */
static void codes_are_multiplied_in_shards(void **state)
{
    static const plan_of with[] = { { .words = "one rank, codes", .ranks = 1, .codes = true },
                                    { .words = "shards, codes", .ranks = 2, .sharing = TM_SHARE_ALL, .codes = true } };
    (void)state;
    begin_on("hip");
    job   j = new_job("hip", &with[0], &tm_precision_f32);
    found alone = run_job(&j, TM_OK);
    trains("hip", &with[1], &tm_precision_f32, &alone);
}

/* --- the same again ----------------------------------------------------------------------------------------------- */

/* Played, and launched one by one. */
static void two_runs_have_the_same_bits(void **state)
{
    (void)state;
    begin_on("cuda");
    job   j = new_job("cuda", &layouts[3], &tm_precision_bf16);
    found a = run_job(&j, TM_OK);
    for (int k = 0; k < 2; k++) {
        j.one_by_one = k;
        found b = run_job(&j, TM_OK);
        assert_memory_equal(a.loss, b.loss, sizeof a.loss);
        assert_memory_equal(a.norm, b.norm, sizeof a.norm);
        assert_true(a.weights == b.weights && a.weights != 0);
    }
}

/* From two GPUs to four, to one, and to processors. */
static void checkpoints_go_on_with_other_ranks(void **state)
{
    static const plan_of four = { .words = "four copies", .ranks = 4, .copies = 4 },
                         one = { .words = "one rank", .ranks = 1 };
    static const struct {
        const char    *device;
        const plan_of *plan;
    } after[] = { { "hip", &four }, { "hip", &one }, { "cpu", &layouts[0] } };
    (void)state;
    begin_on("hip");
    job   whole = new_job("hip", &layouts[3], &tm_precision_f32);
    found wanted = run_job(&whole, TM_OK);
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) {
        char *folder = test_tree_make();
        job   first = whole, second = new_job(after[i].device, after[i].plan, &tm_precision_f32);
        first.folder = second.folder = folder;
        first.stop_after = 2;
        found a = run_job(&first, TM_INTERRUPTED);
        assert_int_equal(a.last_step, 2);
        found b = run_job(&second, TM_OK);
        compare(&second, &b, &wanted, 3, 1e-4);
        test_tree_remove(folder);
    }
}

/* --- when something goes wrong ------------------------------------------------------------------------------------ */

/* A job of two copies with a deadline of a second, in which rank 1 meets that: what rank 0 says, and the second one's
 * end. */
static void goes_wrong(const char *variable, const char *value, int death, const char *of_0, const char *of_1)
{
    int codes[MOST];
    job j = new_job("cuda", &layouts[0], &tm_precision_f32);
    j.deadline = 2;
    j.death = death;
    if (variable) setenv(variable, value, 1);
    found *all = run_all(&j, codes);
    if (variable) unsetenv(variable);
    if (all[0].status == TM_OK || codes[0] != 1 || !strstr(all[0].said, of_0))
        fail_msg("%s=%s: rank 0: exit code %d, status %d: %s; wanted: %s", variable, value, codes[0],
                 (int)all[0].status, all[0].said, of_0);
    if (of_1 ? !strstr(all[1].said, of_1) : codes[1] != 128 + SIGKILL)
        fail_msg("%s=%s: rank 1: exit code %d: %s; wanted: %s", variable, value, codes[1], all[1].said, of_1);
    munmap(all, MOST * sizeof *all);
}

static void failures_name_rank_and_call(void **state)
{
    (void)state;
    begin_on("cuda");
    goes_wrong("STANDIN_HANG", "1@2=", 0, "rank 0 has waited 2 s for the end of all-reduce (sum) of ",
               "rank 1 has waited 2 s for the end of all-reduce (sum) of ");
    goes_wrong("STANDIN_HANG", "1@2=", 0, "float32 'gradients of layer 1' on GPU 0 (0000:10:00.0); all ranks are there",
               "on GPU 1 (0000:11:00.0)");
    goes_wrong("STANDIN_RETURN", "1@2=3", 0, "rank 1", "rank 1: ncclAllReduce (all-reduce (sum) of ");
    goes_wrong(NULL, NULL, SIGKILL, "rank 1", NULL);
    goes_wrong(NULL, NULL, SIGSTOP, "rank 1 of group world is late", NULL);
}

static void what_they_do_not_do_is_refused(void **state)
{
    static const struct {
        plan_of     plan;
        const char *words;
    } rows[] = { { { .words = "stages", .ranks = 2, .stages = 2 }, "no fast kernel for op 'send'" } };
    (void)state;
    begin_on("hip");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int    codes[MOST];
        job    j = new_job("hip", &rows[i].plan, &tm_precision_f32);
        found *all = run_all(&j, codes);
        if (all[0].status != TM_UNSUPPORTED || !strstr(all[0].said, rows[i].words))
            fail_msg("%s: status %d: %s", rows[i].plan.words, (int)all[0].status, all[0].said);
        munmap(all, MOST * sizeof *all);
    }
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(layouts_train_on_cuda),
                                           cmocka_unit_test(layouts_train_on_hip),
                                           cmocka_unit_test(codes_are_multiplied_in_shards),
                                           cmocka_unit_test(two_runs_have_the_same_bits),
                                           cmocka_unit_test(checkpoints_go_on_with_other_ranks),
                                           full_test(failures_name_rank_and_call),
                                           cmocka_unit_test(what_they_do_not_do_is_refused) };

TM_TESTS(tests, NULL, NULL)
