/* SPDX-License-Identifier: Apache-2.0 */
/* What the builders declare and emit, for every preset, against the formulas of model/shape.h. Nothing is allocated for
 * tensors: the graphs only. */
#include "support/training.h"

#include "data/source.h"
#include "model/presets.h"

#include "support/test.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void check_unique(const char *model, const char **names, size_t n)
{
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0) fail_msg("%s: the name '%s' is given twice", model, names[i]);
}

/* Parameters, pieces and names of the parameters of a graph. */
static void check_parameters(const char *model, const tm_graph *graph, const tm_model_shape *shape)
{
    int64_t      total = 0;
    size_t       n = 0, n_pieces = 0, capacity = 0;
    const char **names = malloc((graph->n_tensors + 1) * sizeof *names), **pieces = NULL;
    assert_non_null(names);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        int64_t          rows = 0;
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        total += tm_shape_elements(tensor->shape);
        names[n++] = tensor->name;
        assert_true(tensor->n_pieces >= 1 && tensor->trained && tensor->layer >= -1 &&
                    tensor->layer < tm_model_blocks(shape));
        for (int p = 0; p < tensor->n_pieces; p++) {
            assert_true(tensor->pieces[p].row == rows && tensor->pieces[p].rows > 0);
            rows += tensor->pieces[p].rows;
            pieces = tm_grow(pieces, &capacity, n_pieces, sizeof *pieces);
            pieces[n_pieces++] = tensor->pieces[p].name;
        }
        int64_t wanted = tm_shape_elements(tensor->shape) / tm_piece_row(tensor->shape);
        if (rows != wanted)
            fail_msg("%s: the pieces of '%s' have %lld rows of %lld", model, tensor->name, (long long)rows,
                     (long long)wanted);
    }
    if (total != tm_model_parameters(shape))
        fail_msg("%s: the graph has %lld parameters, the formula %lld", model, (long long)total,
                 (long long)tm_model_parameters(shape));
    check_unique(model, names, n);
    check_unique(model, pieces, n_pieces);
    free(names);
    free(pieces);
}

static tm_step_options options_of(const tm_model_shape *shape, int64_t batch, int64_t seq)
{
    tm_step_options o = test_llama_options();
    o.shape = *shape;
    o.micro_batch = batch;
    o.seq = seq;
    return o;
}

TEST(every_preset_has_the_parameters_of_its_formula)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    assert_true(n >= 18);
    for (size_t i = 0; i < n; i++) {
        tm_model_shape shape = test_shape_preset(presets[i].name, NULL);
        tm_graph      *graph = tm_graph_create(&tm_precision_f32);
        tm_model       model;
        tm_model_declare(graph, &shape, 128, NULL, &model);
        check_parameters(presets[i].name, graph, &shape);
        if (tm_model_length(&shape) > 0) {
            tm_graph_destroy(graph); /* images: neither vocabulary nor head */
            continue;
        }
        assert_true((model.head == model.embedding) == shape.tied);
        assert_true((model.positions != TM_NONE) == (shape.family == TM_FAMILY_GPT));
        assert_true((model.rope_table != TM_NONE) == (shape.family != TM_FAMILY_GPT));
        tm_graph_destroy(graph);
    }
}

TEST(every_kind_of_bias_has_the_parameters_of_its_formula)
{
    static const tm_model_bias kinds[] = { TM_BIAS_NONE, TM_BIAS_ALL, TM_BIAS_MI350X_TABLE };
    for (int i = 0; i < 3; i++)
        for (int tied = 0; tied < 2; tied++) {
            tm_model_shape shape = test_gpt_options().shape;
            tm_graph      *graph = tm_graph_create(&tm_precision_f32);
            tm_model       model;
            shape.bias = kinds[i];
            shape.tied = tied;
            tm_model_declare(graph, &shape, 16, NULL, &model);
            check_parameters("gpt", graph, &shape);
            tm_graph_destroy(graph);
        }
}

static bool reads(const tm_node *node, tm_tensor_id id)
{
    for (int i = 0; i < TM_MAX_IN; i++)
        if (node->in[i] == id) return true;
    return false;
}

/* A tied table is looked up and multiplied with, has one gradient to which both add, and is updated once. */
TEST(tied_models_share_one_table)
{
    tm_device *device = test_device_open("null", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (int tied = 0; tied < 2; tied++) {
        tm_model_shape shape = test_gpt_options().shape;
        shape.tied = tied;
        tm_step_options options = options_of(&shape, 2, 16);
        tm_step        *step = test_step_plan(&options, &chooser);
        tm_tensor_id    table = step->model.embedding, gradient = tm_graph_at(step->graph, table)->gradient;
        const tm_node  *loss = NULL, *lookup = NULL, *lookup_grad = NULL;
        size_t          updates = 0;
        for (size_t x = 0; x < step->first->count; x++) {
            const tm_node *node = step->first->instructions[x].node;
            if (node->op == TM_OP_linear_cross_entropy_grad) loss = node;
            if (node->op == TM_OP_embedding) lookup = node;
            if (node->op == TM_OP_embedding_grad) lookup_grad = node;
        }
        for (size_t x = 0; x < step->update->count; x++)
            updates += step->update->instructions[x].node->op == TM_OP_adamw &&
                       reads(step->update->instructions[x].node, table);
        assert_true(loss && lookup && lookup_grad && updates == 1);
        assert_true(reads(lookup, table) && reads(loss, table) == tied);
        assert_true(lookup_grad->out[0] == gradient && (loss->out[2] == gradient) == tied);
        assert_true((lookup_grad->accumulate & 1u) == (unsigned)tied); /* the head came first and stays */
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

/* torchtitan writes the head last: a shared table has the head's values, or an untrained loss would be of the order of
 * the width. */
TEST(a_tied_torchtitan_table_begins_as_the_head)
{
    tm_device *device = test_device_open("null", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (int tied = 0; tied < 2; tied++) {
        tm_model_shape shape = test_llama_options().shape;
        shape.tied = tied;
        tm_step_options options = options_of(&shape, 2, 16);
        tm_step        *step = test_step_plan(&options, &chooser);
        const tm_piece *table = tm_graph_at(step->graph, step->model.embedding)->pieces;
        const tm_piece *head = tm_graph_at(step->graph, step->model.head)->pieces;
        assert_true(fabs(head->std - 1 / sqrt((double)shape.dim)) < 1e-12);
        assert_true(fabs(head->cut - 3 * head->std) < 1e-12);
        assert_true(fabs(table->std - (tied ? head->std : 1)) < 1e-12);
        assert_true(fabs(table->cut - (tied ? head->cut : 0)) < 1e-12);
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

/* 6 FLOPs per weight of a matrix product and token; attention 2 products forward and 5 backward (the scores are
 * computed again), 2 T (T + 1) / 2 x head width multiply-adds x 2 for each head and sequence. */
TEST(executed_flops_are_the_formula)
{
    static const struct {
        const char *preset;
        int64_t     batch, seq;
    } cases[] = { { "tiny-llama", 16, 256 },   { "gpt-small", 8, 512 },    { "gpt-medium", 4, 512 },
                  { "gpt2-124M", 2, 1000 },    { "llama3.2_1B", 1, 4096 }, { "llama3.1_8B", 2, 8192 },
                  { "llama3.1_405B", 1, 8192 } };
    tm_device *device = test_device_open("null", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_model_shape  s = test_shape_preset(cases[i].preset, NULL);
        tm_step_options options = options_of(&s, cases[i].batch, cases[i].seq);
        tm_step        *step = test_step_plan(&options, &chooser);
        double          tokens = (double)(cases[i].batch * cases[i].seq), t = (double)cases[i].seq;
        double product = 2 * (double)cases[i].batch * t * (t + 1) / 2 * (double)(s.n_layers * s.n_heads * s.head_dim);
        double wanted = 6 * (double)tm_model_parameters_matmul(&s) * tokens + 7 * product;
        double forward = 2 * (double)tm_model_parameters_matmul(&s) * tokens + 2 * product;
        if (!(fabs(step->first->cost.flops - wanted) <= 1e-12 * wanted))
            fail_msg("%s: %.15g FLOPs, by hand %.15g", cases[i].preset, step->first->cost.flops, wanted);
        if (!(fabs(step->evaluate->cost.flops - forward) <= 1e-12 * forward))
            fail_msg("%s: %.15g FLOPs forward, by hand %.15g", cases[i].preset, step->evaluate->cost.flops, forward);
        /* the convention that counts the same without the recomputed scores */
        double exact = tm_model_flops_per_token(&s, TM_FLOPS_EXACT_CAUSAL, cases[i].seq) * tokens;
        assert_true(fabs(wanted - product - exact) <= 1e-12 * exact);
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

/* A third of what a training step of images is counted as, by hand; attention has a fifth product when it is undone. */
TEST(images_execute_their_formula)
{
    tm_device        *device = test_device_open("null", 1);
    tm_chooser        chooser = tm_device_chooser(device);
    tm_model_shape    s = test_shape_preset("tiny-flux", "model.guidance_embed=true");
    tm_step_options   options = options_of(&s, 3, tm_model_length(&s));
    tm_source_options source = { .name = "gaussians",
                                 .flow = { .tokens = s.flux.rows * s.flux.columns,
                                           .channels = s.flux.channels,
                                           .text_len = s.flux.text_len,
                                           .text_dim = s.flux.text_dim,
                                           .vector_dim = s.flux.vector_dim } };
    tm_error          err = { 0 };
    assert_int_equal(tm_source_fields(&source, options.fields, &options.n_fields, &err), TM_OK);
    tm_step *step = test_step_plan(&options, &chooser);
    double   wanted = tm_model_flops_per_token(&s, TM_FLOPS_MATMUL, options.seq) * 3 * (double)options.seq / 3;
    if (!(fabs(step->evaluate->cost.flops - wanted) <= 1e-12 * wanted))
        fail_msg("%.15g FLOPs forward, by hand %.15g", step->evaluate->cost.flops, wanted);
    tm_step_destroy(step);
    tm_device_close(device);
}

TEST(every_node_knows_its_layer_and_module)
{
    static const char *const presets[] = { "tiny-llama", "gpt-small" };
    tm_device               *device = test_device_open("null", 1);
    tm_chooser               chooser = tm_device_chooser(device);
    for (int i = 0; i < 2; i++) {
        tm_model_shape  s = test_shape_preset(presets[i], NULL);
        tm_step_options options = options_of(&s, 1, 16);
        tm_step        *step = test_step_plan(&options, &chooser);
        size_t          in_blocks = 0;
        for (size_t x = 0; x < step->first->count; x++) {
            const tm_node *node = step->first->instructions[x].node;
            char           prefix[32];
            snprintf(prefix, sizeof prefix, "%s.%d.", s.family == TM_FAMILY_GPT ? "h" : "layers", node->layer);
            assert_true(*node->module);
            if (node->layer < 0)
                assert_true(strchr(node->module, '.') == NULL);
            else if (strncmp(node->module, prefix, strlen(prefix)) != 0)
                fail_msg("module '%s' in layer %d", node->module, node->layer);
            in_blocks += node->layer >= 0;
        }
        assert_true(in_blocks >= (size_t)s.n_layers * 18);
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

/* What comes behind a model is in no block, of a stage without an end, too. */
TEST(behind_a_model_is_no_block)
{
    static const char *const presets[] = { "tiny-llama", "gpt-small" };
    for (int i = 0; i < 2; i++) {
        tm_graph      *graph = tm_graph_create(&tm_precision_f32);
        tm_model_shape s = test_shape_preset(presets[i], NULL);
        tm_parallel    parallel = { .chunks = 1, .chunk = { { .end = 1, .begins = true } } };
        tm_model       model;
        tm_model_declare(graph, &s, 8, &parallel, &model);
        (void)tm_graph_segment(graph, "stage");
        assert_true(graph->layer == -1 && !*graph->module);
        model.stage = parallel.chunk[0];
        tm_inputs inputs = { .n = 1, .name = { "tokens" } };
        inputs.tensor[0] = tm_graph_tensor(graph, "tokens", TM_ROLE_INPUT, tm_shape_1(8));
        graph->tensors[inputs.tensor[0]].dtype = TM_I32;
        assert_int_not_equal(tm_model_loss(graph, &model, &inputs, TM_NONE, 0, false), TM_NONE);
        assert_true(graph->layer == -1 && !*graph->module);
        tm_model_update(graph, &model);
        assert_true(graph->layer == -1 && !*graph->module);
        tm_graph_destroy(graph);
    }
}
