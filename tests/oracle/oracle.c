/* SPDX-License-Identifier: Apache-2.0 */
/* tests/oracle/oracle.c - a training: parameters, data and their order, schedule, clipping, AdamW. */
#include "oracle/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

enum { BYTES = 256, END = 256 };

/* --- random numbers ----------------------------------------------------------------------------------------------- */

static uint64_t mix64(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint32_t mix32(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* Philox-4x32-10: the key is the mixed seed, the counter is index and stream. */
uint64_t oracle_random(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t key = mix64(seed + 0x9E3779B97F4A7C15u), a = index, b = stream;
    uint32_t k[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    for (int round = 0; round < 10; round++, k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u) {
        uint64_t p = 0xD2511F53u * (a & 0xffffffff), q = 0xCD9E8D57u * (b & 0xffffffff);
        uint64_t high_a = a >> 32, high_b = b >> 32;
        a = (q >> 32 ^ high_a ^ k[0]) | q << 32;
        b = (p >> 32 ^ high_b ^ k[1]) | p << 32;
    }
    return a;
}

uint64_t oracle_stream(const char *name) /* FNV-1a */
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001B3u;
    return h;
}

/* A Feistel network of six rounds over the least 4^half >= n; what lies beyond n goes round once more. */
static uint64_t permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n)
{
    int half = 1;
    while (pow(4, half) < (double)n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, key = mix64(seed ^ mix64(stream));
    do
        for (uint64_t round = 0; round < 6; round++)
            i = (i & mask) << half | ((i >> half ^ mix64((i & mask) + mix64(key + round))) & mask);
    while (i >= n);
    return i;
}

/* --- words -------------------------------------------------------------------------------------------------------- */

static const char *value_of(const char *words, const char *key)
{
    char wanted[96];
    snprintf(wanted, sizeof wanted, " --%s=", key);
    const char *last = NULL;
    for (const char *at = words; (at = strstr(at, wanted)); at++) last = at + strlen(wanted);
    return last;
}

double oracle_number(const char *words, const char *key, double fallback)
{
    const char *at = value_of(words, key);
    return !at ? fallback : strncmp(at, "true", 4) == 0 ? 1 : strtod(at, NULL);
}

bool oracle_is(const char *words, const char *key, const char *value)
{
    const char *at = value_of(words, key);
    return at && strcspn(at, " ") == strlen(value) && strncmp(at, value, strlen(value)) == 0;
}

static double number(const oracle *o, const char *key, double fallback)
{
    return oracle_number(o->words, key, fallback);
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

/* "layers.0.attention.wo.weight"; layer -1: of none. */
static void name_in_layer(const oracle *o, int layer, const char *name, char *out, size_t size)
{
    if (layer < 0)
        snprintf(out, size, "%s", name);
    else
        snprintf(out, size, "%s.%d.%s", o->gpt ? "h" : "layers", layer, name);
}

/* Small values that depend on name and element alone; norms' near 1. */
static oracle_parameter *declare(oracle *o, int layer, const char *name, int rows, int columns)
{
    oracle_parameter *p = &o->parameters[o->n_parameters++];
    bool              one = strstr(name, "norm") || strstr(name, "ln_");
    size_t            n = (size_t)(rows * columns);
    name_in_layer(o, layer, name, p->name, sizeof p->name);
    p->rows = rows, p->columns = columns;
    p->matrix = columns > 1;
    p->trained = true;
    p->w = calloc(5 * n, sizeof(double));
    p->g = p->w + n, p->m = p->g + n, p->v = p->m + n, p->average = p->v + n;
    for (size_t i = 0; i < n; i++) {
        double unit = (double)(float)((double)(oracle_random(11, oracle_stream(p->name), i) >> 41) * 0x1p-22 - 1);
        p->w[i] = p->average[i] = one && !strstr(name, "bias") ? 1 + 0.25 * unit : 0.25 * unit;
    }
    return p;
}

static oracle_linear declare_linear(oracle *o, int layer, const char *name, int rows, int columns, bool bias)
{
    char          text[80];
    oracle_linear l = { .parts = 0 };
    snprintf(text, sizeof text, "%s.weight", name);
    l.w = declare(o, layer, text, rows, columns);
    snprintf(text, sizeof text, "%s.bias", name);
    if (bias) l.b = declare(o, layer, text, rows, 1);
    for (int k = 0; k < 3; k++) l.x.scale = l.of_w[k].scale = l.dy[k].scale = 1;
    return l;
}

/* Linears of one product: `ends` of each, 0 behind the last; the name of the first. */
static void divide(const oracle *o, int layer, oracle_linear *l, const char *first, int a, int b, int c)
{
    const int ends[] = { a, b, c };
    name_in_layer(o, layer, first, l->first, sizeof l->first);
    for (l->parts = 0; l->parts < 3 && ends[l->parts]; l->parts++) l->end[l->parts] = ends[l->parts];
}

static void declare_experts(oracle *o, oracle_layer *l, int k)
{
    l->router = declare(o, k, "moe.router.gate.weight", o->experts, o->dim);
    l->expert_up = declare(o, k, "moe.experts.w13.weight", o->experts * 2 * o->ffn, o->dim);
    l->expert_down = declare(o, k, "moe.experts.w2.weight", o->experts * o->dim, o->ffn);
    l->counts = calloc((size_t)o->experts, sizeof(double));
    if (!(o->bias_rate > 0)) return;
    l->bias = declare(o, k, "moe.expert_bias", o->experts, 1);
    l->bias->trained = false, l->bias->state = true;
    memset(l->bias->w, 0, (size_t)o->experts * sizeof(double));
}

static void declare_llama_block(oracle *o, oracle_layer *l, int k)
{
    int q = o->heads * o->head, kv = o->kv_heads * o->head;
    l->norm[0] = declare(o, k, "attention_norm.weight", o->dim, 1);
    l->qkv = declare_linear(o, k, "attention.wqkv", q + 2 * kv, o->dim, false);
    l->out = declare_linear(o, k, "attention.wo", o->dim, q, false);
    l->norm[1] = declare(o, k, "ffn_norm.weight", o->dim, 1);
    divide(o, k, &l->qkv, "attention.wq", q, q + kv, q + 2 * kv);
    divide(o, k, &l->out, "attention.wo", o->dim, 0, 0);
    if (o->experts > 0) {
        declare_experts(o, l, k);
        return;
    }
    l->up = declare_linear(o, k, "feed_forward.w13", 2 * o->ffn, o->dim, false);
    l->down = declare_linear(o, k, "feed_forward.w2", o->dim, o->ffn, false);
    divide(o, k, &l->up, "feed_forward.w1", o->ffn, 2 * o->ffn, 0);
    divide(o, k, &l->down, "feed_forward.w2", o->dim, 0, 0);
}

static void declare_gpt_block(oracle *o, oracle_layer *l, int k)
{
    bool bias = !oracle_is(o->words, "model.bias", "none");
    int  q = o->heads * o->head, kv = o->kv_heads * o->head;
    l->norm[0] = declare(o, k, "ln_1.weight", o->dim, 1);
    l->norm_b[0] = declare(o, k, "ln_1.bias", o->dim, 1);
    l->qkv = declare_linear(o, k, "attn.c_attn", q + 2 * kv, o->dim, bias);
    l->out = declare_linear(o, k, "attn.c_proj", o->dim, q, bias);
    l->norm[1] = declare(o, k, "ln_2.weight", o->dim, 1);
    l->norm_b[1] = declare(o, k, "ln_2.bias", o->dim, 1);
    l->up = declare_linear(o, k, "mlp.c_fc", o->ffn, o->dim, bias);
    l->down = declare_linear(o, k, "mlp.c_proj", o->dim, o->ffn, bias);
}

/* Adapters of the linears that end a residual: all else is frozen. */
static void declare_adapters(oracle *o)
{
    int rank = (int)number(o, "lora.rank", 0);
    for (int i = 0; i < o->n_parameters; i++) o->parameters[i].trained = o->parameters[i].trained && rank == 0;
    for (int k = 0; k < 2 * o->layers && rank > 0; k++) {
        oracle_linear *l = k % 2 ? &o->layer[k / 2].down : &o->layer[k / 2].out;
        char           name[2][80];
        for (int b = 0; b < 2; b++)
            snprintf(name[b], sizeof name[b], "%s.lora_%c.weight", k % 2 ? "feed_forward.w2" : "attention.wo", 'A' + b);
        l->low_a = declare(o, k / 2, name[0], rank, l->w->columns);
        l->low_b = declare(o, k / 2, name[1], l->w->rows, rank);
        l->low_a->matrix = l->low_b->matrix = true;
    }
}

static void declare_model(oracle *o)
{
    o->layer = calloc((size_t)o->layers, sizeof *o->layer);
    o->parameters = calloc((size_t)(16 * o->layers + 8), sizeof *o->parameters);
    o->embedding = declare(o, -1, o->gpt ? "wte.weight" : "tok_embeddings.weight", o->vocab, o->dim);
    if (o->gpt) o->positions = declare(o, -1, "wpe.weight", (int)number(o, "model.max_seq_len", 2048), o->dim);
    for (int k = 0; k < o->layers; k++) (o->gpt ? declare_gpt_block : declare_llama_block)(o, &o->layer[k], k);
    o->norm = declare(o, -1, o->gpt ? "ln_f.weight" : "norm.weight", o->dim, 1);
    if (o->gpt) o->norm_b = declare(o, -1, "ln_f.bias", o->dim, 1);
    o->output = o->embedding;
    if (!o->tied) o->output = declare(o, -1, o->gpt ? "lm_head.weight" : "output.weight", o->vocab, o->dim);
    declare_adapters(o);
}

oracle_parameter *oracle_find(const oracle *o, const char *name)
{
    for (int i = 0; i < o->n_parameters; i++)
        if (strcmp(o->parameters[i].name, name) == 0) return &o->parameters[i];
    return NULL;
}

/* --- data --------------------------------------------------------------------------------------------------------- */

/* Bytes of the texts, each with its end; a held-out part of a text, its last bytes, once a window's worth is owed. */
static void read_texts(oracle *o, const oracle_text *texts, int n)
{
    double fraction = number(o, "data.validation_fraction", 0.05), owed = 0;
    for (int i = 0; i < n; i++) {
        int held = 0, size = texts[i].size;
        owed += fraction * size;
        if (owed >= o->seq + 1) held = owed < size ? (int)owed : size;
        owed -= held;
        for (int split = 0; split < 2; split++) {
            int from = split ? size - held : 0, to = split ? size : size - held;
            o->stream[split] = realloc(o->stream[split], (size_t)(o->length[split] + size + 1) * sizeof(int));
            for (int b = from; b < to; b++) o->stream[split][o->length[split]++] = texts[i].bytes[b];
            if (to > from) o->stream[split][o->length[split]++] = END;
        }
    }
}

oracle_batch oracle_batch_make(const oracle *o)
{
    int          n = o->rows * o->seq;
    int         *memory = calloc((size_t)(4 * n), sizeof(int));
    oracle_batch d = { .n = n, .tokens = memory };
    d.targets = memory + n, d.position = memory + 2 * n, d.first = memory + 3 * n;
    return d;
}

void oracle_batch_free(oracle_batch *d)
{
    free(d->tokens);
}

/* Token t of a sample: a window of the stream, training's in another order in each epoch; or by chance. */
static int token(const oracle *o, int split, long index, int t)
{
    uint64_t windows = o->stream[0] ? (uint64_t)((o->length[0] - 1) / o->seq) : 0, w = (uint64_t)index;
    if (windows == 0) {
        uint64_t stream = oracle_stream(split ? "mock.validation" : "mock.train") + w;
        return (int)(((wide)oracle_random(o->seed, stream, (uint64_t)t) * (unsigned)o->vocab) >> 64);
    }
    if (split == 0) w = permute(o->seed, oracle_stream("text.order") + w / windows, w % windows, windows);
    return o->stream[split][w * (uint64_t)o->seq + (uint64_t)t];
}

void oracle_sample(const oracle *o, int split, long index, int row, oracle_batch *d)
{
    int first = row * o->seq;
    for (int t = 0; t < o->seq; t++) {
        int i = row * o->seq + t, before = t > 0 ? token(o, split, index, t - 1) : 0;
        if (t > 0 && o->separate && before == END) first = i;
        d->tokens[i] = token(o, split, index, t);
        d->targets[i] = o->separate && d->tokens[i] == END ? -1 : token(o, split, index, t + 1);
        d->first[i] = first;
        d->position[i] = i - first;
        d->counted += d->targets[i] >= 0;
    }
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Of step t, from 1, relative to the highest. */
static double rate_factor(const oracle *o, double t)
{
    const char *w = o->words;
    double      all = number(o, "lr_scheduler.total_steps", o->steps), low = number(o, "lr_scheduler.min_lr_factor", 0);
    double      up = fmin(number(o, "lr_scheduler.warmup_steps", 200), all), pi = acos(-1), p;
    double      down = fmin(
             all - up, number(o, "lr_scheduler.decay_steps", nearbyint(all * number(o, "lr_scheduler.decay_ratio", 1))));
    if (oracle_is(w, "lr_scheduler.form", "torchtune"))
        return t - 1 < up ? (t - 1) / up : (1 + cos(pi * (t - 1 - up) / (all - up))) / 2;
    if (oracle_is(w, "lr_scheduler.form", "nemo")) {
        p = (t - 1 - up) / (all - up);
        return p <= 0 ? t / (up + 1) : low + (1 - low) * (1 + cos(pi * p)) / 2;
    }
    if (oracle_is(w, "lr_scheduler.form", "megatron")) {
        if (t - 1 <= up && up > 0) return (t - 1) / up;
        p = (t - 1 - up) / (all - up);
    } else {
        if (t <= up) return t / up;
        p = down > 0 ? fmax(0, (t - 1 - (all - down)) / down) : 0;
    }
    double left = oracle_is(w, "lr_scheduler.decay_type", "cosine")        ? (1 + cos(pi * p)) / 2
                  : oracle_is(w, "lr_scheduler.decay_type", "sqrt")        ? 1 - sqrt(p)
                  : oracle_is(w, "lr_scheduler.decay_type", "exponential") ? 2 * exp2(-p) - 1
                                                                           : 1 - p;
    return low + (1 - low) * left;
}

/* To bfloat16: up or down by chance, 16 random bits added below those that stay; or to nearest even. */
static double rounded(const oracle *o, const oracle_parameter *p, uint32_t i, double x, bool by_chance)
{
    float    f = (float)x;
    uint32_t bits, low = 0x7fff;
    memcpy(&bits, &f, sizeof bits);
    low += bits >> 16 & 1;
    if (by_chance) {
        uint64_t step = oracle_random(o->seed, oracle_stream("rounding"), (uint64_t)o->step + 1) >> 11;
        uint64_t key = oracle_random(step, oracle_stream(p->name) >> 1 | 1, 0);
        low = mix32(mix32(i ^ (uint32_t)key) + mix32((uint32_t)(key >> 32))) & 0xffff;
    }
    bits = (bits + low) & 0xffff0000u;
    memcpy(&f, &bits, sizeof bits);
    return (double)f;
}

void oracle_round(oracle *o)
{
    for (int k = 0; k < o->n_parameters; k++)
        for (int i = 0; i < o->parameters[k].rows * o->parameters[k].columns; i++)
            o->parameters[k].w[i] = rounded(o, NULL, 0, o->parameters[k].w[i], false);
}

static void update(oracle *o, double rate, double norm)
{
    double most = number(o, "training.max_norm", 1), clip = most > 0 ? fmin(1, most / (norm + 1e-6)) : 1;
    double beta1 = number(o, "optimizer.beta1", 0.9), beta2 = number(o, "optimizer.beta2", 0.95);
    double eps = number(o, "optimizer.eps", 1e-8), decay = number(o, "optimizer.weight_decay", 0.1);
    double kept = number(o, "training.ema_decay", 0);
    for (int k = 0; k < o->n_parameters; k++) {
        oracle_parameter *p = &o->parameters[k];
        double            own = !p->matrix && oracle_is(o->words, "optimizer.decay", "matrices") ? 0 : decay;
        for (int i = 0; i < p->rows * p->columns && p->trained; i++) {
            double g = clip * p->g[i];
            p->m[i] = beta1 * p->m[i] + (1 - beta1) * g;
            p->v[i] = beta2 * p->v[i] + (1 - beta2) * g * g;
            double m = p->m[i] / (1 - pow(beta1, o->step + 1)), v = p->v[i] / (1 - pow(beta2, o->step + 1));
            p->w[i] -= rate * own * p->w[i] + rate * m / (sqrt(v) + eps);
            if (o->round_weights) p->w[i] = rounded(o, p, (uint32_t)i, p->w[i], true);
            p->average[i] = kept * p->average[i] + (1 - kept) * p->w[i];
        }
    }
}

/* Experts with fewer rows than the mean are chosen more often from now on. */
static void balance_experts(oracle *o, oracle_layer *l)
{
    double mean = 0, signs = 0;
    for (int e = 0; e < o->experts; e++) mean += l->counts[e] / o->experts;
    for (int e = 0; e < o->experts; e++) signs += (l->counts[e] < mean) - (l->counts[e] > mean);
    for (int e = 0; e < o->experts && l->bias; e++)
        l->bias->w[e] += o->bias_rate * ((l->counts[e] < mean) - (l->counts[e] > mean) - signs / o->experts);
    for (int e = 0; e < o->experts; e++) l->counts[e] = 0;
}

/* The scale of the next step: from the largest magnitude of the last ones. */
static void remember(const oracle *o, oracle_factor *f, double format)
{
    double largest = 0;
    memmove(f->before + 1, f->before, sizeof f->before - sizeof f->before[0]);
    f->before[0] = f->now;
    for (int i = 0; i < (o->recent ? 1 : o->history); i++) largest = fmax(largest, f->before[i]);
    if (largest > 0) f->scale = ldexpf((float)(format / largest), -o->margin);
    f->now = 0;
}

static double evaluate(oracle *o)
{
    double sum = 0;
    int    counted = 0, all = o->stream[0] ? (o->length[1] - 1) / o->seq : INT32_MAX;
    int    batches = (int)number(o, "validation.steps", -1);
    for (int b = 0; b < batches; b++) {
        oracle_batch d = oracle_batch_make(o);
        for (int i = 0; i < d.n; i++) d.targets[i] = -1, d.first[i] = i / o->seq * o->seq;
        for (int r = 0; r < o->rows && b * o->rows + r < all; r++) oracle_sample(o, 1, b * o->rows + r, r, &d);
        sum += d.counted ? oracle_forward(o, &d, false) : 0;
        counted += d.counted;
        oracle_batch_free(&d);
    }
    return sum / counted;
}

oracle_step oracle_train(oracle *o)
{
    oracle_step   out = { .validation = (double)NAN };
    int           targets = 0, every = (int)number(o, "validation.freq", 0), due;
    oracle_batch *batch = calloc((size_t)o->passes, sizeof *batch);
    for (int m = 0; m < o->passes; m++) {
        batch[m] = oracle_batch_make(o);
        for (int r = 0; r < o->rows; r++)
            oracle_sample(o, 0, ((long)o->step * o->passes + m) * o->rows + r, r, &batch[m]);
        targets += batch[m].counted;
    }
    for (int k = 0; k < o->n_parameters; k++)
        memset(o->parameters[k].g, 0, (size_t)(o->parameters[k].rows * o->parameters[k].columns) * sizeof(double));
    o->balanced = 0;
    for (o->micro = 0; o->micro < o->passes; o->micro++) {
        out.loss += oracle_forward(o, &batch[o->micro], true) / targets;
        oracle_backward(o, &batch[o->micro], 1. / targets);
        oracle_batch_free(&batch[o->micro]);
    }
    free(batch);
    out.balance = o->balanced / targets;
    for (int k = 0; k < o->n_parameters; k++)
        for (int i = 0; i < o->parameters[k].rows * o->parameters[k].columns && o->parameters[k].trained; i++) {
            double *g = &o->parameters[k].g[i];
            if (o->round_weights) *g = rounded(o, NULL, 0, *g, false);
            out.norm += *g * *g;
        }
    out.norm = sqrt(out.norm);
    out.rate = number(o, "optimizer.lr", 8e-4) * rate_factor(o, o->step + 1);
    update(o, out.rate, out.norm);
    for (int k = 0; k < o->layers; k++) {
        oracle_linear *all[] = { &o->layer[k].qkv, &o->layer[k].out, &o->layer[k].up, &o->layer[k].down };
        balance_experts(o, &o->layer[k]);
        for (int i = 0; i < 4; i++) {
            remember(o, &all[i]->x, 448);
            for (int p = 0; p < all[i]->parts; p++)
                remember(o, &all[i]->of_w[p], 448), remember(o, &all[i]->dy[p], 57344);
        }
    }
    o->step++;
    due = o->step == o->steps || (every > 0 && o->step % every == 0);
    if (due && !oracle_is(o->words, "validation.enable", "false")) out.validation = evaluate(o);
    return out;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static void read_model(oracle *o)
{
    bool mixtral = oracle_is(o->words, "model.family", "mixtral");
    o->gpt = oracle_is(o->words, "model.family", "gpt");
    o->vocab = (int)number(o, "model.vocab_size", 0), o->dim = (int)number(o, "model.dim", 0);
    o->layers = (int)number(o, "model.n_layers", 0), o->heads = (int)number(o, "model.n_heads", 0);
    o->kv_heads = (int)number(o, "model.n_kv_heads", o->heads);
    o->head = (int)number(o, "model.head_dim", (double)o->dim / o->heads);
    o->ffn = (int)number(o, mixtral ? "model.moe_ffn_dim" : "model.ffn_dim", 4. * o->dim);
    o->tied = number(o, "model.tied", o->gpt) != 0;
    o->window = (int)number(o, "model.sliding_window", 0);
    o->norm_eps = number(o, "model.norm_eps", 1e-5), o->theta = number(o, "model.rope_theta", 10000);
    o->experts = (int)number(o, "model.n_experts", 0), o->top_k = (int)number(o, "model.n_experts_per_token", 0);
    o->sigmoid = oracle_is(o->words, "model.moe_score", "sigmoid");
    o->normalise = number(o, "model.moe_normalise", 1) != 0;
    o->per_sequence = number(o, "model.moe_aux_loss_per_sequence", 1) != 0;
    o->expert_scale = number(o, "model.moe_scale", 1), o->balance = number(o, "model.moe_aux_loss", 0);
    o->bias_rate = number(o, "model.moe_bias_rate", 0);
}

oracle *oracle_open(const char *words, const oracle_text *texts, int n_texts)
{
    oracle *o = calloc(1, sizeof *o);
    o->words = words;
    read_model(o);
    o->steps = (int)number(o, "training.steps", 0), o->seq = (int)number(o, "training.seq_len", 0);
    o->rows = (int)number(o, "training.local_batch_size", 0);
    o->passes = (int)number(o, "training.grad_accumulation", 1);
    o->seed = (uint64_t)number(o, "debug.seed", 1);
    o->separate = number(o, "data.separate_documents", 0) != 0;
    o->dropout = number(o, "lora.dropout", 0);
    o->lora_scale = number(o, "lora.alpha", number(o, "lora.rank", 1)) / number(o, "lora.rank", 1);
    o->delayed = oracle_is(words, "quantize.recipe", "fp8_delayed");
    o->current = oracle_is(words, "quantize.recipe", "fp8_current");
    o->stochastic = number(o, "quantize.stochastic_gradients", 0) != 0;
    o->history = (int)number(o, "fp8_amax_history_len", 0), o->margin = (int)number(o, "fp8_margin", 0);
    o->recent = oracle_is(words, "fp8_amax_compute_algo", "most_recent");
    o->round_weights = number(o, "optimizer.bf16_stochastic_round", 0) != 0;
    o->size = (size_t)1 << 21;
    o->pool = malloc(o->size * sizeof *o->pool);
    declare_model(o);
    read_texts(o, texts, n_texts);
    return o;
}

void oracle_close(oracle *o)
{
    for (int i = 0; i < o->n_parameters; i++) free(o->parameters[i].w);
    for (int k = 0; k < o->layers; k++) free(o->layer[k].counts);
    free(o->parameters);
    free(o->layer);
    free(o->stream[0]);
    free(o->stream[1]);
    free(o->pool);
    free(o);
}
