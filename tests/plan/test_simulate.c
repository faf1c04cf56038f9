/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated step: what must hold whatever the rates are. */
#include "support/test.h"

#include "device/device.h"
#include "plan/simulate.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/run/run.h"

typedef struct {
    tm_arena       *arena;
    tm_device      *device;
    tm_chooser      chooser;
    tm_config      *config;
    tm_run_options  options;
    tm_machine_plan machine;
} fixture;

static fixture open_one(const char *words, const char *machine)
{
    fixture  f = { .arena = tm_arena_create(), .device = test_device_open("cpu", 1), .config = test_full_config() };
    tm_error err = { 0 };
    if (tm_device_limit_isa(f.device, "base", &err) != TM_OK) fail_msg("%s", err.text);
    f.chooser = tm_device_chooser(f.device);
    if (test_read_run(f.config, words, &f.options, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    if (tm_machine_plan_read(f.arena, machine, &f.machine, &err) != TM_OK) fail_msg("%s", err.text);
    return f;
}

static void close_one(fixture *f)
{
    tm_config_destroy(f->config);
    tm_device_close(f->device);
    tm_arena_destroy(f->arena);
}

static tm_simulation simulate(fixture *f, bool traced)
{
    tm_simulation s;
    tm_step      *step = test_step_plan(&f->options.step, &f->chooser);
    assert_ok(tm_simulate(step, &f->chooser, &f->machine, traced, f->arena, &s, err));
    tm_step_destroy(step);
    return s;
}

static double line(const tm_simulation *s, const char *name)
{
    for (size_t i = 0; i < s->n_lines; i++)
        if (strcmp(s->line[i].name, name) == 0) return s->line[i].seconds;
    return 0;
}

static void within(const char *what, double value, double wanted, double tolerance)
{
    if (!(fabs(value - wanted) <= tolerance * fabs(wanted))) fail_msg("%s: %.9g, wanted %.9g", what, value, wanted);
}

static void check_sum(const tm_simulation *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n_lines; i++) sum += s->line[i].seconds;
    within("sum of the lines", sum, s->step, 1e-9);
}

#define TINY "tiny-llama --training.local_batch_size 2 --training.dtype bfloat16"

static tm_simulated_program simulate_program(fixture *f, const tm_step *step, const tm_program *program)
{
    tm_simulated_program p;
    assert_ok(tm_simulate_program(program, step->graph->n_tensors, &step->options.layout.mesh, &f->machine, f->arena,
                                  &p, err));
    return p;
}

/* One stream: the sum of the instructions, of micro-batches one after the other. */
TEST(one_stream_is_a_sum)
{
    fixture  f = open_one(TINY " --training.global_batch_size 6", "MI300X");
    tm_step *step = test_step_plan(&f.options.step, &f.chooser);
    double   sum = 0, flops = 0;
    for (size_t w = 0; w < step->training.n; w++) {
        const tm_work       *work = &step->training.work[w];
        tm_simulated_program p = simulate_program(&f, step, work->program);
        for (size_t i = 0; i < work->program->count; i++) {
            double times = work->micro_batch < 0 ? 1 : (double)work->count;
            sum += times * (p.instruction[i].end - p.instruction[i].begin);
            flops += times * work->program->instructions[i].cost.flops;
        }
    }
    tm_simulation s = simulate(&f, false);
    within("step", s.step, sum, 1e-9);
    within("flops", s.flops, flops, 1e-9);
    within("as the schedule counts them", s.flops, tm_schedule_flops(&step->training), 1e-9);
    check_sum(&s);
    tm_step_destroy(step);
    close_one(&f);
}

/* Products take what plan/rates.h says of the shapes in docs/ops.md: x (N, K), w (M, K), and gradients; the output
 * layer in chunks, thrice in its gradient. */
TEST(products_have_their_shapes)
{
    fixture              f = open_one(TINY, "MI300X");
    tm_step             *step = test_step_plan(&f.options.step, &f.chooser);
    const tm_hardware   *hw = &f.machine.device;
    const double         launch = 1e-6 * hw->number[TM_HARDWARE_LAUNCH];
    int                  seen[4] = { 0 };
    tm_simulated_program p = simulate_program(&f, step, step->first);
    for (size_t i = 0; i < step->first->count; i++) {
        const tm_instruction *x = &step->first->instructions[i];
        const int64_t        *a = x->call.in[0].shape.n, *b = x->call.in[1].shape.n;
        double                takes = p.instruction[i].end - p.instruction[i].begin, wanted = 0;
        if (x->call.op == &tm_op_linear && ++seen[0])
            wanted = tm_time_product(hw, TM_RATE_BF16, (double)a[0], (double)b[0], (double)a[1], 1, x->cost.bytes, 0);
        if (x->call.op == &tm_op_linear_dgrad && ++seen[1])
            wanted = tm_time_product(hw, TM_RATE_BF16, (double)a[0], (double)b[1], (double)a[1], 1, x->cost.bytes, 0);
        if (x->call.op == &tm_op_linear_wgrad && ++seen[2])
            wanted = tm_time_product(hw, TM_RATE_BF16, (double)a[1], (double)b[1], (double)a[0], 1, x->cost.bytes, 0);
        if (wanted > 0) within(x->call.op->name, takes - launch, wanted, 1e-9);
        if (x->call.op != &tm_op_linear_cross_entropy_grad || !++seen[3]) continue;
        double at_best = x->cost.flops / (1e12 * tm_rate_best(hw, TM_RATE_BF16));
        assert_true(takes > at_best && takes > tm_time_stream(hw, x->cost.bytes, 0, 0));
    }
    for (int i = 0; i < 4; i++) assert_true(seen[i] > 0);
    tm_step_destroy(step);
    close_one(&f);
}

/* Where all but products and attention is free and every shape reaches the rate, a step takes its FLOPs: of the loss,
 * experts and adapters, too. */
TEST(products_take_their_flops)
{
    static const char *const words[] = {
        TINY, "tiny-llama --lora.rank 4 --training.dtype bfloat16",
        "mixtral_8x7B --model.n_layers 2 --model.dim 64 --model.ffn_dim 96 --model.n_heads 4 "
        "--model.n_kv_heads 2 --model.head_dim 16 --model.vocab_size 512 --training.seq_len 64 "
        "--training.local_batch_size 2 --training.dtype bfloat16"
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        fixture f = open_one(words[i], "MI300X");
        double *n = f.machine.device.number;
        n[TM_HARDWARE_MEMORY_RATE] = n[TM_HARDWARE_VECTOR_RATE] = 1e15;
        n[TM_HARDWARE_LAUNCH] = n[TM_HARDWARE_HALF_DEPTH] = 1e-9;
        n[TM_HARDWARE_TILE_ROWS] = n[TM_HARDWARE_TILE_COLUMNS] = n[TM_HARDWARE_UNITS] = 1;
        for (int k = TM_HARDWARE_PRODUCT_F32; k <= TM_HARDWARE_PRODUCT_FP4; k++) n[k] = 1;
        n[TM_HARDWARE_ATTENTION_FORWARD] = n[TM_HARDWARE_ATTENTION_BACKWARD] = 1;
        tm_simulation s = simulate(&f, false);
        double        attention = line(&s, "forward attention") + line(&s, "backward attention");
        double        head = (double)f.options.step.shape.head_dim; /* narrow heads reach less of the rate */
        if (head < 128) s.step -= attention - attention * 2 * head / (head + 128);
        within(words[i], s.step * 1e12, s.flops, 0.001);
        close_one(&f);
    }
}

/* Everything twice as fast. */
TEST(times_scale_with_rates)
{
    fixture       f = open_one(TINY " --launch.gpus_per_node 4 --parallelism.ranks 4", "8xMI300X");
    double       *n = f.machine.device.number;
    tm_simulation slow = simulate(&f, false);
    for (int i = 0; i < TM_HARDWARE_NUMBERS; i++) {
        bool rate = (i >= TM_HARDWARE_MEMORY_RATE && i <= TM_HARDWARE_PRODUCT_FP4 && i != TM_HARDWARE_MEMORY_SHARE) ||
                    i == TM_HARDWARE_ATTENTION_FORWARD || i == TM_HARDWARE_ATTENTION_BACKWARD ||
                    i == TM_HARDWARE_LINK_RATE || i == TM_HARDWARE_NIC_RATE;
        if (rate) n[i] *= 2;
        if (i == TM_HARDWARE_LAUNCH || i == TM_HARDWARE_LINK_DELAY || i == TM_HARDWARE_NIC_DELAY) n[i] /= 2;
    }
    tm_simulation fast = simulate(&f, false);
    within("step", fast.step, slow.step / 2, 1e-9);
    check_sum(&slow);
    close_one(&f);
}

/* Links without end: nothing is waited for; slow ones: their time is exposed, and no less than the busiest stream. */
TEST(communication_is_exposed_or_not)
{
    fixture       f = open_one(TINY " --launch.gpus_per_node 4 --parallelism.ranks 4", "8xMI300X");
    double       *n = f.machine.device.number, alone;
    tm_simulation s = simulate(&f, false);
    assert_true(line(&s, TM_SIMULATED_COMMUNICATION) > 0 && s.busy[TM_ON_COMMUNICATION] > 0);
    n[TM_HARDWARE_LINK_RATE] = 1e12;
    n[TM_HARDWARE_LINK_DELAY] = 1e-9;
    s = simulate(&f, false);
    assert_true(line(&s, TM_SIMULATED_COMMUNICATION) < 1e-3 * s.step);
    within("compute", s.busy[TM_ON_COMPUTE], s.step, 1e-3);
    alone = s.step;
    n[TM_HARDWARE_LINK_RATE] = 1e-3;
    s = simulate(&f, false);
    assert_true(s.step >= s.busy[TM_ON_COMMUNICATION] && s.busy[TM_ON_COMMUNICATION] > 10 * alone);
    within("exposed", line(&s, TM_SIMULATED_COMMUNICATION) + s.busy[TM_ON_COMPUTE], s.step, 1e-6);
    close_one(&f);
}

/* No shorter than what waits for each other, nor than the busiest stream; no longer than all one after the other. */
TEST(programs_are_between_their_bounds)
{
    static const char *const words[] = { TINY " --launch.gpus_per_node 4 --parallelism.ranks 4",
                                         TINY " --launch.gpus_per_node 4 --parallelism.ranks 4 "
                                              "--parallelism.tensor_parallel_degree 2",
                                         TINY " --training.offload optimizer" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        fixture  f = open_one(words[i], "8xMI300X");
        tm_step *step = test_step_plan(&f.options.step, &f.chooser);
        for (size_t w = 0; w < step->training.n; w++) {
            const tm_program    *program = step->training.work[w].program;
            tm_simulated_program p = simulate_program(&f, step, program);
            double path = 0, sum = 0, *behind = tm_arena_take(f.arena, (program->count + 1) * sizeof *behind);
            for (size_t x = 0; x < program->count; x++) {
                const int32_t *waits = program->instructions[x].waits;
                for (int k = 0; k < TM_STREAMS; k++)
                    if (waits[k] >= 0) behind[x] = fmax(behind[x], behind[waits[k]]);
                behind[x] += p.instruction[x].end - p.instruction[x].begin;
                path = fmax(path, behind[x]);
            }
            for (int k = 0; k < TM_STREAMS; k++) {
                sum += p.busy[k];
                assert_true(p.seconds >= p.busy[k] * (1 - 1e-9));
            }
            assert_true(p.seconds >= path * (1 - 1e-9) && p.seconds <= sum * (1 + 1e-9));
        }
        tm_step_destroy(step);
        close_one(&f);
    }
}

/* What quantize rounds to fp8 is multiplied at the rate of fp8, as values and as codes; the output layer is not. */
TEST(low_precision_has_its_rate)
{
    for (int codes = 0; codes < 2; codes++) {
        fixture f = open_one(TINY " --quantize.recipe fp8_tensorwise", "MI300X");
        double *n = f.machine.device.number;
        if (codes) {
            tm_device_close(f.device);
            assert_ok(tm_device_open_planning("cuda", 1, &f.device, err));
            f.chooser = tm_device_chooser(f.device);
        }
        n[TM_HARDWARE_MEMORY_RATE] = 1e15, n[TM_HARDWARE_LAUNCH] = 1e-12;
        tm_simulation slow = simulate(&f, false);
        n[TM_HARDWARE_PRODUCT_FP8] *= 2;
        tm_simulation fast = simulate(&f, false);
        within("forward linear", line(&fast, "forward linear"), line(&slow, "forward linear") / 2, 1e-6);
        within("backward linear", line(&fast, "backward linear"), line(&slow, "backward linear") / 2, 1e-6);
        within("loss", line(&fast, "loss"), line(&slow, "loss"), 1e-9);
        close_one(&f);
    }
}

#define STAGES                                                                                                         \
    " --parallelism.ranks 2 --launch.gpus_per_node 2 --parallelism.pipeline_parallel_degree 2 "                        \
    "--parallelism.pipeline_parallel_schedule "

/* What 1F1B of two stages takes that are not alike: the first one's forward, then the longer of both works all the
 * time, then the first one's backward. Here the second one, with the output layer, is longer. */
TEST(a_pipeline_idles)
{
    for (int m = 2; m <= 8; m *= 2) {
        char words[400];
        snprintf(words, sizeof words, TINY " --training.global_batch_size %d" STAGES "1F1B", 2 * m);
        fixture f = open_one(words, "2xMI300X");
        f.machine.device.number[TM_HARDWARE_LINK_RATE] = 1e12;
        f.machine.device.number[TM_HARDWARE_LINK_DELAY] = 1e-9;
        tm_simulation s = simulate(&f, true);
        double        first = 0, last = 0; /* forward of the first micro-batch, backward of the last, on rank 0 */
        assert_int_equal(s.part, 1);
        for (size_t i = 0; i < s.n_pieces; i++) {
            const tm_simulated_piece *x = &s.piece[i];
            if (x->name || x->part != 0) continue;
            if (x->micro_batch == 0 && strncmp(x->program, "forward", 7) == 0) first = x->seconds;
            if (x->micro_batch == m - 1 && strncmp(x->program, "backward", 8) == 0) last = x->seconds;
        }
        assert_true(first > 0 && last > 0);
        within("idle", line(&s, TM_SIMULATED_BUBBLE), first + last, 0.01);
        check_sum(&s);
        close_one(&f);
    }
}

/* Every order: the trace has each program once for each of its runs, none beside another of its rank, and the step ends
 * with the last of them. */
TEST(each_order_runs_all)
{
    static const char *const orders[] = { "GPipe",         "1F1B",     "Interleaved1F1B", "InterleavedZeroBubble",
                                          "ZBVZeroBubble", "DualPipeV" };
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        char words[400];
        snprintf(words, sizeof words, TINY " --model.n_layers 8 --training.global_batch_size 16" STAGES "%s",
                 orders[o]);
        fixture       f = open_one(words, "2xMI300X");
        tm_simulation s = simulate(&f, true);
        double        end[2] = { 0 }, most = 0, worked[2] = { 0 };
        int           forwards = 0;
        for (size_t i = 0; i < s.n_pieces; i++) {
            const tm_simulated_piece *x = &s.piece[i];
            if (x->name) continue;
            if (x->begin < end[x->part] - 1e-12 && x->micro_batch >= 0)
                fail_msg("%s: %s begins at %g, before %g", orders[o], x->program, x->begin, end[x->part]);
            if (x->micro_batch >= 0) end[x->part] = x->begin + x->seconds;
            most = fmax(most, x->begin + x->seconds);
            worked[x->part] += x->seconds;
            forwards += strncmp(x->program, "forward", 7) == 0;
        }
        within(orders[o], most, s.step, 1e-9);
        within(orders[o], worked[s.part], s.step - line(&s, TM_SIMULATED_BUBBLE), 1e-9);
        assert_int_equal(forwards, 8 * 2 * (strcmp(orders[o], "GPipe") == 0 || strcmp(orders[o], "1F1B") == 0 ? 1 : 2));
        check_sum(&s);
        close_one(&f);
    }
}

/* Bytes are those of the largest plan of the stages. */
TEST(memory_is_that_of_the_plans)
{
    fixture         f = open_one(TINY " --training.global_batch_size 8" STAGES "1F1B", "2xMI300X");
    tm_step_options o = f.options.step;
    tm_simulation   s = simulate(&f, false);
    size_t          most = 0;
    for (o.layout.rank = 0; o.layout.rank < 2; o.layout.rank++) {
        tm_step *step = test_step_plan(&o, &f.chooser);
        if (step->plan->arena_bytes > most) most = step->plan->arena_bytes;
        tm_step_destroy(step);
    }
    assert_int_equal((size_t)s.bytes, most);
    close_one(&f);
}

/* In the trace nothing begins before what it waits for has ended, nor beside its own stream. */
TEST(the_trace_keeps_the_waits)
{
    fixture       f = open_one(TINY " --launch.gpus_per_node 4 --parallelism.ranks 4", "8xH100");
    tm_step      *step = test_step_plan(&f.options.step, &f.chooser);
    tm_simulation s;
    size_t        at = 0;
    assert_ok(tm_simulate(step, &f.chooser, &f.machine, true, f.arena, &s, err));
    for (size_t w = 0; w < step->training.n; w++) {
        const tm_program *p = step->training.work[w].program;
        double            free_at[TM_STREAMS] = { 0 };
        assert_null(s.piece[at].name); /* the program */
        assert_string_equal(s.piece[at++].program, p->name);
        for (size_t i = 0; i < p->count; i++) {
            const tm_simulated_piece *x = &s.piece[at + i];
            assert_ptr_equal(x->name, p->instructions[i].call.op->name);
            assert_true(x->begin >= free_at[x->stream] - 1e-12);
            free_at[x->stream] = x->begin + x->seconds;
            for (int k = 0; k < TM_STREAMS; k++) {
                int32_t other = p->instructions[i].waits[k];
                if (other >= 0)
                    assert_true(x->begin >=
                                s.piece[at + (size_t)other].begin + s.piece[at + (size_t)other].seconds - 1e-12);
            }
        }
        at += p->count;
    }
    assert_int_equal(at, s.n_pieces);
    tm_step_destroy(step);
    close_one(&f);
}
