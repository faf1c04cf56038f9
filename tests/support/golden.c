/* SPDX-License-Identifier: Apache-2.0 */
#include "support/golden.h"

#include "support/test.h"

#include "graph/value.h"
#include "support/training.h"

static uint32_t fnv1a(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static uint32_t fmix32(uint32_t h)
{
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    return h ^ h >> 16;
}

double golden_unit(const char *name, uint32_t i)
{
    return ((double)(fmix32(fnv1a(name) + i * 2654435769u) >> 16) - 32768) / 32768;
}

void golden_tokens(int32_t *tokens, int n, int vocab)
{
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)(fmix32(fnv1a("tokens") + (uint32_t)i * 2654435769u) % (uint32_t)vocab);
}

tm_step_options golden_llama_options(const tm_precision *precision)
{
    tm_step_options o = { .precision = precision,
                          .micro_batch = 1,
                          .seq = 12,
                          .accumulation = 1,
                          .loss_chunk = 12,
                          .optimizer = &tm_optimizer_adamw,
                          .hyper = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 } };
    o.shape = (tm_model_shape){ .family = TM_FAMILY_LLAMA,
                                .vocab_size = 64,
                                .dim = 32,
                                .n_layers = 2,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 8,
                                .ffn_dim = 48,
                                .max_seq_len = 64,
                                .norm_eps = 1e-5,
                                .rope_theta = 10000,
                                .rope_scaled = true,
                                .rope_scaling_factor = 8,
                                .rope_low_freq_factor = 1,
                                .rope_high_freq_factor = 4,
                                .rope_original_max_seq_len = 32,
                                .init = TM_INIT_HF };
    return o;
}

tm_step_options golden_gpt2_options(const tm_precision *precision)
{
    tm_step_options o = golden_llama_options(precision);
    o.seq = o.loss_chunk = 8;
    o.shape = (tm_model_shape){ .family = TM_FAMILY_GPT,
                                .vocab_size = 32,
                                .dim = 16,
                                .n_layers = 2,
                                .n_heads = 2,
                                .n_kv_heads = 2,
                                .head_dim = 8,
                                .ffn_dim = 64,
                                .max_seq_len = 8,
                                .norm_eps = 1e-5,
                                .tied = true,
                                .bias = TM_BIAS_ALL,
                                .init = TM_INIT_GPT2 };
    return o;
}

tm_step_options golden_qwen3_options(const tm_precision *precision)
{
    tm_step_options o = golden_llama_options(precision);
    o.shape.family = TM_FAMILY_QWEN3;
    o.shape.rope_scaled = false;
    o.shape.dim = 16;
    o.shape.norm_eps = 1e-6;
    o.shape.rope_theta = 1e6;
    o.shape.qk_norm = true;
    o.shape.tied = true;
    return o;
}

tm_step_options golden_flux_options(const tm_precision *precision)
{
    tm_step_options o = golden_llama_options(precision);
    o.seq = 9;
    o.shape = (tm_model_shape){ .family = TM_FAMILY_FLUX,
                                .dim = 16,
                                .n_layers = 1,
                                .n_heads = 2,
                                .n_kv_heads = 2,
                                .head_dim = 8,
                                .ffn_dim = 64,
                                .norm_eps = 1e-6,
                                .rope_theta = 10000,
                                .flux = { .n_single = 1,
                                          .text_len = 3,
                                          .rows = 2,
                                          .columns = 3,
                                          .text_dim = 12,
                                          .vector_dim = 6,
                                          .channels = 8,
                                          .time_dim = 8,
                                          .axes = { 2, 2, 4 },
                                          .guidance = true,
                                          .guidance_scale = 3.5 } };
    static const tm_field fields[] = { { .name = "noisy", .dtype = TM_F32, .shape = { 2, { 6, 8 } } },
                                       { .name = "velocity", .dtype = TM_F32, .shape = { 2, { 6, 8 } } },
                                       { .name = "time", .dtype = TM_F32, .shape = { 2, { 1, 1 } } },
                                       { .name = "text", .dtype = TM_F32, .shape = { 2, { 3, 12 } } },
                                       { .name = "pooled", .dtype = TM_F32, .shape = { 2, { 1, 6 } } } };
    o.n_fields = 5;
    memcpy(o.fields, fields, sizeof fields);
    return o;
}

/* "layers.0.attention.wq.lora_A.weight" is called after the module's weight. */
static bool adapter_name(const char *piece, char out[160])
{
    char        weight[160];
    const char *at = strstr(piece, ".lora_");
    if (!at) return false;
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(at - piece), piece);
    golden_public_name(weight, out);
    size_t keep = strlen(out) - strlen(".weight");
    snprintf(out + keep, 160 - keep, "%s", at);
    return true;
}

const char *golden_public_name(const char *piece, char out[160])
{
    if (adapter_name(piece, out)) return out;
    static const char *const pairs[][2] = {
        { "attention.wq.weight", "self_attn.q_proj.weight" },
        { "attention.wk.weight", "self_attn.k_proj.weight" },
        { "attention.wv.weight", "self_attn.v_proj.weight" },
        { "attention.wo.weight", "self_attn.o_proj.weight" },
        { "attention.wq.bias", "self_attn.q_proj.bias" },
        { "attention.wk.bias", "self_attn.k_proj.bias" },
        { "attention.wv.bias", "self_attn.v_proj.bias" },
        { "attention.q_norm.weight", "self_attn.q_norm.weight" },
        { "attention.k_norm.weight", "self_attn.k_norm.weight" },
        { "attention_norm.weight", "input_layernorm.weight" },
        { "ffn_norm.weight", "post_attention_layernorm.weight" },
        { "feed_forward.w1.weight", "mlp.gate_proj.weight" },
        { "feed_forward.w3.weight", "mlp.up_proj.weight" },
        { "feed_forward.w2.weight", "mlp.down_proj.weight" },
    };
    int         layer, used = 0;
    const char *at;
    snprintf(out, 160, "%s", piece);
    for (const char *const *part =
             (const char *const[]){ ".qkv.q", ".qkv.k", ".qkv.v", ".linear1.q", ".linear1.k", ".linear1.v",
                                    ".linear1.mlp", "_modulation.1.shift", "_modulation.1.scale", NULL };
         *part; part++)
        if ((at = strstr(piece, *part))) { /* fused in the first release of FLUX */
            size_t keep = (size_t)(at - piece) + (size_t)(strrchr(*part, '.') - *part);
            snprintf(out + keep, 160 - keep, "%s", at + strlen(*part));
            return out;
        }
    if (strcmp(piece, "tok_embeddings.weight") == 0) return strcpy(out, "model.embed_tokens.weight");
    if (strcmp(piece, "norm.weight") == 0) return strcpy(out, "model.norm.weight");
    if (strcmp(piece, "output.weight") == 0) return strcpy(out, "lm_head.weight");
    if (sscanf(piece, "layers.%d.%n", &layer, &used) == 1 && used > 0)
        for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
            if (strcmp(piece + used, pairs[i][0]) == 0) {
                snprintf(out, 160, "model.layers.%d.%s", layer, pairs[i][1]);
                return out;
            }
    snprintf(out, 160, "%s", piece);
    return out;
}

double golden_get(const tm_trainer *trainer, tm_tensor_id id, int64_t i)
{
    const tm_tensor *tensor = tm_graph_at(tm_trainer_step_of(trainer)->graph, id);
    size_t           bytes = tm_dtype_bytes(tensor->dtype);
    char             value[8];
    assert_ok(tm_trainer_read(trainer, id, (size_t)i * bytes, value, bytes, err));
    return tm_value_get(value, tensor->dtype, 0);
}

void golden_set(tm_trainer *trainer, tm_tensor_id id, int64_t i, double to)
{
    const tm_tensor *tensor = tm_graph_at(tm_trainer_step_of(trainer)->graph, id);
    size_t           bytes = tm_dtype_bytes(tensor->dtype);
    char             value[8];
    tm_value_set(value, tensor->dtype, 0, to);
    assert_ok(tm_trainer_write(trainer, id, (size_t)i * bytes, value, bytes, err));
}

void golden_fill(tm_trainer *trainer)
{
    enum { TENSORS = 128 };
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    struct {
        char    name[160];
        int64_t filled; /* elements: the parts of a tensor that is one elsewhere follow one another */
    } *seen = calloc(TENSORS, sizeof *seen);
    assert_non_null(seen);
    for (size_t t = 0; t < graph->n_tensors; t++) {
        const tm_tensor *tensor = &graph->tensors[t];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        int64_t row = tm_piece_row(tensor->shape);
        void   *values = test_tensor_read(trainer, (tm_tensor_id)t);
        for (int p = 0; p < tensor->n_pieces; p++) {
            char name[160];
            const char *public = golden_public_name(tensor->pieces[p].name, name);
            bool norm = (strstr(public, "norm") || strstr(public, "ln_")) &&
                        (strstr(public, "weight") || strstr(public, "_norm.scale"));
            int k = 0;
            while (k < TENSORS - 1 && seen[k].name[0] && strcmp(seen[k].name, public) != 0) k++;
            snprintf(seen[k].name, sizeof seen[k].name, "%s", public);
            for (int64_t i = 0; i < tensor->pieces[p].rows * row; i++)
                tm_value_set(values, tensor->dtype, tensor->pieces[p].row * row + i,
                             (norm ? 1 : 0) + 0.25 * golden_unit(public, (uint32_t)(seen[k].filled + i)));
            seen[k].filled += tensor->pieces[p].rows * row;
        }
        test_tensor_write(trainer, (tm_tensor_id)t, values);
        free(values);
    }
    free(seen);
}

static double gradient_norm(tm_trainer *trainer, const tm_tensor *parameter, const tm_piece *piece)
{
    int64_t row = tm_shape_elements(parameter->shape) / parameter->shape.n[0];
    double  sum = 0, *values = test_values_read(trainer, parameter->gradient), *g = values + piece->row * row;
    for (int64_t i = 0; i < piece->rows * row; i++) sum += g[i] * g[i];
    free(values);
    return sqrt(sum);
}

void golden_list(const char *path, const char *model, const char *word, double *values, int n)
{
    char  line[4096], name[96];
    bool  here = false;
    int   found = -1;
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("cannot open %s; run from the root of the repository", path);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "model %95s", name) == 1) here = strcmp(name, model) == 0;
        if (!here || strncmp(line, word, strlen(word)) != 0 || line[strlen(word)] != ' ') continue;
        char *at = line + strlen(word), *end;
        for (found = 0; found < n; found++, at = end) {
            values[found] = strtod(at, &end);
            if (at == end) break;
        }
    }
    fclose(file);
    if (found != n) fail_msg("%s: model '%s' has %d numbers in its line '%s', wanted %d", path, model, found, word, n);
}

golden_numbers golden_read_from(const char *path, const char *model, double *losses, int n)
{
    golden_numbers numbers = { 0 };
    char           line[4096], name[96];
    bool           here = false;
    FILE          *file = fopen(path, "r");
    if (!file) fail_msg("cannot open %s; run from the root of the repository", path);
    while (fgets(line, sizeof line, file)) {
        long long parameters;
        double    loss, norm;
        if (sscanf(line, "model %95s %lld %lf %lf", name, &parameters, &loss, &norm) == 4) {
            here = strcmp(name, model) == 0;
            if (here) numbers = (golden_numbers){ .parameters = parameters, .loss = loss, .norm = norm };
        } else if (here && line[0] == ' ' && sscanf(line, "%95s %lf", name, &norm) == 2) {
            assert_true((size_t)numbers.n < sizeof numbers.tensor / sizeof numbers.tensor[0]);
            snprintf(numbers.tensor[numbers.n].name, sizeof name, "%s", name);
            numbers.tensor[numbers.n++].norm = norm;
        }
    }
    fclose(file);
    if (numbers.n == 0) fail_msg("%s has no model '%s'", path, model);
    if (losses) golden_list(path, model, "losses", losses, n);
    return numbers;
}

golden_numbers golden_read(const char *model)
{
    return golden_read_from("tests/golden/golden.txt", model, NULL, 0);
}

void golden_close(const char *what, double value, double wanted, double relative)
{
    double error = fabs(value - wanted) / fabs(wanted);
    if (!(error <= relative))
        fail_msg("%s: %.12g, wanted %.12g, relative error %.3g > %g", what, value, wanted, error, relative);
}

void golden_check_gradients(tm_trainer *trainer, const golden_numbers *wanted, double relative)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    double          squares[96] = { 0 }; /* the pieces of a tensor together */
    for (size_t t = 0; t < graph->n_tensors; t++) {
        const tm_tensor *tensor = &graph->tensors[t];
        if (tensor->role != TM_ROLE_PARAMETER || !tensor->trained) continue;
        for (int p = 0; p < tensor->n_pieces; p++) {
            char        text[160];
            const char *name = golden_public_name(tensor->pieces[p].name, text);
            int         r = 0;
            while (r < wanted->n && strcmp(wanted->tensor[r].name, name) != 0) r++;
            if (r == wanted->n) fail_msg("the golden numbers have no '%s'", name);
            double norm = gradient_norm(trainer, tensor, &tensor->pieces[p]);
            squares[r] += norm * norm;
        }
    }
    for (int r = 0; r < wanted->n; r++)
        golden_close(wanted->tensor[r].name, sqrt(squares[r]), wanted->tensor[r].norm, relative);
}
