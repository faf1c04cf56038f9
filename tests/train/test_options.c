/* SPDX-License-Identifier: Apache-2.0 */
/* What keys make of the options of a run, to the letter: every member of tm_run_options, keys that others decide, and
 * what is said of keys that do not fit. tests/train/options.txt has a line of keys and, below it, indented, the members
 * that differ from those of its first line, or the refusal. TM_RECORD=1 build/release/tests/train/test_options writes
 * what is found anew. */
#include "support/folder.h"
#include "support/full_config.h"
#include "support/whole.h"

#include "base/file.h"
#include "base/text.h"
#include "train/run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const char *const records = "tests/train/options.txt";

#define I(member) tm_text_printf(t, "%s%s %lld\n", name, #member, (long long)(o->member))
#define F(member) tm_text_printf(t, "%s%s %.12g\n", name, #member, (double)(o->member))
#define S(member) tm_text_printf(t, "%s%s %s\n", name, #member, (o->member) ? (o->member) : "none")

static void say_hyper(tm_text *t, const char *name, const tm_hyper *o)
{
    F(weight_decay), I(decay_matrices_only), F(beta1), F(beta2), F(eps), F(momentum), I(nesterov);
    F(beta2_decay), F(eps1), F(eps2), F(clip_threshold);
    I(stochastic), I(kahan), I(bf16_moments), I(definition), I(scale), I(in_block);
}

static void say_recipe(tm_text *t, const char *name, const tm_quantize_recipe *o)
{
    S(name), I(multiple);
    for (int f = 0; o->name && f < TM_FACTORS; f++) {
        const tm_quantizer *z = &o->factor[f];
        tm_text_printf(t, "%s%s %d %d %d %d %d %d %d %g\n", name, tm_factor_name((tm_factor)f), z->format, z->scaled,
                       z->rule, z->rotation, z->stochastic, z->empty_one, z->block, (double)z->least);
    }
}

static void say_words(tm_text *t, const char *name, const char *const *words, int n)
{
    tm_text_printf(t, "%s:", name);
    for (int i = 0; i < n; i++) tm_text_printf(t, " %s", words[i]);
    tm_text_add(t, "\n");
}

static void say_quantize(tm_text *t, const tm_quantize *o)
{
    const char *name = "quantize.";
    I(on), I(switch_step), I(skip_small), I(first_layer), I(end_layer), I(history), I(recent), I(margin), I(frozen);
    I(seed), I(axes), I(ranks), I(passes_before), I(passes_behind);
    say_recipe(t, "quantize.recipe[0].", &o->recipe[0]);
    say_recipe(t, "quantize.recipe[1].", &o->recipe[1]);
    say_recipe(t, "quantize.experts.", &o->experts);
    say_recipe(t, "quantize.head.", &o->head);
    say_words(t, "quantize.left_out", o->left_out, o->n_left_out);
    say_words(t, "quantize.only", o->only, o->n_only);
    say_words(t, "quantize.only_experts", o->only_experts, o->n_only_experts);
}

static void say_fields(tm_text *t, const char *name, const tm_field *fields, int n)
{
    for (int i = 0; i < n; i++) {
        tm_text_printf(t, "%s%s %d", name, fields[i].name, fields[i].dtype);
        for (int k = 0; k < fields[i].shape.rank; k++) tm_text_printf(t, " %lld", (long long)fields[i].shape.n[k]);
        tm_text_printf(t, ", %g\n", fields[i].empty);
    }
}

static void say_layout(tm_text *t, const tm_layout *o)
{
    const char *name = "layout.";
    for (int i = 0; i < TM_AXES; i++) tm_text_printf(t, "layout.degree %d: %d\n", i, o->mesh.degree[i]);
    I(rank), I(sharing), I(whole_rows), I(reshard), I(prefetch), I(narrow), I(order), I(chunks), I(first_less);
    I(last_less), I(divide_head), F(head_blocks), I(parts), F(expert_capacity), I(ring);
}

static void say_adapters(tm_text *t, const tm_adapters *o)
{
    const char *name = "adapters.";
    I(rank), F(alpha), F(dropout), I(rslora), I(dora), I(gaussian), I(xavier), S(targets), S(place), I(base), I(seed);
    S(pattern), S(exclude);
    for (size_t i = 0; i < o->n_layers; i++)
        tm_text_printf(t, "adapters.layers %lld-%lld\n", (long long)o->layers[i][0], (long long)o->layers[i][1]);
    for (size_t i = 0; i < o->n_ranks; i++)
        tm_text_printf(t, "adapters.rank of %s %g\n", o->ranks[i].pattern, o->ranks[i].value);
    for (size_t i = 0; i < o->n_alphas; i++)
        tm_text_printf(t, "adapters.alpha of %s %g\n", o->alphas[i].pattern, o->alphas[i].value);
    if (o->rank > 0) tm_text_printf(t, "adapters.factor %.12g\n", tm_adapters_scale(o));
    if (o->rank > 0) tm_adapters_print(o, t); /* as a checkpoint has them */
}

static void say_step(tm_text *t, const tm_step_options *o)
{
    const char *name = "step.";
    S(precision->name), I(precision->parameter), I(precision->compute), I(precision->gradient), I(precision->moment);
    I(micro_batch), I(seq), I(accumulation), I(n_fields), I(validation_batch), I(validation_seq);
    I(recompute.cheap), I(recompute.every_n), I(recompute.layers);
    for (int i = 0; i < TM_OP_COUNT; i++)
        if (o->recompute.save[i])
            tm_text_printf(t, "step.recompute.save %s %d\n", tm_op_get((tm_op_id)i)->name, o->recompute.save[i]);
    I(offload.optimizer), I(offload.activations), I(offload.space), S(offload.folder), I(loss_chunk), I(n_groups);
    S(optimizer->name), I(preference.seq), I(preference.kind), F(preference.beta), F(preference.label_smoothing);
    I(sample), S(compared ? o->compared->name : NULL);
    say_fields(t, "step.field ", o->fields, o->n_fields);
    say_fields(t, "step.validation_field ", o->validation_fields, o->validation_batch > 0 ? o->n_fields : 0);
    say_hyper(t, "hyper.", &o->hyper);
    for (int i = 0; i < o->n_groups; i++) {
        const tm_group *g = &o->groups[i];
        char            each[32];
        tm_text_printf(t, "group %d: '%s' (%s), rate %.12g, frozen %d, format %d\n", i, g->patterns,
                       g->place ? g->place : "", g->lr_scale, g->frozen, g->format);
        snprintf(each, sizeof each, "group %d: ", i);
        if (i > 0) say_hyper(t, each, &g->hyper);
    }
    say_quantize(t, &o->quantize);
    say_adapters(t, &o->adapters);
    say_layout(t, &o->layout);
}

static void say_source(tm_text *t, const tm_source_options *o)
{
    const char *name = "source.";
    S(name), S(path), S(validation_path), I(vocab), I(seq), I(seed), F(validation_fraction), I(plain_text), I(samples);
    I(mask), I(pad_token), I(plain_answers), I(separate);
    I(flow.rows), I(flow.tokens), I(flow.channels), I(flow.text_len), I(flow.text_dim), I(flow.vector_dim);
    I(flow.protocol), F(flow.dropout), F(flow.spread);
    I(sft.format), S(sft.column_map), S(sft.tokenizer), S(sft.chat_template), I(sft.train_on_input), I(sft.packed);
    I(sft.overlong);
}

static void say_run(tm_text *t, const tm_run_options *o)
{
    const char *name = "";
    S(model_name), I(steps), F(learning_rate), F(max_norm), I(seed), I(threads), I(reference_kernels), I(prefetch);
    I(schedule.kind), I(schedule.steps), I(schedule.warmup_steps), F(schedule.decay_ratio), I(schedule.decay);
    F(schedule.min_lr_factor);
    I(validate), I(validation_freq), I(validation_first), I(validation_steps), I(average_sequences), F(target_loss);
    F(target_gap), I(stop_at_target), I(certify), I(certify_after), F(target_half_width), I(reference_free);
    I(checkpoint), S(checkpoint_folder), I(checkpoint_interval), I(checkpoint_load_step), I(checkpoint_keep);
    I(checkpoint_behind), I(checkpoint_not_last), I(concluded), I(allow_changed_data), I(microscope);
    F(microscope_bound), I(quantize_freq), I(sample_tokens), F(slowdown_pct), I(turn_fd);
    I(load_weights != NULL), I(ranks != NULL);
    say_step(t, &o->step);
    say_source(t, &o->source);
}

/* What keys became by others, or without any, and the notes. */
static void say_settled(tm_text *t, const tm_config *config)
{
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        const char   *shown = tm_config_shown(config, key->name), *place = tm_config_place(config, key->name);
        bool derived = strncmp(place, "derived from ", 13) == 0, is_default = strncmp(place, "default", 7) == 0;
        if (derived || (is_default && shown && (!key->fallback || strcmp(shown, key->fallback) != 0)))
            tm_text_printf(t, "%s = %s, %s\n", key->name, shown ? shown : "null", place);
    }
    for (const char *n = tm_config_notes(config); n && *n; n += strcspn(n, "\n"), n += *n == '\n')
        tm_text_printf(t, "note: %.*s\n", (int)strcspn(n, "\n"), n);
}

/* Members, a line each, and what led to them, or what is said. */
static tm_text look_at(const char *words)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    tm_text        out = { 0 };
    tm_status      st = test_read_run(config, words, &options, &err);
    if (st == TM_OK)
        say_run(&out, &options), say_settled(&out, config);
    else
        tm_text_printf(&out, "%d: %s\n", (int)st, err.text);
    tm_config_destroy(config);
    return out;
}

static bool has_line(const tm_text *text, const char *line, size_t n)
{
    for (const char *at = text->data; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (strcspn(at, "\n") == n && memcmp(at, line, n) == 0) return true;
    return false;
}

static void options_are_as_recorded(void **state)
{
    tm_text  recorded = { 0 }, found = { 0 }, first = { 0 };
    tm_error err = { 0 };
    (void)state;
    if (tm_file_read(records, 1 << 20, &recorded, &err) != TM_OK) fail_msg("%s", err.text);
    for (const char *line = recorded.data; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (*line == ' ') continue;
        char words[1500];
        snprintf(words, sizeof words, "%.*s", (int)strcspn(line, "\n"), line);
        tm_text_printf(&found, "%s\n", words);
        if (!*words || *words == '#') continue;
        tm_text now = look_at(words);
        for (const char *at = now.data; *at; at += strcspn(at, "\n") + 1)
            if (!has_line(&first, at, strcspn(at, "\n")))
                tm_text_printf(&found, "    %.*s\n", (int)strcspn(at, "\n"), at);
        if (!first.data)
            first = now;
        else
            tm_text_fini(&now);
    }
    tm_text_fini(&recorded);
    tm_text_fini(&first);
    whole_is(records, &found);
}

/* Two keys that say one thing: the one of the later place counts; of a file and of the command line here. */
static void the_later_place_counts(void **state)
{
    static const struct {
        const char *file, *words, *key, *wanted;
    } cases[] = {
        { "optimizer.lr: 0.002\nmin_lr: 0.0005\n", "--lr_scheduler.min_lr_factor 0.5", "lr_scheduler.min_lr_factor",
          "0.5" },
        { "optimizer.lr: 0.002\nlr_scheduler.min_lr_factor: 0.5\n", "--min_lr 0.0005", "lr_scheduler.min_lr_factor",
          "0.25" },
        { "optimizer.lr: 0.002\nmin_lr: 9\n", "--lr_scheduler.min_lr_factor 0.5", "lr_scheduler.min_lr_factor", "0.5" },
        { "recompute_granularity: full\n", "--activation_checkpoint.mode none", "activation_checkpoint.mode", "none" },
        { "activation_checkpoint.mode: none\n", "--recompute_granularity full", "activation_checkpoint.mode", "full" },
        { "use_distributed_optimizer: true\n",
          "--parallelism.ranks 2 --parallelism.data_parallel_shard_strategy optim_grads",
          "parallelism.data_parallel_shard_strategy", "optim_grads" },
        { "parallelism.data_parallel_shard_strategy: optim_grads\n",
          "--parallelism.ranks 2 --use_distributed_optimizer true", "parallelism.data_parallel_shard_strategy",
          "optim" },
        { "training.steps: 7\n", "--training.epochs 2", "training.steps", "7" },
        { "training.epochs: 2\n", "--training.steps 7", "training.steps", "7" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_config     *config = test_full_config();
        tm_run_options options;
        tm_error       err = { 0 };
        char           words[300];
        const char    *path = test_file_write(test_folder(), "keys.yaml", cases[i].file);
        assert_int_equal(tm_config_load_file(config, path, &err), TM_OK);
        snprintf(words, sizeof words, "tiny-llama %s", cases[i].words);
        if (test_read_run(config, words, &options, &err) != TM_OK) fail_msg("%zu: %s", i, err.text);
        if (strcmp(tm_config_text(config, cases[i].key), cases[i].wanted) != 0)
            fail_msg("%zu: %s is %s", i, cases[i].key, tm_config_text(config, cases[i].key));
        assert_int_equal(tm_run_counts_epochs(config), i == 7);
        tm_config_destroy(config);
    }
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(options_are_as_recorded),
                                           cmocka_unit_test(the_later_place_counts) };

TM_TESTS(tests, NULL, test_folder_teardown)
