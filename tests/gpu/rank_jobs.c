/* SPDX-License-Identifier: Apache-2.0 */
#include "support/test.h"
#include "gpu/rank_jobs.h"
#include "gpu/emulated.h"
#include "support/folder.h"
#include "support/training.h"

#include "base/clock.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* --- layouts ------------------------------------------------------------------------------------------------------ */

#define MEMBER(name)                                                                                                   \
    {                                                                                                                  \
#name, offsetof(plan_of, name)                                                                                 \
    }
static const struct {
    const char *name;
    size_t      at;
} members[] = { MEMBER(ranks),   MEMBER(copies),  MEMBER(tensor),     MEMBER(context),     MEMBER(stages),
                MEMBER(experts), MEMBER(sharing), MEMBER(order),      MEMBER(chunks),      MEMBER(samples),
                MEMBER(layers),  MEMBER(percent), MEMBER(tied),       MEMBER(divide_head), MEMBER(mixture),
                MEMBER(let_go),  MEMBER(ring),    MEMBER(whole_rows), MEMBER(narrow),      MEMBER(keeps),
                MEMBER(codes) };

static const struct {
    const char *name;
    int         value;
} values[] = { { "optimizer", TM_SHARE_OPTIMIZER },
               { "gradients", TM_SHARE_GRADIENTS },
               { "weights", TM_SHARE_ALL },
               { "gpipe", TM_PIPELINE_GPIPE },
               { "1f1b", TM_PIPELINE_1F1B },
               { "interleaved", TM_PIPELINE_INTERLEAVED },
               { "interleaved_zero", TM_PIPELINE_INTERLEAVED_ZERO },
               { "zbv", TM_PIPELINE_ZBV },
               { "dual_v", TM_PIPELINE_DUAL_V } };

static int value_of(const char *text)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (strcmp(values[i].name, text) == 0) return values[i].value;
    int n = atoi(text);
    if (n <= 0) fail_msg("'%s' is no value of a layout", text);
    return n;
}

static void set_member(plan_of *p, const char *name, int value)
{
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (strcmp(members[i].name, name) == 0) {
            memcpy((char *)p + members[i].at, &value, sizeof value);
            return;
        }
    fail_msg("'%s' is no member of a layout", name);
}

plan_of plan_from(const char *words)
{
    plan_of p = { .words = words };
    char    copy[200];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *rest = copy, *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        if (!value) fail_msg("%s: '%s'", words, word);
        *value++ = '\0';
        set_member(&p, word, value_of(value));
    }
    return p;
}

plan_of alone_of(const plan_of *p)
{
    return (plan_of){ .words = "one rank",
                      .ranks = 1,
                      .samples = p->samples,
                      .layers = p->layers,
                      .tied = p->tied,
                      .mixture = p->mixture,
                      .codes = p->codes };
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

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
    o.step.shape.n_heads = 4, o.step.shape.n_kv_heads = 2;
    if (j->plan.mixture)
        o.step.shape = test_shape_preset("mixtral_8x7B",
                                         "--model.dim=32 --model.n_heads=4 --model.n_kv_heads=2 --model.head_dim=8 "
                                         "--model.vocab_size=64 --model.max_seq_len=64 --model.n_experts=8 "
                                         "--model.n_experts_per_token=2 --model.moe_ffn_dim=24 "
                                         "--model.moe_aux_loss=0.02");
    o.step.shape.n_layers = j->plan.layers ? j->plan.layers : 2;
    o.step.shape.tied = j->plan.tied;
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

static void take_codes(tm_step_options *step)
{
    step->quantize = (tm_quantize){ .on = true, .switch_step = -1, .history = 4, .seed = 1 };
    step->quantize.recipe[0] = *tm_quantize_recipe_find("fp8_tensorwise");
    for (int f = 0; f < TM_FACTORS; f++) {
        uint8_t *format = &step->quantize.recipe[0].factor[f].format; /* of gfx942 */
        *format = *format == TM_E5M2 ? TM_E5M2FNUZ : TM_E4M3FNUZ;
    }
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
    l->sharing = (tm_sharing)p->sharing;
    l->reshard = !p->keeps;
    l->prefetch = 1;
    l->narrow = p->narrow;
    l->ring = p->ring;
    l->whole_rows = p->whole_rows;
    if (p->codes) take_codes(step);
    l->mesh.degree[TM_AXIS_EP] = of(p->experts);
    l->order = (tm_pipeline_order)p->order;
    l->chunks = p->chunks;
    l->divide_head = p->divide_head;
    l->head_blocks = p->divide_head ? 2 : 0;
    l->let_go = p->let_go;
    l->expert_capacity = p->percent / 100.0;
    step->accumulation = (p->samples ? p->samples : BATCH) * parts / p->ranks;
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
    signal(SIGSEGV, SIG_DFL), signal(SIGABRT, SIG_DFL); /* not the tests' */
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
found *run_all(const job *j, int codes[MOST])
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

void end_all(found *all)
{
    munmap(all, MOST * sizeof *all);
}

found run_job(const job *j, tm_status wanted)
{
    int    codes[MOST];
    found *all = run_all(j, codes), first = all[0];
    for (int r = 0; r < j->plan.ranks; r++)
        if (codes[r] != 0 || all[r].status != wanted)
            fail_msg("%s on %s, rank %d: exit code %d, status %d: %s", j->plan.words, j->device, r, codes[r],
                     (int)all[r].status, all[r].said);
    end_all(all);
    return first;
}

static void near(double a, double b, double bound, const char *what, const job *j, int step)
{
    if (!(fabs(a - b) <= bound * fmax(1, fabs(b))))
        fail_msg("%s on %s, %s of step %d: %.9g, wanted %.9g", j->plan.words, j->device, what, step, a, b);
}

void compare_runs(const job *j, const found *a, const found *b, int from, double bound)
{
    assert_int_equal(a->first_step, from);
    assert_int_equal(a->last_step, STEPS);
    for (int t = from; t <= STEPS; t++) {
        near(a->loss[t], b->loss[t], bound, "loss", j, t);
        near(a->norm[t], b->norm[t], 10 * bound, "norm", j, t);
    }
    near(a->validation, b->validation, bound, "held-out loss", j, STEPS);
}

job new_job(const char *device, const plan_of *plan, const tm_precision *precision)
{
    return (job){ .device = device, .plan = *plan, .precision = precision };
}

double bound_for(const plan_of *plan, const tm_precision *precision)
{
    return precision == &tm_precision_bf16 || plan->narrow || plan->codes ? 1e-2 : 1e-4;
}

/* GPUs beside processors in the same layout, and those beside one rank. */
void trains(const char *device, const plan_of *plan, const tm_precision *precision)
{
    plan_of one = alone_of(plan);
    job     gpus = new_job(device, plan, precision), cpus = new_job("cpu", plan, precision);
    job     single = new_job(device, &one, precision);
    found   a = run_job(&gpus, TM_OK), b = run_job(&cpus, TM_OK), alone = run_job(&single, TM_OK);
    compare_runs(&gpus, &a, &b, 1, bound_for(plan, precision));
    compare_runs(&gpus, &a, &alone, 1, bound_for(plan, precision));
    if (!strstr(a.sums, strcmp(device, "hip") == 0 ? "-rccl-2.28.9" : "-nccl-2.28.9"))
        fail_msg("%s: sums '%s'", device, a.sums);
    if (!(a.communication > 0 && a.gap < 1e-6))
        fail_msg("%s: %g s of communication, lines are off by %g s", plan->words, a.communication, a.gap);
}

void begin_on(const char *device)
{
    if (gpu_is_real() || !emulated_device(device)) skip();
    setenv("STANDIN_GPUS", "8", 1);
    setenv("TRAINMARK_NCCL", test_built(strcmp(device, "hip") == 0 ? "standins/rccl.so" : "standins/nccl.so"), 1);
}
