/* SPDX-License-Identifier: Apache-2.0 */
/* What `explain` says: its text is that of its JSON, and what is summed up there follows from the instructions, from
 * formulas, and from where the ranks are. Instructions and tensors themselves: tests/graph/plan_json.c;
 * memory of other ranks: test_rank_plans.c. */
#include "asked.h"

#include "base/text.h"

#define SMALL                                                                                                          \
    "--model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 64 --training.seq_len 32 "                  \
    "--training.local_batch_size 2 --training.threads 1 --device reference "
#define ONE SMALL "--model.n_layers 1 "
#define FOUR SMALL "--model.n_layers 4 "
#define SHARD "--parallelism.data_parallel_shard_degree "
#define COPIES "--parallelism.data_parallel_replicate_degree "
#define TENSOR "--parallelism.tensor_parallel_degree "
#define CONTEXT "--parallelism.context_parallel_degree "
#define PIPE "--parallelism.pipeline_parallel_degree "
#define GLOBAL "--training.global_batch_size "
#define EXPERTS                                                                                                        \
    "qwen3_30B-A3B --training.seq_len 128 --training.local_batch_size 4 --training.threads 1 --device reference "      \
    "--model.n_layers 2 --parallelism.ranks 8 --parallelism.expert_parallel_degree "

static const char all[] = "weights, gradients and the optimizer's state", none[] = "nothing",
                  state_only[] = "the optimizer's state";

typedef struct {
    const char *words, *mesh, *shared;
    int         micro_batches, each; /* each: ranks of a host; 0: not told */
    bool        one_group;           /* of all ranks: what goes between hosts is known */
} row;

static const row rows[] = {
    { ONE, NULL, NULL, 1, 0, false },
    { ONE GLOBAL "6 ", NULL, NULL, 3, 0, false },
    { FOUR SHARD "4 --ranks-per-host 2 ", "dp_shard 4", all, 1, 2, true },
    { FOUR SHARD "4 --ranks-per-host 3 --training.dtype bfloat16 --optimizer.name Muon ", "dp_shard 4", all, 1, 3,
      true },
    { FOUR SHARD "2 " COPIES "4 --ranks-per-host 2 " GLOBAL "32 ", "dp_replicate 4 x dp_shard 2", all, 2, 2, false },
    { ONE SHARD "1 " COPIES "8 --ranks-per-host 4 ", "dp_replicate 8", none, 1, 4, true },
    { FOUR TENSOR "2 " SHARD "2 --ranks-per-host 1 ", "dp_shard 2 x tp 2", all, 1, 1, true },
    { FOUR CONTEXT "4 --ranks-per-host 2 ", "cp 4", all, 1, 2, true },
    { FOUR PIPE "4 " GLOBAL "8 --ranks-per-host 2 ", "pp 4", none, 4, 2, true },
    { FOUR PIPE "2 " SHARD "2 " GLOBAL "16 --ranks-per-host 1 ", "pp 2 x dp_shard 2", state_only, 4, 1, true },
    { FOUR PIPE "2 " GLOBAL "8 --parallelism.pipeline_parallel_schedule Interleaved1F1B --ranks-per-host 1 ", "pp 2",
      none, 4, 1, true },
    { FOUR PIPE "2 " GLOBAL "8 --parallelism.pipeline_parallel_schedule ZBVZeroBubble ", "pp 2", none, 4, 0, false },
    { EXPERTS "4 --ranks-per-host 1 ", "dp_shard 8 x ep 4", all, 1, 1, true },
    { EXPERTS "4 --ranks-per-host 4 ", "dp_shard 8 x ep 4", all, 1, 4, false },
};

/* --- what is summed up ------------------------------------------------------------------------------------------- */

static bool is_first(const char *program)
{
    return strcmp(program, "first") == 0 || strstr(program, ".first");
}

/* FLOPs of the forward and backward programs of the first micro-batch. */
static double executed(const json_t *j)
{
    double  flops = 0;
    size_t  p;
    json_t *program;
    json_array_foreach((json_t *)member(j, "programs"), p, program)
    {
        if (is_first(string(program, "name"))) flops += number(program, "flops");
    }
    return flops;
}

typedef struct {
    double calls, wire, exposed, exposed_wire;
} traffic;

/* Is nothing computed while collective x of a program may run? */
static bool waits_alone(const json_t *list, size_t x)
{
    for (size_t y = x + 1; y < json_array_size(list); y++) {
        const json_t *i = json_array_get(list, y), *waits = member(i, "waits/communication");
        if (strcmp(string(i, "stream"), "compute") != 0) continue;
        if (waits && json_integer_value(waits) >= (json_int_t)x) break;
        if (number(i, "flops") > 0) return false;
    }
    return true;
}

/* An entry of "communication" is the sum of the instructions of its program with its op. */
static void sum_is(const json_t *j, const json_t *entry, const row *r)
{
    traffic t = { 0 };
    size_t  p, x;
    json_t *program, *i;
    json_array_foreach((json_t *)member(j, "programs"), p, program)
    {
        const json_t *list = member(program, "instructions");
        if (strcmp(string(program, "name"), string(entry, "program")) != 0) continue;
        json_array_foreach((json_t *)list, x, i)
        {
            if (strcmp(string(i, "op"), string(entry, "op")) != 0 || !member(i, "wire_bytes")) continue;
            double wire = number(i, "wire_bytes");
            bool   alone = waits_alone(list, x);
            t.calls++, t.exposed += alone;
            t.wire += wire, t.exposed_wire += alone ? wire : 0;
        }
    }
    is("calls", number(entry, "calls"), t.calls);
    is("bytes", number(entry, "wire_bytes"), t.wire);
    is("exposed calls", number(entry, "exposed_calls"), t.exposed);
    is("exposed bytes", number(entry, "exposed_wire_bytes"), t.exposed_wire);
    if (!r->each) return;
    double between = number(entry, "between_hosts_bytes"), within = number(entry, "within_hosts_bytes");
    if (r->each == 1) is("between hosts of one rank", between, t.wire), is("within them", within, 0);
    if (r->each >= number(j, "ranks/count")) is("between hosts", between, 0), is("within the only one", within, t.wire);
    if (!r->one_group || r->each == 1 || r->each >= number(j, "ranks/count")) return;
    assert_true(between <= number(entry, "between_hosts_direct_bytes"));
    assert_true(within + between <= 4 * t.wire);
}

/* Every program and op that moves something has an entry. */
static void all_that_moves_is_told(const json_t *j)
{
    size_t  p, x, e, told = 0, moving = 0;
    json_t *program, *i, *entry;
    json_array_foreach((json_t *)member(j, "programs"), p, program)
    {
        json_array_foreach((json_t *)member(program, "instructions"), x, i)
        {
            moving += member(i, "wire_bytes") != NULL;
        }
    }
    json_array_foreach((json_t *)member(j, "communication"), e, entry)
    {
        told += (size_t)number(entry, "calls");
    }
    assert_int_equal(told, moving);
}

/* Idle time of orders of which theory knows it, all stages alike; experts by what their layout is. */
static void ranks_are(const json_t *j, const row *r)
{
    static const char *const axes[] = { "pp", "dp_replicate", "dp_shard", "cp", "tp", "ep" };
    tm_text                  mesh = { 0 };
    for (size_t a = 0; a < sizeof axes / sizeof axes[0]; a++) {
        char path[40];
        snprintf(path, sizeof path, "ranks/%s", axes[a]);
        if (number(j, path) > 1) tm_text_printf(&mesh, "%s%s %g", mesh.length ? " x " : "", axes[a], number(j, path));
    }
    assert_string_equal(mesh.data, r->mesh);
    tm_text_fini(&mesh);
    assert_string_equal(string(j, "ranks/shared"), r->shared);
    is("rank", number(j, "ranks/rank"), 0);
    is("ranks", number(j, "ranks/count"),
       number(j, "ranks/pp") * number(j, "ranks/dp_replicate") * number(j, "ranks/dp_shard") * number(j, "ranks/cp") *
           number(j, "ranks/tp"));
    is("ranks that share experts", number(j, "ranks/efsdp") * number(j, "ranks/ep"),
       number(j, "ranks/dp_shard") * number(j, "ranks/cp") * number(j, "ranks/tp"));
    if (member(j, "ranks/pipeline")) {
        double p = number(j, "ranks/pp") - 1, m = number(j, "ranks/pipeline/micro_batches");
        is("micro-batches", m, r->micro_batches);
        if (strcmp(string(j, "ranks/pipeline/schedule"), "ZBVZeroBubble") != 0)
            is("idle", number(j, "ranks/pipeline/idle_share"),
               p / (m * number(j, "ranks/pipeline/stages_per_rank") + p));
    }
    if (!member(j, "experts")) return;
    double rows_of = number(j, "local_batch_size") * number(j, "seq_len") * 8; /* eight experts of a token */
    is("experts", number(j, "experts/all"), 128);
    is("of a rank", number(j, "experts/on_a_rank"), 128 / number(j, "ranks/ep"));
    is("rows", number(j, "experts/even_rows"), rows_of);
    is("all-to-all", number(j, "experts/all_to_all_bytes"), rows_of * 2048 * 8); /* of float64 */
    is("rounds", number(j, "experts/rounds"),
       ceil(rows_of * number(j, "ranks/ep") / number(j, "experts/rows_at_a_time")));
}

static void json_is_right(const json_t *j, const row *r)
{
    bool        large = strstr(r->words, "qwen") != NULL;
    double      parameters = number(j, "parameters"), sum = 0, layers = strstr(r->words, "layers 4") ? 4 : 1;
    size_t      e;
    json_t     *entry;
    const char *name;
    json_object_foreach((json_t *)member(j, "memory"), name, entry)
    {
        sum += json_number_value(entry);
    }
    is("memory", sum, number(j, "arena_bytes"));
    is("active", number(j, "parameters_active"), large ? number(j, "parameters_active") : parameters);
    is("micro-batches", number(j, "micro_batches"), r->micro_batches);
    is("sequences", number(j, "local_batch_size"), large ? 4 : 2);
    is("tokens", number(j, "seq_len"), large ? 128 : 32);
    double moments = number(j, "bytes_per_parameter/optimizer"), weights = number(j, "bytes_per_parameter/weights");
    is("moments", moments * parameters, number(j, "memory/optimizer"));
    is("gradients", number(j, "bytes_per_parameter/gradients"), weights);
    if (!strstr(r->words, "Muon") && r->shared != state_only) is("two moments of a weight", moments, 2 * weights);
    if (!large) /* 6 (N - N_embedding) + 12 L H D T */
        is("titan", number(j, "flops_per_token/titan"), 6 * (parameters - 64 * 32) + 12 * layers * 32 * 32);
    if (!r->mesh) {
        assert_null(member(j, "ranks"));
        return;
    }
    ranks_are(j, r);
    all_that_moves_is_told(j);
    json_array_foreach((json_t *)member(j, "communication"), e, entry)
    {
        sum_is(j, entry, r);
    }
}

/* --- the text ----------------------------------------------------------------------------------------------------- */

/* The text, with one blank between words, has what is expected next. */
static void has_next(const char *of, const tm_text *text, tm_text *wanted)
{
    if (!strstr(text->data, wanted->data)) fail_msg("%s: no '%s' in %s", of, wanted->data, text->data);
    wanted->length = 0;
}

static void text_is_json(const json_t *j, const row *r, const tm_text *text)
{
    char        a[40], b[40], c[40];
    const char *name;
    size_t      e;
    json_t     *value;
    tm_text     wanted = { 0 };
    double      own = number(j, "local_batch_size") * number(j, "seq_len");
    if (member(j, "ranks/cp")) own /= number(j, "ranks/cp");
    expect(&wanted, "model %s: %s parameters", string(j, "model"),
           tm_format_grouped(a, (int64_t)number(j, "parameters")));
    expect(&wanted, "step %g sequence(s) of %g tokens x %g micro-batch(es), %s, logits in chunks of %g rows",
           number(j, "local_batch_size"), number(j, "seq_len"), number(j, "micro_batches"), string(j, "precision"),
           number(j, "loss_chunk_tokens"));
    has_next(r->words, text, &wanted);
    expect(&wanted, "executed %.6g GFLOP per micro-batch, %.6g per token", executed(j) / 1e9, executed(j) / own / 1e9);
    json_object_foreach((json_t *)member(j, "flops_per_token"), name, value)
        expect(&wanted, "%s %.6g GFLOP per token", name, json_number_value(value) / 1e9);
    expect(&wanted, "memory %s planned, %s is the least that any placement needs",
           tm_format_bytes(a, number(j, "arena_bytes")), tm_format_bytes(b, number(j, "live_peak_bytes")));
    has_next(r->words, text, &wanted);
    json_object_foreach((json_t *)member(j, "memory"), name, value)
        expect(&wanted, "%s %s %lld B", name, tm_format_bytes(a, json_number_value(value)),
               (long long)json_integer_value(value));
    has_next(r->words, text, &wanted);
    json_array_foreach((json_t *)member(j, "communication"), e, value)
    {
        expect(&wanted, "%s %s %g calls, %s on the wire; %g with nothing to compute beside (%s)",
               string(value, "program"), string(value, "op"), number(value, "calls"),
               tm_format_bytes(a, number(value, "wire_bytes")), number(value, "exposed_calls"),
               tm_format_bytes(b, number(value, "exposed_wire_bytes")));
        if (r->each)
            expect(&wanted, "of a rank, on average: %s to other hosts (%s from rank to rank), %s within its own",
                   tm_format_bytes(a, number(value, "between_hosts_bytes")),
                   tm_format_bytes(b, number(value, "between_hosts_direct_bytes")),
                   tm_format_bytes(c, number(value, "within_hosts_bytes")));
        has_next(r->words, text, &wanted);
    }
    if (r->mesh)
        expect(&wanted, "ranks %s: this is rank 0 of %g, which share %s", r->mesh, number(j, "ranks/count"), r->shared);
    if (r->mesh) has_next(r->words, text, &wanted);
    if (member(j, "ranks/pipeline"))
        expect(&wanted, "%g micro-batches; idle %.1f %% of a step", number(j, "micro_batches"),
               100 * number(j, "ranks/pipeline/idle_share"));
    tm_text_add(&wanted, "");
    has_next(r->words, text, &wanted);
    tm_text_fini(&wanted);
}

TEST(explained)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_text line = { 0 }, words = { 0 };
        tm_text_printf(&line, "explain %s", rows[i].words);
        json_t *j = asked_json(line.data, TM_OK);
        json_is_right(j, &rows[i]);
        tm_text_add(&line, " --schedule");
        tm_text found = asked(line.data, TM_OK);
        for (char *rest = found.data, *word; (word = strtok_r(rest, " \n", &rest));)
            tm_text_printf(&words, "%s ", word);
        text_is_json(j, &rows[i], &words);
        json_decref(j);
        tm_text_fini(&found), tm_text_fini(&words), tm_text_fini(&line);
    }
}

/* --- parameters that are trained apart -----------------------------------------------------------------------------
 */

typedef struct {
    const char *words, *head; /* behind the summary; ~: the FLOPs of the adapters and what follows from them */
    double      theirs;       /* FLOPs of a micro-batch that are the adapters'; 0: there are none */
    int         n_groups;
} apart;

/* Of A (r, K) and B (M, r) and N tokens: products forward and backward; no input needs a gradient. */
#define LORA(N, r, K, M) (2.0 * (N) * (r) * (2 * (K) + 3 * (M)))

static const apart parted[] = {
    { "--lora.rank 1 --lora.target_modules v_proj", "rank 1, scale 1, 1 modules: 48 parameters are trained",
      LORA(64, 1, 32, 16), 1 },
    { "--lora.rank 2 --lora.alpha 6 --lora.target_modules q_proj,v_proj",
      "rank 2, scale 3, 2 modules: 224 parameters are trained", LORA(64, 2, 32, 32) + LORA(64, 2, 32, 16), 1 },
    { "--lora.rank 2 --lora.alpha 6 --lora.target_modules q_proj,v_proj --lora.use_dora true",
      "rank 2, scale 3, DoRA, 2 modules: 272 parameters are trained", -1, 1 },
    { "--lora.rank 2 --lora.target_modules output,v_proj", "rank 2, scale 1, 2 modules: 288 parameters are trained", -1,
      1 },
    { "'--optimizer.groups=params=*norm* weight_decay=0'", "group 1 *norm*: learning rate x 1", 0, 2 },
    { "'--optimizer.groups=params=*norm* weight_decay=0,params=output* lr_scale=0.5 weight_decay=0.25,params=*wo* "
      "trained=false'",
      "group 1 *norm*: learning rate x 1 group 2 output*: learning rate x 0.5 group 3 *wo*: learning rate x 1, not "
      "trained",
      0, 4 },
};

/* A tensor of the programs. */
static const json_t *tensor_of(const json_t *j, const char *name)
{
    size_t  p, x, t;
    json_t *program, *i, *tensor;
    json_array_foreach((json_t *)member(j, "programs"), p, program)
    {
        json_array_foreach((json_t *)member(program, "instructions"), x, i)
        {
            json_array_foreach((json_t *)member(i, "inputs"), t, tensor)
            {
                if (strcmp(string(tensor, "name"), name) == 0) return tensor;
            }
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* The group, rate and decay that the words give a parameter. */
static void group_is(const json_t *g, const apart *a)
{
    const char *name = string(g, "name");
    bool        lora = a->theirs != 0, norm = strstr(name, "norm") && a->n_groups > 1;
    bool        output = strncmp(name, "output", 6) == 0 && a->n_groups > 2, wo = strstr(name, "wo") && a->n_groups > 3;
    is(name, number(g, "group"), norm ? 1 : output ? 2 : wo ? 3 : 0);
    is(name, number(g, "lr_scale"), output ? 0.5 : 1);
    is(name, number(g, "weight_decay"), norm ? 0 : output ? 0.25 : 0.1);
    assert_int_equal(json_is_true(member(g, "trained")), lora ? strstr(name, ".lora_") != NULL : !wo);
}

TEST(parameters_apart)
{
    for (size_t i = 0; i < sizeof parted / sizeof parted[0]; i++) {
        const apart *a = &parted[i];
        tm_text      line = { 0 };
        double       trained = 0;
        size_t       k;
        json_t      *g, *extent;
        tm_text_printf(&line, "explain " ONE "%s", a->words);
        json_t *j = asked_json(line.data, TM_OK);
        tm_text_add(&line, " --schedule");
        tm_text found = asked(line.data, TM_OK), words = { 0 };
        expect(&words, "%s", found.data);
        json_array_foreach((json_t *)member(j, "parameter_groups"), k, g)
        {
            const json_t *shape = member(tensor_of(j, string(g, "name")), "shape");
            double        elements = 1;
            size_t        d;
            json_array_foreach((json_t *)shape, d, extent) elements *= json_number_value(extent);
            if (json_is_true(member(g, "trained"))) trained += elements;
            group_is(g, a);
        }
        if (!strstr(words.data, a->head)) fail_msg("%s: no '%s'", a->words, a->head);
        assert_non_null(strstr(found.data, ": layers.0.attention.wq.weight, layers.0.attention.wk.weight, "));
        const char *at = strstr(found.data, " GFLOP per micro-batch are theirs"); /* the number in front of it */
        assert_int_equal(at != NULL, a->theirs != 0);
        while (at && at[-1] != ' ') at--;
        if (at) is("trained", trained, strtod(strstr(a->head, ": ") + 2, NULL));
        if (a->theirs > 0 && fabs(strtod(at, NULL) * 1e9 / a->theirs - 1) > 1e-5)
            fail_msg("%s: %.20s, wanted %.9g", a->words, at, a->theirs);
        json_decref(j);
        tm_text_fini(&found), tm_text_fini(&words), tm_text_fini(&line);
    }
}
TEST_FIXTURE(NULL, test_folder_teardown)
