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
    { FOUR TENSOR "2 " SHARD "2 ", "dp_shard 2 x tp 2", all, 1, 0, false },
    { FOUR CONTEXT "4 --ranks-per-host 2 ", "cp 4", all, 1, 2, true },
    { FOUR CONTEXT "2 " TENSOR "2 --ranks-per-host 4 ", "cp 2 x tp 2", all, 1, 4, true },
    { FOUR PIPE "4 " GLOBAL "8 --ranks-per-host 2 ", "pp 4", none, 4, 2, true },
    { FOUR PIPE "2 " SHARD "2 " GLOBAL "16 --ranks-per-host 1 ", "pp 2 x dp_shard 2", state_only, 4, 1, true },
    { FOUR PIPE "2 " GLOBAL "8 --parallelism.pipeline_parallel_schedule Interleaved1F1B --ranks-per-host 1 ", "pp 2",
      none, 4, 1, true },
    { FOUR PIPE "2 " GLOBAL "8 --parallelism.pipeline_parallel_schedule ZBVZeroBubble ", "pp 2", none, 4, 0, false },
    { EXPERTS "4 --ranks-per-host 1 ", "dp_shard 8 x ep 4", all, 1, 1, true },
    { EXPERTS "4 --ranks-per-host 4 ", "dp_shard 8 x ep 4", all, 1, 4, false },
    { EXPERTS "8 --ranks-per-host 2 ", "dp_shard 8 x ep 8", all, 1, 2, true },
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
    double calls, wire, exposed, exposed_wire, between, direct, within;
} traffic;

/* Of a call among p ranks, `each` on every host, by the table of comm/coll/hosts.h. */
static void add_hosts(const char *op, double wire, int p, int each, traffic *t)
{
    int    k = each < p ? each : p, hosts = p / k;
    double direct = wire * (p - k) / (p - 1), all_of_it = 0, between = 0, within = 0;
    bool   sums = strcmp(op, "all_reduce") == 0, gathers = strcmp(op, "all_gather") == 0;
    if (strcmp(op, "send") == 0) direct = each > 1 ? 0 : wire;
    if (sums)
        all_of_it = wire * p / (2 * (p - 1)), between = all_of_it * (hosts - 1) * 2,
        within = all_of_it * (p - hosts) * 2;
    if (gathers) all_of_it = wire * p / (p - 1), between = all_of_it * (hosts - 1), within = all_of_it * (p - hosts);
    if (strcmp(op, "reduce_scatter") == 0) {
        all_of_it = wire * p / (p - 1);
        between = all_of_it * (hosts - 1) + all_of_it * (p - k) / p;
        within = all_of_it * (p - hosts) + all_of_it * (k - 1) / p;
    }
    bool shared = all_of_it >= 32768 && between / p < direct;
    t->direct += direct;
    t->between += shared ? between / p : direct;
    t->within += shared ? within / p : wire - direct;
}

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
            if (r->each) add_hosts(string(i, "op"), wire, (int)number(j, "ranks/count"), r->each, &t);
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
    if ((int)number(j, "ranks/count") % r->each) {
        assert_true(between > 0 && within > 0 && between <= number(entry, "between_hosts_direct_bytes"));
        return;
    }
    is("from rank to rank", number(entry, "between_hosts_direct_bytes"), t.direct);
    is("to other hosts", between, t.between);
    is("within its own", within, t.within);
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

static void expect_summary(const json_t *j, const char *optimizer, tm_text *out)
{
    char        bytes[32], more[40];
    const char *name;
    json_t     *value;
    double      own = number(j, "local_batch_size") * number(j, "seq_len");
    if (member(j, "ranks/cp")) own /= number(j, "ranks/cp");
    expect(out, "model %s: %s parameters", string(j, "model"),
           tm_format_grouped(more, (int64_t)number(j, "parameters")));
    expect(out, "step %g sequence(s) of %g tokens x %g micro-batch(es), %s, logits in chunks of %g rows",
           number(j, "local_batch_size"), number(j, "seq_len"), number(j, "micro_batches"), string(j, "precision"),
           number(j, "loss_chunk_tokens"));
    expect(out, "device reference: float64, one thread");
    expect(out, "executed %.6g GFLOP per micro-batch, %.6g per token", executed(j) / 1e9, executed(j) / own / 1e9);
    json_object_foreach((json_t *)member(j, "flops_per_token"), name, value)
        expect(out, "%s %.6g GFLOP per token", name, json_number_value(value) / 1e9);
    expect(out, "memory %s planned, %s is the least that any placement needs",
           tm_format_bytes(bytes, number(j, "arena_bytes")), tm_format_bytes(more, number(j, "live_peak_bytes")));
    double weights = number(j, "bytes_per_parameter/weights"), gradients = number(j, "bytes_per_parameter/gradients"),
           moments = number(j, "bytes_per_parameter/optimizer");
    expect(out, "per parameter %.4g B: weights %.4g, gradients %.4g, optimizer %.4g (%s)",
           weights + gradients + moments, weights, gradients, moments, optimizer);
    json_object_foreach((json_t *)member(j, "memory"), name, value)
        expect(out, "%s %s %lld B", name, tm_format_bytes(bytes, json_number_value(value)),
               (long long)json_integer_value(value));
}

/* Stages of rank 0 of equal blocks; in a V the last one is its, too. */
static void expect_stages(const json_t *j, tm_text *out)
{
    int ranks = (int)number(j, "ranks/pp"), chunks = 1, blocks = 4;
    if (ranks == 1 && !member(j, "ranks/pipeline")) return;
    chunks = (int)number(j, "ranks/pipeline/stages_per_rank");
    blocks /= ranks * chunks;
    bool v = strcmp(string(j, "ranks/pipeline/schedule"), "ZBVZeroBubble") == 0;
    for (int c = 0; c < chunks; c++) {
        int stage = v && c ? ranks * chunks - 1 : c * ranks;
        expect(out, "stage %d %s%d blocks from %d on%s; %g micro-batches at a time", stage, stage ? "" : "embedding, ",
               blocks, stage * blocks, stage == ranks * chunks - 1 ? ", head" : "", number(j, "ranks/pipeline/slots"));
    }
}

static void expect_ranks(const json_t *j, const row *r, tm_text *out)
{
    char    a[32], b[32], c[32];
    size_t  e;
    json_t *entry;
    if (!r->mesh) return;
    expect(out, "ranks %s: this is rank 0 of %g, which share %s", r->mesh, number(j, "ranks/count"), r->shared);
    expect_stages(j, out);
    if (member(j, "experts")) {
        double ep = number(j, "ranks/ep"), rounds = number(j, "experts/rounds");
        expect(out, "experts %g of 128 on each rank; an all-to-all moves %s, %g/%g of it to other ranks", 128 / ep,
               tm_format_bytes(a, number(j, "experts/all_to_all_bytes")), ep - 1, ep);
        expect(out, "room for %g rows at a time, %.4g times the even share; %g round%s at most",
               number(j, "experts/rows_at_a_time"),
               number(j, "experts/rows_at_a_time") / number(j, "experts/even_rows"), rounds, rounds > 1 ? "s" : "");
    }
    json_array_foreach((json_t *)member(j, "communication"), e, entry)
    {
        expect(out, "%s %s %g calls, %s on the wire; %g with nothing to compute beside (%s)", string(entry, "program"),
               string(entry, "op"), number(entry, "calls"), tm_format_bytes(a, number(entry, "wire_bytes")),
               number(entry, "exposed_calls"), tm_format_bytes(b, number(entry, "exposed_wire_bytes")));
        if (r->each)
            expect(out, "of a rank, on average: %s to other hosts (%s from rank to rank), %s within its own",
                   tm_format_bytes(a, number(entry, "between_hosts_bytes")),
                   tm_format_bytes(b, number(entry, "between_hosts_direct_bytes")),
                   tm_format_bytes(c, number(entry, "within_hosts_bytes")));
    }
}

/* Where "F3" stands in the line of a rank; -1: it does not. */
static int place_of(const char *line, char what, int micro_batch)
{
    char        cell[16];
    const char *end = line + strcspn(line, "\n");
    snprintf(cell, sizeof cell, " %c%d ", what, micro_batch);
    for (const char *at = line; (at = strstr(at, cell)) && at < end; at++) return (int)(at - line);
    snprintf(cell, sizeof cell, " %c%d\n", what, micro_batch);
    const char *at = strstr(line, cell);
    return at && at < end ? (int)(at - line) : -1;
}

/* The grid of a pipeline of one stage a rank: forward from rank to rank, backward the other way, each once; time
 * without work is what is told. */
static void grid_is(const char *grid, const json_t *j)
{
    const char *lines[8];
    int         n = 0, ranks = (int)number(j, "ranks/pp"), m = (int)number(j, "micro_batches"), slot = 3, last = 0;
    for (const char *at = grid; (at = strstr(at, "\n  rank ")); n++) lines[n] = ++at;
    assert_int_equal(n, ranks);
    for (int r = 0; r < ranks; r++)
        for (int k = 1; k <= m; k++) {
            int f = place_of(lines[r], 'F', k), b = place_of(lines[r], 'B', k);
            assert_true(f > 0 && b > 0);
            assert_true(r == 0 || f >= place_of(lines[r - 1], 'F', k) + slot);
            assert_true(r == ranks - 1 ? b >= f + slot : b >= place_of(lines[r + 1], 'B', k) + 2 * slot);
            assert_true(k == 1 || (f > place_of(lines[r], 'F', k - 1) && b > place_of(lines[r], 'B', k - 1)));
            if (b > last) last = b;
        }
    double columns = (last - place_of(lines[0], 'F', 1)) / slot + 2.0; /* a backward is two */
    is("idle in the grid", 1 - 3 * m / columns, number(j, "ranks/pipeline/idle_share"));
}

TEST(explained)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        tm_text    line = { 0 }, wanted = { 0 };
        tm_text_printf(&line, "explain %s", r->words);
        json_t *j = asked_json(line.data, TM_OK);
        json_is_right(j, r);
        tm_text_add(&line, " --schedule");
        tm_text found = asked(line.data, TM_OK);
        expect_summary(j, strstr(r->words, "Muon") ? "Muon" : "AdamW", &wanted);
        expect_ranks(j, r, &wanted);
        if (member(j, "ranks/pipeline")) {
            double stages = number(j, "ranks/pipeline/stages_per_rank");
            expect(&wanted, "pipeline %s: %g ranks x %g stage%s, %g micro-batches; idle %.1f %% of a step",
                   string(j, "ranks/pipeline/schedule"), number(j, "ranks/pp"), stages, stages > 1 ? "s" : "",
                   number(j, "micro_batches"), 100 * number(j, "ranks/pipeline/idle_share"));
            expect(&wanted, "(all stages alike, gradients of inputs and of weights as long as the forward pass)");
            char *grid = strstr(found.data, "\n  rank 0");
            assert_non_null(grid);
            if (stages == 1) grid_is(grid, j);
            grid[1] = '\0';
        } else {
            expect(&wanted, r->micro_batches > 1 ? "schedule first, %sfurther, update" : "schedule first, update",
                   r->micro_batches > 2 ? "2 x " : "");
        }
        words_are(line.data, &found, &wanted);
        json_decref(j);
        tm_text_fini(&line);
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

/* "layers.0.attention.wqkv.weight" is wq, wk and wv; an adapter of it has those that are asked for. */
static void expect_pieces(const char *name, const char *words, tm_text *out)
{
    static const char *const parts[][2] = { { "wqkv", "wq wk wv" }, { "w13", "w1 w3" } };
    for (int k = 0; k < 2; k++) {
        const char *at = strstr(name, parts[k][0]);
        char        list[40], *rest = list;
        int         n = 0;
        if (!at) continue;
        snprintf(list, sizeof list, "%s", strstr(name, ".lora_") ? "wq wv" : parts[k][1]);
        assert_true(!strstr(name, ".lora_") || strstr(words, "q_proj,v_proj"));
        for (char *part; (part = strsep(&rest, " "));)
            tm_text_printf(out, "%s%.*s%s%s", n++ ? ", " : ": ", (int)(at - name), name, part,
                           at + strlen(parts[k][0]));
    }
}

static void expect_parameters(const json_t *j, const apart *a, double *trained, double *frozen, double *bytes,
                              tm_text *out)
{
    size_t  i, k;
    json_t *g, *extent;
    json_array_foreach((json_t *)member(j, "parameter_groups"), i, g)
    {
        const json_t *tensor = tensor_of(j, string(g, "name"));
        tm_text       line = { 0 };
        double        elements = 1;
        tm_text_printf(&line, "%s (", string(g, "name"));
        json_array_foreach((json_t *)member(tensor, "shape"), k, extent)
        {
            tm_text_printf(&line, "%s%lld", k ? ", " : "", (long long)json_integer_value(extent));
            elements *= json_number_value(extent);
        }
        tm_text_printf(&line, ") %s group %g, ", string(tensor, "dtype"), number(g, "group"));
        if (json_is_true(member(g, "trained")))
            tm_text_printf(&line, "weight decay %g", number(g, "weight_decay")), *trained += elements;
        else
            tm_text_add(&line, "not trained"), *frozen += elements, *bytes += number(tensor, "bytes");
        expect_pieces(string(g, "name"), a->words, &line);
        expect(out, "%s", line.data);
        tm_text_fini(&line);
        group_is(g, a);
    }
}

TEST(parameters_apart)
{
    for (size_t i = 0; i < sizeof parted / sizeof parted[0]; i++) {
        const apart *a = &parted[i];
        tm_text      line = { 0 }, wanted = { 0 }, list = { 0 };
        double       trained = 0, frozen = 0, bytes = 0, theirs = 0;
        char         grouped[40], size[32];
        tm_text_printf(&line,
                       "explain --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 "
                       "--model.ffn_dim 64 --training.seq_len 32 --training.local_batch_size 2 "
                       "--training.threads 1 --device reference %s",
                       a->words);
        json_t *j = asked_json(line.data, TM_OK);
        tm_text_add(&line, " --schedule");
        tm_text found = asked(line.data, TM_OK);
        expect_parameters(j, a, &trained, &frozen, &bytes, &list);
        expect_summary(j, "AdamW", &wanted);
        const char *at = strstr(found.data, " per micro-batch are theirs"); /* the number in front of GFLOP */
        if (a->theirs != 0) {
            assert_non_null(at);
            for (at -= strlen(" GFLOP") + 1; *at != ' '; at--) continue;
            theirs = strtod(at, NULL) * 1e9;
            if (a->theirs > 0 && fabs(theirs - a->theirs) > 1e-5 * theirs)
                fail_msg("%s: %.9g FLOPs are theirs, wanted %.9g", a->words, theirs, a->theirs);
            is("trained", trained, strtod(strstr(a->head, ": ") + 2, NULL));
            expect(&wanted, "adapters %s, %s frozen in %s", a->head, tm_format_grouped(grouped, (int64_t)frozen),
                   tm_format_bytes(size, bytes));
            expect(&wanted, "%.6g GFLOP per micro-batch are theirs, %.3g %% of all; %.4g bits per frozen weight",
                   theirs / 1e9, 100 * theirs / executed(j), 8 * bytes / frozen);
        }
        expect(&wanted, "parameters (group 0: AdamW, all that optimizer.groups does not take)");
        if (a->theirs == 0) expect(&wanted, "%s", a->head);
        expect(&wanted, "%s", list.data);
        expect(&wanted, "schedule first, update");
        words_are(line.data, &found, &wanted);
        tm_text_fini(&list);
        tm_text_fini(&line);
        json_decref(j);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
