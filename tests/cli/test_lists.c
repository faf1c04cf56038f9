/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of what is built in: their JSON has the rows of the program's tables, their text the cells of the JSON. */
#include "apps/check/check.h"
#include "asked.h"
#include "cli/habits.h"
#include "cli/cli.h"
#include "model/presets.h"
#include "op/op.h"

/* A member that is a text, or null where `wanted` is NULL. */
static void text_is(const json_t *object, const char *path, const char *wanted)
{
    if (wanted)
        assert_string_equal(string(object, path), wanted);
    else
        assert_true(json_is_null(member(object, path)));
}

/* Every text in the JSON, at any depth, is in the text, but for blanks. */
static void has_all(const tm_text *text, json_t *json)
{
    const char *name;
    json_t     *value;
    size_t      i;
    json_object_foreach(json, name, value) has_all(text, value);
    json_array_foreach(json, i, value) has_all(text, value);
    if (!json_is_string(json)) return;
    tm_text words = { 0 };
    expect(&words, "%s", json_string_value(json));
    words.data[words.length - 1] = '\0'; /* a comma may follow */
    if (!strstr(text->data, words.data)) fail_msg("'%s' is not in: %s", words.data, text->data);
    tm_text_fini(&words);
}

/* The text of a command with one blank between words; a line that goes on below has one. */
static tm_text words_of(const char *line)
{
    tm_text text = asked(line, TM_OK), words = { 0 };
    tm_text_add(&words, " ");
    for (char *rest = text.data, *word; (word = strtok_r(rest, " \n", &rest));) tm_text_printf(&words, "%s ", word);
    tm_text_fini(&text);
    return words;
}

TEST(models)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    json_t          *list = asked_json("models", TM_OK);
    tm_text          found = words_of("models"), line = { 0 };
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *m = json_array_get(list, i);
        char          grouped[40];
        text_is(m, "name", presets[i].name);
        if (presets[i].alias) text_is(m, "alias", presets[i].alias);
        if (strcmp(presets[i].name, "gpt2-124M") == 0) is("GPT-2", number(m, "parameters"), 124439808);
        if (strcmp(presets[i].name, "llama3.1_8B") == 0) is("Llama 3.1", number(m, "parameters"), 8030261248);
        double parameters = number(m, "parameters"), active = number(m, "parameters_active");
        double all_but = parameters - number(m, "parameters_embedding"), window = number(m, "seq_len");
        bool   dense = active == parameters && !strstr(presets[i].name, "flux");
        assert_true(active > 0 && active <= parameters);
        if (dense) is("6 N", number(m, "gflop_per_token/6n"), 6 * parameters / 1e9);
        if (dense) /* 12 L H D T */
            is("titan", number(m, "gflop_per_token/titan"),
               (6 * all_but + 12 * number(m, "n_layers") * number(m, "n_heads") * number(m, "head_dim") * window) /
                   1e9);
        line.length = 0;
        expect(&line, "%s %s %s %.2f %g %g %g %g/%g %g %g", presets[i].name, string(m, "family"),
               tm_format_grouped(grouped, (int64_t)parameters), number(m, "gflop_per_token/titan"), window,
               number(m, "n_layers"), number(m, "dim"), number(m, "n_heads"), number(m, "n_kv_heads"),
               number(m, "ffn_dim"), number(m, "vocab_size"));
        if (!strstr(found.data, line.data)) fail_msg("no '%s'", line.data);
    }
    json_decref(list);
    tm_text_fini(&found), tm_text_fini(&line);
}

/* Those that are used are told, each with what describes it; of a section its own. */
TEST(keys)
{
    static const char *const states[] = { "used", "used", "ignored", "not supported" };
    tm_config               *config = tm_cli_config();
    json_t                  *list = asked_json("keys", TM_OK), *part = asked_json("keys store", TM_OK);
    tm_text                  all = words_of("keys"), section = words_of("keys store");
    size_t                   of_section = 0;
    assert_int_equal(json_array_size(list), tm_config_n_keys(config));
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        const json_t *row = json_array_get(list, i);
        tm_text       name = { 0 }, line = { 0 }, described = { 0 };
        text_is(row, "name", key->name);
        text_is(row, "state", states[key->state]);
        text_is(row, "default", key->fallback);
        text_is(row, "help", key->help);
        bool inside = strncmp(key->name, "store.", 6) == 0, told = key->state == TM_KEY_USED;
        if (inside) text_is(json_array_get(part, of_section++), "name", key->name);
        tm_text_printf(&name, " --%s ", key->name);
        tm_config_describe_key(key, &described);
        expect(&line, "--%s %s", key->name, described.data);
        assert_int_equal(strstr(section.data, name.data) != NULL, told && inside);
        assert_int_equal(strstr(all.data, name.data) != NULL, told);
        if (told && !strstr(all.data, line.data)) fail_msg("keys: no '%s'", line.data);
        tm_text_fini(&name), tm_text_fini(&line), tm_text_fini(&described);
    }
    assert_int_equal(json_array_size(part), of_section);
    tm_text_fini(&all), tm_text_fini(&section);
    json_decref(list), json_decref(part);
    tm_config_destroy(config);
}

TEST(ops)
{
    json_t *list = asked_json("ops", TM_OK);
    tm_text found = asked("ops", TM_OK), wanted = { 0 };
    assert_int_equal(json_array_size(list), TM_OP_COUNT);
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        json_t      *row = json_array_get(list, (size_t)id);
        char         line[80];
        text_is(row, "name", op->name);
        text_is(row, "group", op->group);
        text_is(row, "formula", op->formula);
        text_is(row, "attributes", op->attributes);
        text_is(row, "no_fast_kernel", op->no_fast_kernel);
        assert_int_equal(json_is_true(member(row, "gradient")), op->gradient != NULL);
        assert_int_equal(json_is_true(member(row, "cheap")), op->cheap);
        assert_int_equal(json_array_size(member(row, "inputs")), op->n_in);
        assert_int_equal(json_array_size(member(row, "outputs")), op->n_out);
        for (int k = 0; k < op->n_in; k++)
            assert_string_equal(json_string_value(json_array_get(member(row, "inputs"), (size_t)k)), op->in_name[k]);
        for (int k = 0; k < op->n_out; k++)
            assert_string_equal(json_string_value(json_array_get(member(row, "outputs"), (size_t)k)), op->out_name[k]);
        expect(&wanted, "%s %s %s", op->name, op->group, op->formula);
        snprintf(line, sizeof line, "ops %s", op->name);
        tm_text one = words_of(line);
        has_all(&one, row);
        assert_int_equal(strstr(one.data, " cheap ") != NULL, op->cheap);
        assert_int_equal(strstr(one.data, " gradient yes ") != NULL, op->gradient != NULL);
        tm_text_fini(&one);
    }
    expect(&wanted, "trainmark ops NAME describes one, with the kernels of this machine. docs/ops.md");
    words_are("ops", &found, &wanted);
    json_decref(list);
}

TEST(checks)
{
    size_t              n;
    char                outcomes[TM_CHECK_OUTCOMES_BYTES];
    const tm_check_row *rows = tm_check_rows(&n);
    json_t             *list = asked_json("check --list", TM_OK);
    tm_text             found = words_of("check --list");
    assert_int_equal(json_array_size(member(list, "rows")), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(member(list, "rows"), i);
        text_is(row, "id", rows[i].id);
        text_is(row, "group", tm_check_group_name(rows[i].group));
        text_is(row, "outcomes", tm_check_outcomes(rows[i].outcomes, outcomes));
        text_is(row, "source", rows[i].source);
        text_is(row, "expected", rows[i].expected);
        text_is(row, "remedy", *rows[i].remedy ? rows[i].remedy : NULL);
        has_all(&found, (json_t *)row);
    }
    json_decref(list);
    tm_text_fini(&found);
}

TEST(catalogue)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    tm_arena        *arena = tm_arena_create();
    json_t          *list = asked_json("discover", TM_OK);
    tm_text          found = asked("discover", TM_OK), wanted = { 0 };
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++) {
        text_is(json_array_get(list, i), "name", tm_habit_tag(arena, presets[i].name));
        text_is(json_array_get(list, i), "model", presets[i].name);
        expect(&wanted, "%s %s", tm_habit_tag(arena, presets[i].name), presets[i].name);
    }
    words_are("discover", &found, &wanted);
    json_decref(list);
    list = asked_json("discover --tags pyt_train_tiny-llama gpt2", TM_OK); /* one of two tags is enough */
    assert_int_equal(json_array_size(list), 2);
    text_is(list, "1/model", "gpt2-124M");
    json_decref(list);
    tm_arena_destroy(arena);
}

TEST_FIXTURE(NULL, test_folder_teardown)
