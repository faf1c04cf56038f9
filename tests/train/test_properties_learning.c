/* SPDX-License-Identifier: Apache-2.0 */
/* Does it learn? The untrained loss, and a weight that is broken. (Trainings: tests/oracle.) */
#include "support/test.h"
#include "support/golden.h"
#include "support/training.h"

#include <math.h>
#include <stdlib.h>

enum { FAMILIES = TM_FAMILY_MIXTRAL /* those without experts; with: tests/cli/test_experts.sh */ };

static tm_step_options options_of(int family)
{
    return test_family_options((tm_model_family)family);
}

/* Logits of an untrained model are N(0, v), v = dim x variance of the head (the normed state has mean square 1), so the
 * loss is ln V + v / 2. torchtitan cuts its head's normal distribution at 3 standard deviations: variance 0.9733. */
TEST(the_untrained_loss_is_ln_v_plus_half_the_variance)
{
    static const struct {
        tm_model_family family;
        tm_model_init   init;
        bool            tied;
        int64_t         dim, heads, layers, vocab;
        double          head_variance; /* x dim for torchtitan */
    } cases[] = {
        { TM_FAMILY_LLAMA, TM_INIT_TORCHTITAN, false, 64, 2, 2, 700, 0.9733 / 64 },
        { TM_FAMILY_LLAMA, TM_INIT_TORCHTITAN, false, 128, 2, 3, 1500, 0.9733 / 128 },
        { TM_FAMILY_LLAMA, TM_INIT_HF, false, 128, 4, 2, 700, 0.0004 },
        { TM_FAMILY_LLAMA, TM_INIT_HF, true, 128, 2, 2, 700, 0.0004 },
        { TM_FAMILY_GPT, TM_INIT_GPT2, true, 128, 2, 2, 1500, 0.0004 },
        { TM_FAMILY_GPT, TM_INIT_GPT2, false, 256, 4, 2, 700, 0.0004 },
    };
    tm_device *device = test_device_open("cpu", 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_step_options o = options_of(cases[i].family);
        o.shape.init = cases[i].init;
        o.shape.tied = cases[i].tied;
        o.shape.dim = cases[i].dim;
        o.shape.n_heads = o.shape.n_kv_heads = cases[i].heads;
        o.shape.head_dim = cases[i].dim / cases[i].heads;
        o.shape.n_layers = cases[i].layers;
        o.shape.vocab_size = cases[i].vocab;
        o.micro_batch = 16;
        o.seq = 256;
        tm_trainer *trainer = test_trainer_open(device, &o, 31 + i);
        test_batch  batch = test_batch_random(o.micro_batch, o.seq, cases[i].vocab, 32);
        double      loss = test_evaluate(trainer, batch.tokens, batch.targets) / (double)batch.rows;
        double      wanted = log((double)cases[i].vocab) + (double)cases[i].dim * cases[i].head_variance / 2;
        if (!(fabs(loss - wanted) <= 0.05))
            fail_msg("case %zu: the untrained loss is %.4f, wanted %.4f", i, loss, wanted);
        test_batch_fini(&batch);
        tm_trainer_close(trainer);
    }
    tm_device_close(device);
}

/* The fast kernels and the reference pass a NaN on, from wherever it is: a broken weight never goes unnoticed. */
TEST(a_broken_weight_shows_in_loss_and_norm)
{
    tm_device       *device = test_device_open("cpu", 2);
    static const int families[] = { TM_FAMILY_LLAMA, TM_FAMILY_GPT, TM_FAMILY_QWEN3 };
    for (int i = 0; i < 3; i++) {
        tm_step_options options = options_of(families[i]);
        tm_trainer     *trainer = test_trainer_open(device, &options, 3);
        const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
        test_batch      batch = test_batch_random(options.micro_batch, options.seq, options.shape.vocab_size, 4);
        for (size_t t = 0; t < graph->n_tensors; t++) {
            if (graph->tensors[t].role != TM_ROLE_PARAMETER) continue;
            int64_t at = (tm_tensor_id)t == tm_trainer_step_of(trainer)->model.embedding
                             ? batch.tokens[0] * options.shape.dim
                             : 0;
            double  was = golden_get(trainer, (tm_tensor_id)t, at);
            golden_set(trainer, (tm_tensor_id)t, at, (double)NAN);
            test_begin(trainer, 1, 0, 1, batch.target_tokens);
            test_accumulate(trainer, 0, batch.tokens, batch.targets);
            double *loss = test_tensor_read(trainer, tm_trainer_step_of(trainer)->loss);
            if (!isnan(*loss)) fail_msg("a NaN in '%s' gives the loss %g", graph->tensors[t].name, *loss);
            free(loss);
            golden_set(trainer, (tm_tensor_id)t, at, was);
        }
        tm_step_result r = test_step(trainer, 1, 1e-3, 1, &batch);
        assert_true(isfinite(r.loss) && isfinite(r.grad_norm));
        /* a gradient that is not finite is not clipped away */
        test_begin(trainer, 2, 1e-3, 1, batch.target_tokens);
        test_accumulate(trainer, 0, batch.tokens, batch.targets);
        golden_set(trainer, graph->tensors[tm_trainer_step_of(trainer)->model.norm_w].gradient, 1, (double)NAN);
        r = test_update(trainer);
        assert_true(isfinite(r.loss) && isnan(r.grad_norm));
        test_batch_fini(&batch);
        tm_trainer_close(trainer);
    }
    tm_device_close(device);
}
