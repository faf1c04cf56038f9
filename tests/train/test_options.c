/* SPDX-License-Identifier: Apache-2.0 */
/* Keys become options of a run: each goes to its member of tm_run_options and to no other, batches are what ranks and
 * micro-batches make of them, and what does not fit is refused by the name of its key. */
#include "support/test.h"
#include "support/folder.h"
#include "support/full_config.h"

#include "base/text.h"
#include "train/run/run.h"
#include "option_rows.h"
#include "shape_members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define I(member) tm_text_printf(t, "%s%s %lld\n", name, #member, (long long)(o->member))
#define F(member) tm_text_printf(t, "%s%s %.12g\n", name, #member, (double)(o->member))
#define D(member) tm_text_printf(t, "%s%s %s\n", name, #member, format_name(o->member))
#define S(member) tm_text_printf(t, "%s%s %s\n", name, #member, (o->member) ? (o->member) : "none")

/* "none": as it is. */
static const char *format_name(tm_dtype dtype)
{
    return dtype < TM_DTYPE_COUNT ? tm_dtype_name(dtype) : "none";
}

static void say_hyper(tm_text *t, const char *name, const tm_hyper *o)
{
    F(weight_decay), I(decay_matrices_only), F(beta1), F(beta2), F(eps), F(momentum), I(nesterov);
    F(beta2_decay), F(eps1), F(eps2), F(clip_threshold), F(ema_decay);
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
    I(rank), F(alpha), F(dropout), I(rslora), I(dora), I(gaussian), I(xavier), S(targets), S(place), D(base), I(seed);
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

static void say_shape(tm_text *t, const tm_model_shape *s)
{
    member       all[80];
    const size_t n = members_of(s, all);
    tm_text_printf(t, "family %s\nmax_seq_len %lld\ninit %d\nmoe.pattern %s\n", tm_model_family_name(s),
                   (long long)s->max_seq_len, s->init, s->moe.pattern);
    tm_text_printf(t, "init_std %.12g\nmoe.aux_loss %.12g\nmoe.aux_per_sequence %d\nmoe.bias_rate %.12g\n", s->init_std,
                   s->moe.aux_loss, s->moe.aux_per_sequence, s->moe.bias_rate);
    for (size_t i = 0; i < n; i++) tm_text_printf(t, "%s %.12g\n", all[i].name, all[i].value);
}

static void say_step(tm_text *t, const tm_step_options *o)
{
    const char *name = "step.";
    S(precision->name), D(precision->parameter), D(precision->compute), D(precision->gradient), D(precision->moment);
    I(micro_batch), I(seq), I(accumulation), I(n_fields), I(validation_batch), I(validation_seq);
    I(recompute.cheap), I(recompute.every_n), I(recompute.layers);
    for (int i = 0; i < TM_OP_COUNT; i++)
        if (o->recompute.save[i])
            tm_text_printf(t, "step.recompute.save %s %d\n", tm_op_get((tm_op_id)i)->name, o->recompute.save[i]);
    I(offload.optimizer), I(offload.activations), I(offload.space), S(offload.folder), I(loss_chunk), I(n_groups);
    S(optimizer->name), I(preference.seq), I(preference.kind), F(preference.beta), F(preference.label_smoothing);
    I(sample), I(early_updates);
    tm_text_printf(t, "%scompared %s\n", name, o->compared ? o->compared->name : "none");
    say_fields(t, "step.field ", o->fields, o->n_fields);
    say_fields(t, "step.validation_field ", o->validation_fields, o->validation_batch > 0 ? o->n_fields : 0);
    say_hyper(t, "hyper.", &o->hyper);
    for (int i = 0; i < o->n_groups; i++) {
        const tm_group *g = &o->groups[i];
        char            each[32];
        tm_text_printf(t, "group %d: '%s' (%s), rate %.12g, frozen %d, format %s\n", i, g->patterns,
                       g->place ? g->place : "", g->lr_scale, g->frozen, format_name(g->format));
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
    I(flow.protocol), F(flow.dropout), F(flow.spread), I(flow.times), F(flow.logit_mean), F(flow.logit_std);
    F(flow.shift);
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
    I(checkpoint_behind), I(checkpoint_not_last), I(concluded), I(allow_changed_data), I(replay), I(microscope);
    F(microscope_bound), I(quantize_freq), I(sample_tokens), F(slowdown_pct), I(turn_fd);
    I(load_weights != NULL), I(ranks != NULL);
    say_step(t, &o->step);
    say_shape(t, &o->step.shape);
    say_source(t, &o->source);
}

/* Of a preset, or NULL, and words of a command line. */
static tm_status read_words(const char *preset, const char *words, tm_text *out, tm_error *err)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    char           all[3000];
    tm_status      st;
    snprintf(all, sizeof all, "%s%s%s", preset ? preset : "", preset && *preset ? " " : "", words);
    if (preset) {
        st = test_read_run(config, all, &options, err);
    } else {
        test_apply_words(config, all);
        st = tm_config_finish(config, err);
        if (st == TM_OK) st = tm_run_options_read(config, &options, err);
    }
    if (st == TM_OK && out) say_run(out, &options);
    tm_config_destroy(config);
    return st;
}

static bool has_line(const tm_text *text, const char *line, size_t n)
{
    for (const char *at = text->data; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (strcspn(at, "\n") == n && memcmp(at, line, n) == 0) return true;
    return false;
}

/* Is it the member that an entry wants, and its value? Ends with a "*": any that begins so. */
static bool is_wanted(const char *line, size_t n, const char *entry, size_t length, const char *value)
{
    const char  *equals = memchr(entry, '=', length);
    const size_t name = equals ? (size_t)(equals - entry) : length;
    char         found[512], wanted[512];
    if (entry[length - 1] == '*') return n >= length && memcmp(line, entry, length - 1) == 0;
    if (n < name || memcmp(line, entry, name) != 0 || (n > name && line[name] != ' ')) return false;
    if (n == name) return !equals && strchr(entry, ',') != NULL; /* all of the line */
    snprintf(found, sizeof found, "%.*s", (int)(n - name - 1), line + name + 1);
    snprintf(wanted, sizeof wanted, "%.*s", equals ? (int)(length - name - 1) : (int)strlen(value),
             equals ? equals + 1 : value);
    if (!equals && wanted[0] == '[') memmove(wanted, wanted + 1, strlen(wanted)), wanted[strlen(wanted) - 1] = '\0';
    if (strcmp(found, wanted) == 0 || (strcmp(wanted, "true") == 0 && strcmp(found, "1") == 0)) return true;
    if (strcmp(wanted, "false") == 0) return strcmp(found, "0") == 0;
    char  *end;
    double number = strtod(wanted, &end), other = strtod(found, NULL);
    return *wanted && !*end && !(number < other) && !(number > other);
}

/* The lines that the key changes are those of its members, each of them. */
static void check_members(const char *preset, const char *base, const char *key, const char *value, const char *members)
{
    char     words[3000];
    tm_text  before = { 0 }, after = { 0 };
    tm_error err = { 0 };
    unsigned met = 0, all = 0;
    snprintf(words, sizeof words, "%s --%s %s", base, key, value);
    if (read_words(preset, base, &before, &err) != TM_OK) fail_msg("%s: %s", base, err.text);
    if (read_words(preset, words, &after, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    for (const char *at = after.data; *at; at += strcspn(at, "\n") + 1) {
        const size_t n = strcspn(at, "\n");
        bool         found = has_line(&before, at, n);
        int          i = 0;
        for (const char *entry = members; *entry && !found; entry += strcspn(entry, "|"), entry += *entry == '|', i++)
            if (is_wanted(at, n, entry, strcspn(entry, "|"), value)) found = true, met |= 1U << i;
        if (!found) fail_msg("%s %s changes %.*s", key, value, (int)n, at);
    }
    for (const char *entry = members; *entry; entry += strcspn(entry, "|"), entry += *entry == '|') all = all * 2 + 1;
    if (met != all) fail_msg("%s %s does not change all of %s", key, value, members);
    tm_text_fini(&before);
    tm_text_fini(&after);
}

TEST(keys_go_to_their_members)
{
    bool taken[sizeof goes / sizeof goes[0]] = { false };
    (void)test_state, (void)elsewhere;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static const char *const not_here[] = { "optimizer.groups", "recompute_method", "model.rope_high_freq_factor" };
        const char              *members = "";
        bool                     left = false;
        for (size_t k = 0; k < 3; k++) left = left || strcmp(rows[i].key, not_here[k]) == 0;
        if (left) continue; /* other quotes than a line has, or refused with all that it stands beside */
        for (size_t k = 0; k < sizeof goes / sizeof goes[0] && !*members; k++)
            if (!taken[k] && strcmp(goes[k].key, rows[i].key) == 0) members = goes[k].members, taken[k] = true;
        check_members(NULL, rows[i].base, rows[i].key, rows[i].value, members);
    }
    for (size_t k = 0; k < sizeof taken; k++)
        if (!taken[k]) fail_msg("no row of %s", goes[k].key);
    for (size_t i = 0; i < sizeof goes_too / sizeof goes_too[0]; i++)
        check_members("tiny-llama", goes_too[i].base, goes_too[i].key, goes_too[i].value, goes_too[i].members);
}

/* By the name of the key, with exit code 4; up to the end of a range nothing is. */
TEST(what_does_not_fit_is_named)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        tm_error    err = { 0 };
        bool        own = strncmp(refused[i].words, "--", 2) != 0; /* a preset of its own */
        tm_status   st = read_words(own ? "" : "tiny-llama", refused[i].words, NULL, &err);
        const char *named = refused[i].named, *text = err.text + (err.text[0] == '\'');
        if (st == TM_OK ? named != NULL : !named || tm_status_exit_code(st) != 4)
            fail_msg("%s: %d %s", refused[i].words, (int)st, err.text);
        const size_t n = named ? strlen(named) : 0;
        if (named && (strncmp(text, named, n) != 0 || (text[n] >= 'a' && text[n] <= 'z') || text[n] == '_'))
            fail_msg("%s: wanted %s: %s", refused[i].words, named, err.text);
    }
}

/* A step has the samples of all ranks' micro-batches: what is not given follows, what does not divide is refused. */
TEST(batches_are_products)
{
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int local = 1; local <= 3; local++)
            for (int global = 0; global <= 18; global++)
                for (int passes = 0; passes <= 3; passes++) {
                    char       words[300];
                    tm_text    text = { 0 };
                    tm_error   err = { 0 };
                    const int  once = ranks * local, times = passes > 0 ? passes : global > 0 ? global / once : 1;
                    const bool fits = global == 0 || global == times * once;
                    int n = snprintf(words, sizeof words, "--training.local_batch_size %d --training.steps 5 ", local);
                    if (ranks > 1) n += snprintf(words + n, sizeof words - (size_t)n, "--parallelism.ranks %d ", ranks);
                    if (global > 0)
                        n += snprintf(words + n, sizeof words - (size_t)n, "--training.global_batch_size %d ", global);
                    if (passes > 0)
                        snprintf(words + n, sizeof words - (size_t)n, "--training.grad_accumulation %d ", passes);
                    tm_status st = read_words("tiny-llama", words, &text, &err);
                    if (st != (fits && times > 0 ? TM_OK : TM_INVALID)) fail_msg("%s: %d %s", words, (int)st, err.text);
                    if (st != TM_OK) continue;
                    n = snprintf(words, sizeof words, "step.accumulation %d", times);
                    assert_true(has_line(&text, words, (size_t)n));
                    n = snprintf(words, sizeof words, "source.samples %d", 5 * times * once);
                    assert_true(has_line(&text, words, (size_t)n));
                    tm_text_fini(&text);
                }
}

/* Two keys that say one thing: the one of the later place counts; of a file and of the command line here. */
TEST(the_later_place_counts)
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

TEST_FIXTURE(NULL, test_folder_teardown)
