/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing is accepted and ignored: every key that is marked as used, set to another value, changes what the run plans,
 * computes or tells. A key that no row of the tables names fails the test. */
#include "support/test.h"
#include "base/file.h"
#include "base/log.h"
#include "graph/plan.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/run/run.h"
#include "key_effects_rows.h"

/* `key` set to `value` on top of `base`. */
typedef struct {
    char        key[64], value[64];
    const char *base;
} row;

static row rows[256];
static int n_rows;

static void read_rows(void)
{
    for (size_t i = 0; i < sizeof effects / sizeof effects[0]; i++)
        for (const char *at = effects[i].keys; *at; at += strcspn(at, ";"), at += strspn(at, "; ")) {
            assert_int_equal(sscanf(at, "%63[^=]=%63[^;]", rows[n_rows].key, rows[n_rows].value), 2);
            rows[n_rows++].base = effects[i].base;
        }
}

/* --- what a run says ---------------------------------------------------------------------------------------------- */

typedef struct {
    tm_sink head;
    tm_text text;
} listener;

static void say_start(tm_text *out, const tm_run_started *s)
{
    const tm_recipe *r = &s->recipe;
    tm_text_printf(out, "%s %s %s %lld parameters %lld steps of %lld tokens, %d threads, seed %llu, floor %.17g\n",
                   s->model, s->precision, s->data_source, (long long)s->parameters, (long long)s->steps,
                   (long long)s->batch_tokens, s->threads, (unsigned long long)s->seed, s->loss_floor);
    tm_text_printf(out, "%s %s %lld %lld %lld warm %lld decay %lld\n", r->optimizer, r->schedule,
                   (long long)r->accumulation, (long long)r->sequence_length, (long long)r->eval_samples,
                   (long long)r->warmup_steps, (long long)r->decay_steps);
}

static void say_end(tm_text *out, const tm_run_ended *e)
{
    tm_text_printf(out, "%s: %lld steps, weights %016llx, validation %.17g, certificate %d %d\n%s\n", e->stopped,
                   (long long)e->steps, (unsigned long long)e->weights_hash, e->loss_validation, e->certificate.done,
                   e->certificate_after.done, e->sample ? e->sample : "");
    if (e->verdict == TM_VERDICT_NOT_JUDGED) tm_text_printf(out, "%s\n", e->reason);
}

static void listen(tm_sink *sink, const tm_event *event)
{
    tm_text *out = &((listener *)sink)->text;
    switch (event->kind) {
    case TM_EVENT_RUN_STARTED:
        say_start(out, &event->run_started);
        return;
    case TM_EVENT_STEP_DONE:
        tm_text_printf(out, "step %lld %.17g %.17g %.17g %lld\n", (long long)event->step_done.step,
                       event->step_done.loss, event->step_done.grad_norm, event->step_done.learning_rate,
                       (long long)event->step_done.tokens);
        for (size_t i = 0; i < event->step_done.n_phases; i++)
            if (strstr(event->step_done.phases[i].name, "slowdown")) tm_text_add(out, "slowed down\n");
        return;
    case TM_EVENT_EVALUATION:
        tm_text_printf(out, "evaluation %lld %.17g %lld\n", (long long)event->evaluation.step, event->evaluation.loss,
                       (long long)event->evaluation.tokens);
        return;
    case TM_EVENT_LOOK:
        tm_text_printf(out, "look %zu, first %s\n", event->look.n_tensors,
                       event->look.first ? event->look.first->name : "none");
        return;
    case TM_EVENT_RUN_ENDED:
        say_end(out, &event->run_ended);
        return;
    case TM_EVENT_STRAGGLER: /* of this machine */
    case TM_EVENT_BETWEEN_STEPS:
    case TM_EVENT_EVALUATION_STARTED:
        return;
    case TM_EVENT_PICTURE:
    case TM_EVENT_CHECKPOINT:
    case TM_EVENT_QUANTIZED:
    case TM_EVENT_REPLAYED:
        tm_text_printf(out, "event %d\n", (int)event->kind);
    }
}

/* What packed files are opened with: none are here. */
static void say_source(tm_text *out, const tm_source_options *s)
{
    tm_text_printf(out, "%s %s %s %d %d\n", s->name, s->path, s->validation_path ? s->validation_path : "", s->mask,
                   s->pad_token);
}

static tm_status say_run(tm_run_options *options, tm_device *device, tm_text *out, tm_error *err)
{
    listener     ears = { .head = { .handle = listen } };
    tm_event_bus bus = { 0 };
    tm_source   *source;
    tm_step     *step;
    sig_atomic_t stop = 0;
    tm_chooser   chooser = tm_device_chooser(device);
    TM_TRY(tm_source_open(&options->source, &source, err));
    tm_status st = tm_step_create(&options->step, &chooser, &step, err);
    if (st != TM_OK) {
        tm_source_close(source);
        return st;
    }
    tm_plan_print(step->plan, &chooser, out);
    tm_step_destroy(step);
    tm_event_bus_add(&bus, &ears.head);
    st = tm_run(options, device, source, &bus, &stop, err);
    if (st == TM_NUMBERS) st = TM_OK; /* three steps are no training */
    tm_text_add(out, ears.text.data ? ears.text.data : "");
    tm_text_fini(&ears.text);
    tm_event_bus_fini(&bus);
    tm_source_close(source);
    return st;
}

/* A change may be an error that this key makes, but not, unless `may_be_idle`, that it has no effect itself; what it is
 * added to has none. */
static char *refusal(const char *base, const char *key, const tm_error *err, bool may_be_idle)
{
    char    own[128];
    tm_text text = { 0 };
    snprintf(own, sizeof own, "'%s' = ", key ? key : "");
    bool idle = strncmp(err->text, own, strlen(own)) == 0 && strstr(err->text, "has no effect");
    if (!key || (idle && !may_be_idle)) fail_msg("%s %s: %s", base, key ? key : "", err->text);
    tm_text_printf(&text, "refused: %s", err->text);
    return text.data;
}

/* All that can be known of a run of these keys; the caller's to free. */
static char *look_at(const char *base, const char *key, const char *value, bool may_be_idle)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    tm_text        out = { 0 };
    char           word[256];
    char          *given[] = { word };
    tm_device     *device = NULL;
    test_apply_words(config, base);
    snprintf(word, sizeof word, "--%s=%s", key ? key : "", value);
    if (key && tm_config_apply_arguments(config, 1, given, &err) != TM_OK) fail_msg("%s", err.text);
    tm_status st = tm_config_finish(config, &err);
    if (st == TM_OK) st = tm_run_options_read(config, &options, &err);
    if (st != TM_OK) {
        tm_config_destroy(config);
        return refusal(base, key, &err, may_be_idle);
    }
    tm_text_printf(&out, "%s\n", options.model_name);
    if (strcmp(options.source.name, "govreport") == 0) {
        say_source(&out, &options.source);
    } else {
        device = test_device_open("cpu", options.threads);
        options.checkpoint_folder = "checkpoint";
        options.step.offload.folder = ".";
        tm_device_allow_reference(device, options.reference_kernels);
        if (say_run(&options, device, &out, &err) != TM_OK) {
            char *text = refusal(base, key, &err, may_be_idle);
            tm_text_add(&out, text);
            free(text);
        }
        tm_device_close(device);
        assert_int_equal(system("rm -rf checkpoint"), 0);
    }
    tm_config_destroy(config);
    return out.data;
}

static char start_folder[1024];

FULL_TEST(each_key_changes_the_run)
{
    const char *last_base = "";
    char       *base = NULL;
    int         silent = 0;
    for (int i = 0; i < n_rows; i++) {
        if (strcmp(rows[i].base, last_base) != 0) {
            free(base);
            base = look_at(rows[i].base, NULL, "", false);
            last_base = rows[i].base;
        }
        char *other = look_at(rows[i].base, rows[i].key, rows[i].value, false);
        if (strcmp(base, other) == 0) {
            print_message("%s = %s changes nothing\n", rows[i].key, rows[i].value);
            silent++;
        }
        free(other);
    }
    free(base);
    assert_int_equal(silent, 0);
}

/* Alone on the plain model there is nothing to say: a run that short has no certificate, rotary positions go on beyond
 * the length that a model was made for, and its data are mock data. */
static const char *const at_home[] = { "debug.certificate", "model.max_seq_len", "training.mock_data" };

static bool is_default(tm_config *config, const row *r)
{
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        if (strcmp(key->name, r->key) == 0) return key->fallback && strcmp(key->fallback, r->value) == 0;
    }
    return false;
}

/* What needs other keys says so, or does something, without them, too. */
TEST(each_key_alone_is_told)
{
    char      *base = look_at(LLAMA, NULL, "", false);
    tm_config *config = test_full_config();
    int        silent = 0;
    for (int i = 0; i < n_rows; i++) {
        bool exempt = strcmp(rows[i].base, LLAMA) == 0 || is_default(config, &rows[i]);
        for (size_t k = 0; k < sizeof at_home / sizeof at_home[0]; k++) exempt |= strcmp(rows[i].key, at_home[k]) == 0;
        if (exempt) continue;
        char *other = look_at(LLAMA, rows[i].key, rows[i].value, true);
        if (strcmp(base, other) == 0) {
            print_message("%s = %s alone changes nothing\n", rows[i].key, rows[i].value);
            silent++;
        }
        free(other);
    }
    free(base);
    tm_config_destroy(config);
    assert_int_equal(silent, 0);
}

/* The first held-out loss of a run that does not learn. */
static double held_out_loss(const char *words)
{
    char  *said = look_at(words, NULL, "", false);
    char  *at = strstr(said, "evaluation ");
    double loss = 0;
    assert_non_null(at);
    assert_int_equal(sscanf(at, "evaluation %*d %lf", &loss), 1);
    free(said);
    return loss;
}

/* Other batches hold the same samples; samples of another length are those that training of that length holds out. */
TEST(held_out_samples_of_another_size)
{
#define STILL LLAMA "--optimizer.lr 0 --model.rope_scaling yarn --model.rope_original_max_seq_len 8 "
    double twos = held_out_loss(STILL "--validation.steps 2");
    double four = held_out_loss(STILL "--validation.local_batch_size 4");
    assert_float_equal(twos, four, 1e-6);
    double shorter = held_out_loss(STILL "--validation.seq_len 8");
    assert_float_equal(shorter, held_out_loss(STILL "--training.seq_len 8"), 1e-12);
    assert_true(shorter < four - 1e-6 || shorter > four + 1e-6);
    double longer = held_out_loss(STILL "--validation.seq_len 24 --validation.local_batch_size 1 --validation.steps 2");
    assert_float_equal(longer, held_out_loss(STILL "--training.seq_len 24"), 1e-6);
    held_out_loss(MLA "--validation.seq_len 24");
    held_out_loss(GPT "--validation.seq_len 8");
    held_out_loss(TEXT "--data.separate_documents true --validation.seq_len 8 --validation.local_batch_size 3");
    held_out_loss(FLUX "--validation.local_batch_size 3");
}

static bool is_row(const char *key)
{
    for (int i = 0; i < n_rows; i++)
        if (strcmp(rows[i].key, key) == 0) return true;
    return false;
}

static bool file_says(const char *file, const char *word)
{
    tm_text  path = { 0 }, text = { 0 };
    tm_error err = { 0 };
    tm_text_printf(&path, "%s/%s", start_folder, file);
    bool says = tm_file_read(path.data, 1 << 20, &text, &err) == TM_OK && strstr(text.data, word);
    tm_text_fini(&path);
    tm_text_fini(&text);
    return says;
}

/* The file that is said to show a key names it, without its section at least. */
static bool is_shown_elsewhere(const char *key)
{
    const size_t n = strlen(key);
    char         shown[128];
    snprintf(shown, sizeof shown, "shows %s\n", key); /* what only the whole program can show */
    if (file_says("tests/cli/test_key_effects.sh", shown)) return true;
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        for (const char *at = elsewhere[i].keys; (at = strstr(at, key)); at += n)
            if ((at == elsewhere[i].keys || at[-1] == ' ') && (at[n] == ' ' || !at[n])) {
                const char *last = strrchr(key, '.');
                if (!file_says(elsewhere[i].file, last ? last + 1 : key))
                    fail_msg("%s lacks %s", elsewhere[i].file, key);
                return true;
            }
    return false;
}

TEST(no_used_key_is_forgotten)
{
    tm_config *config = test_full_config();
    int        forgotten = 0;
    if (!file_says("tests/cli/test_key_effects.sh", "#!")) {
        print_message("the tests are not below the working folder\n");
        skip();
    }
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        if (key->state != TM_KEY_USED || is_row(key->name) || is_shown_elsewhere(key->name)) continue;
        print_message("%s: no test shows what it changes\n", key->name);
        forgotten++;
    }
    tm_config_destroy(config);
    assert_int_equal(forgotten, 0);
}

/* Rows for fine-tuning, and what is needed to read them. */
static void write_rows(void)
{
    tm_text lines = { 0 }, talk = { 0 }, pairs = { 0 }, tokenizer = { 0 };
    char    path[4200];
    for (int i = 0; i < 60; i++) {
        tm_text_printf(&lines, "{\"prompt\": \"question %.*s %d\", \"completion\": \"is %d\", \"text\": \"said %d\"}\n",
                       i % 13, "of these days", i, i * i % 31, i);
        tm_text_printf(&pairs, "{\"prompt\": \"a %d\", \"chosen\": \"is %d\", \"rejected\": \"no %d\"}\n", i, i,
                       i * 7 % 31);
        tm_text_printf(&talk,
                       "{\"messages\": [{\"role\": \"user\", \"content\": \"a %d\"}, {\"role\": \"assistant\", "
                       "\"content\": \"b %d\"}]}\n",
                       i, i * 7 % 31);
    }
    snprintf(path, sizeof path, "%s/tests/token/fixtures/gpt2.json", start_folder);
    if (tm_file_read(path, 1 << 20, &tokenizer, NULL) != TM_OK) fail_msg("no %s", path);
    test_file_write(".", "gpt2.json", tokenizer.data);
    test_file_write(".", "rows.jsonl", lines.data);
    test_file_write(".", "talk.jsonl", talk.data);
    test_file_write(".", "pairs.jsonl", pairs.data);
    test_file_write(".", "one.jinja", "{% for m in messages %}<{{ m.content }}>{% endfor %}");
    test_file_write(".", "two.jinja", "{% for m in messages %}({{ m.content }}){% endfor %}");
    tm_text_fini(&lines);
    tm_text_fini(&talk);
    tm_text_fini(&pairs);
    tm_text_fini(&tokenizer);
}

static int open_folder(void **state)
{
    (void)state;
    if (!getcwd(start_folder, sizeof start_folder)) return -1;
    tm_log_set_level(TM_LOG_ERROR);
    if (chdir(test_folder()) != 0) return -1;
    tm_text text = { 0 };
    for (int i = 0; i < 400; i++) tm_text_printf(&text, "line %d of a text, %d\n\n", i, i * i % 97);
    test_file_write(".", "other.txt", text.data);
    if (mkdir("texts", 0700) != 0) return -1;
    for (int i = 0; i < 60; i++) { /* documents of many lengths */
        char name[32], words[80];
        snprintf(name, sizeof name, "%d.txt", i);
        snprintf(words, sizeof words, "%.*s", 5 + i * 7 % 40, text.data + 31 * i);
        test_file_write("texts", name, words);
    }
    tm_text_fini(&text);
    write_rows();
    read_rows();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    if (chdir(start_folder) != 0) return -1;
    test_folder_remove();
    return 0;
}

TEST_FIXTURE(open_folder, remove_folder)
