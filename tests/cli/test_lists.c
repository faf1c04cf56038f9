/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of what is built in: their JSON is what the tables of the program have, row by row, and their text says the
 * same. */
#include "asked.h"

#include "base/csv.h"
#include "cli/cli.h"
#include "cli/habits.h"
#include "model/presets.h"
#include "op/op.h"
#include "apps/check/check.h"

/* A member that is a text, or null where `wanted` is NULL. */
static void text_is(const json_t *object, const char *path, const char *wanted)
{
    if (wanted)
        assert_string_equal(string(object, path), wanted);
    else
        assert_true(json_is_null(member(object, path)));
}

/* --- models --------------------------------------------------------------------------------------------------------
 */

static void model_is(const json_t *m, const tm_preset *preset, tm_text *text)
{
    char grouped[40];
    bool image = strstr(preset->name, "flux") != NULL; /* shapes and lengths follow from pictures */
    text_is(m, "name", preset->name);
    assert_int_equal(member(m, "alias") != NULL, preset->alias != NULL);
    if (preset->alias) text_is(m, "alias", preset->alias);
    for (const char *const *pair = preset->pairs; *pair && !image; pair++) { /* "model.n_layers=4" */
        const char *name = strchr(*pair, '.') + 1, *value = strchr(*pair, '=') + 1;
        tm_text     key = { 0 };
        tm_text_add_n(&key, name, (size_t)(value - 1 - name));
        const json_t *found = member(m, key.data);
        if (found) assert_true(json_is_string(found) || json_number_value(found) == strtod(value, NULL));
        tm_text_fini(&key);
    }
    if (strcmp(preset->name, "gpt2-124M") == 0) is("GPT-2", number(m, "parameters"), 124439808);
    if (strcmp(preset->name, "llama3.1_8B") == 0) is("Llama 3.1", number(m, "parameters"), 8030261248);
    double parameters = number(m, "parameters"), active = number(m, "parameters_active");
    double all_but = parameters - number(m, "parameters_embedding"), window = number(m, "seq_len");
    bool   dense = active == parameters && !image;
    assert_true(active > 0 && active <= parameters);
    if (dense) is("6 N", number(m, "gflop_per_token/6n"), 6 * parameters / 1e9);
    if (dense) /* 12 L H D T */
        is("titan", number(m, "gflop_per_token/titan"),
           (6 * all_but + 12 * number(m, "n_layers") * number(m, "n_heads") * number(m, "head_dim") * window) / 1e9);
    expect(text, "%s %s %s %.2f %g %g %g %g/%g %g %g", preset->name, string(m, "family"),
           tm_format_grouped(grouped, (int64_t)parameters), number(m, "gflop_per_token/titan"), number(m, "seq_len"),
           number(m, "n_layers"), number(m, "dim"), number(m, "n_heads"), number(m, "n_kv_heads"), number(m, "ffn_dim"),
           number(m, "vocab_size"));
}

TEST(models)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    json_t          *list = asked_json("models", TM_OK);
    tm_text          found = asked("models", TM_OK), wanted = { 0 };
    assert_int_equal(json_array_size(list), n);
    expect(&wanted, "model family parameters GFLOP/tok seq layers width heads/kv ffn vocab");
    for (size_t i = 0; i < n; i++) model_is(json_array_get(list, i), &presets[i], &wanted);
    expect(&wanted, "GFLOP per token: forward and backward by the convention \"titan\", 6 (N - N_embedding) + 12 L H D "
                    "T at the seq shown. Any dimension is a key: trainmark run gpt-small --model.n_layers 4");
    words_are("models", &found, &wanted);
    json_decref(list);
}

/* --- keys ----------------------------------------------------------------------------------------------------------
 */

TEST(keys)
{
    static const char *const states[] = { "used", "used", "ignored", "not supported" };
    tm_config               *config = tm_cli_config();
    json_t                  *list = asked_json("keys", TM_OK), *part = asked_json("keys store", TM_OK);
    tm_text                  text = asked("keys", TM_OK), section = asked("keys store", TM_OK), line = { 0 };
    assert_int_equal(json_array_size(list), tm_config_n_keys(config));
    size_t  of_section = 0;
    tm_text words = { 0 };
    for (const char *at = text.data; *at; at++)
        if (*at != ' ' || at[1] != ' ')
            tm_text_add_n(&words, *at == '\n' ? " " : at, *at == '\n' && at[1] == ' ' ? 0 : 1);
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        const json_t *row = json_array_get(list, i);
        text_is(row, "name", key->name);
        text_is(row, "state", states[key->state]);
        text_is(row, "default", key->fallback);
        text_is(row, "help", key->help);
        bool inside = strncmp(key->name, "store.", 6) == 0;
        if (inside) text_is(json_array_get(part, of_section++), "name", key->name);
        line.length = 0;
        tm_text_printf(&line, " --%s ", key->name);
        bool told = strstr(words.data, line.data) != NULL;
        assert_int_equal(told, key->state == TM_KEY_USED);
        assert_int_equal(strstr(section.data, line.data) != NULL, told && inside);
        if (!told) continue;
        tm_config_describe_key(key, &line);
        if (!strstr(words.data, line.data)) fail_msg("keys: no '%s'", line.data);
    }
    assert_int_equal(json_array_size(part), of_section);
    tm_text_fini(&words), tm_text_fini(&line), tm_text_fini(&text), tm_text_fini(&section);
    json_decref(list), json_decref(part);
    tm_config_destroy(config);
}

/* --- operations ----------------------------------------------------------------------------------------------------
 */

static void expect_names(const json_t *list, tm_text *out)
{
    size_t  i;
    json_t *name;
    json_array_foreach((json_t *)list, i, name)
    {
        tm_text_printf(out, "%s%s", i ? ", " : "", json_string_value(name));
    }
    tm_text_add(out, " ");
}

/* All but the words of roles (docs/ops.md has them), what is overwritten, and the machine's kernels. */
static void one_op(const tm_op *op, const json_t *row)
{
    char    line[80];
    tm_text head = { 0 }, found, kernels = { 0 };
    snprintf(line, sizeof line, "ops %s", op->name);
    found = asked(line, TM_OK);
    tm_text_printf(&head, "%-13s %s\ngroup         %s\ninputs        ", op->name, op->formula, op->group);
    expect_names(member(row, "inputs"), &head);
    head.data[head.length - 1] = '\n';
    if (strncmp(found.data, head.data, head.length) != 0) fail_msg("%s\nwanted %s", found.data, head.data);
    const char *outputs = strstr(found.data, "\noutputs       ");
    assert_non_null(outputs);
    for (int k = 0; k < op->n_out; k++) assert_non_null(strstr(outputs, op->out_name[k]));
    assert_int_equal(strstr(found.data, "\ncheap ") != NULL, op->cheap);
    assert_int_equal(strstr(found.data, "\ngradient      yes\n") != NULL, op->gradient != NULL);
    assert_int_equal(strstr(found.data, "\ngradient      none: ") != NULL, op->gradient == NULL);
    const char *attributes = strstr(found.data, "\nattributes    "),
               *none = strstr(found.data, "\nfast kernel   none: ");
    assert_int_equal(attributes != NULL, op->attributes != NULL);
    if (attributes) assert_int_equal(strncmp(attributes + 15, op->attributes, strlen(op->attributes)), 0);
    assert_int_equal(none != NULL, op->no_fast_kernel != NULL);
    if (none) assert_int_equal(strncmp(none + 21, op->no_fast_kernel, strlen(op->no_fast_kernel)), 0);
    for (int k = 0; k < 3; k++) {
        snprintf(line, sizeof line, "\n%-13s ", (const char *[]){ "float32", "bfloat16", "bfloat16-pure" }[k]);
        const char *kernel = strstr(found.data, line);
        assert_non_null(kernel);
        kernel += strlen(line);
        if (op->no_fast_kernel) assert_int_equal(strncmp(kernel, "no kernel\n", 10), 0);
    }
    tm_text_fini(&head), tm_text_fini(&found), tm_text_fini(&kernels);
}

TEST(ops)
{
    json_t *list = asked_json("ops", TM_OK);
    tm_text found = asked("ops", TM_OK), wanted = { 0 };
    assert_int_equal(json_array_size(list), TM_OP_COUNT);
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op  *op = tm_op_get((tm_op_id)id);
        const json_t *row = json_array_get(list, (size_t)id);
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
        if (id % 8 == 0 || op->no_fast_kernel) one_op(op, row);
    }
    expect(&wanted, "trainmark ops NAME describes one, with the kernels of this machine. docs/ops.md");
    words_are("ops", &found, &wanted);
    json_t *one = asked_json("ops add", TM_OK);
    assert_int_equal(json_array_size(one), 1);
    text_is(one, "0/name", "add");
    json_decref(one);
    json_decref(list);
}

/* --- checks and the catalogue --------------------------------------------------------------------------------------
 */

TEST(checks)
{
    size_t              n;
    char                outcomes[TM_CHECK_OUTCOMES_BYTES];
    const tm_check_row *rows = tm_check_rows(&n);
    json_t             *list = asked_json("check --list", TM_OK);
    tm_text             found = asked("check --list", TM_OK), wanted = { 0 };
    assert_int_equal(json_array_size(member(list, "rows")), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(member(list, "rows"), i);
        text_is(row, "id", rows[i].id);
        text_is(row, "group", tm_check_group_name(rows[i].group));
        text_is(row, "outcomes", tm_check_outcomes(rows[i].outcomes, outcomes));
        text_is(row, "source", rows[i].source);
        text_is(row, "expected", rows[i].expected);
        text_is(row, "remedy", *rows[i].remedy ? rows[i].remedy : NULL);
        expect(&wanted, "%s (%s): %s source %s expected %s", rows[i].id, tm_check_group_name(rows[i].group), outcomes,
               rows[i].source, rows[i].expected);
        if (*rows[i].remedy) expect(&wanted, "remedy %s", rows[i].remedy);
    }
    words_are("check --list", &found, &wanted);
    json_decref(list);
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
        const json_t *row = json_array_get(list, i);
        text_is(row, "name", tm_habit_tag(arena, presets[i].name));
        text_is(row, "model", presets[i].name);
        text_is(row, "n_gpus", "1");
        expect(&wanted, "%s %s", string(row, "name"), presets[i].name);
    }
    words_are("discover", &found, &wanted);
    json_decref(list);
    list = asked_json("discover --tags pyt_train_tiny-llama gpt2", TM_OK); /* one of two tags is enough */
    assert_int_equal(json_array_size(list), 2);
    text_is(list, "0/model", "tiny-llama");
    text_is(list, "1/model", "gpt2-124M");
    json_decref(list);
    tm_arena_destroy(arena);
}

/* --- published figures ---------------------------------------------------------------------------------------------
 */

/* Each cell of the file, as a number where it is one, under the name of its column. */
TEST(published)
{
    static const char file[] =
        "workload,row,device,devices,scope,dtype,batch,seq,column,value,unit,convention,source,date,note\n"
        "gemm,4x4x4,Example,1,device,float32,,,tflops,5,TFLOP/s,2 M N K per product,a report,2026,\n"
        "run,small,Example,8,device,fp8,4,2048,tokens_per_second,2048.5,tokens/s,,a \"report\",2025,why\n"
        "gemm,5x4x4,Other,1,device,,3,,tflops,0.25,TFLOP/s,2 M N K per product,a report,2026,\n";
    const char *cursor = file, *path = test_in_folder("mine.csv");
    tm_text     storage = { 0 }, line = { 0 };
    size_t      names[20], cells[20], n;
    char        name[20][20];
    tm_error    err = { 0 };
    FILE       *out = fopen(path, "w");
    (void)err;
    fputs(file, out);
    fclose(out);
    tm_text_printf(&line, "reference --file %s", path);
    json_t *list = asked_json(line.data, TM_OK);
    n = tm_csv_read(&cursor, &storage, names, 20);
    for (size_t c = 0; c < n; c++) snprintf(name[c], sizeof name[c], "%s", storage.data + names[c]);
    for (size_t row = 0; tm_csv_read(&cursor, &storage, cells, 20) == n; row++)
        for (size_t c = 0; c < n; c++) {
            char          where[500];
            const char   *cell = storage.data + cells[c];
            const json_t *value;
            snprintf(where, sizeof where, "rows/%zu/%s", row, name[c]);
            value = member(list, where);
            if (!*cell)
                assert_true(json_is_null(value));
            else if (json_is_number(value))
                is(where, json_number_value(value), strtod(cell, NULL));
            else
                assert_string_equal(json_string_value(value), cell);
        }
    assert_int_equal(json_array_size(member(list, "rows")), 3);
    assert_true(json_is_number(member(list, "rows/1/value")) && json_is_number(member(list, "rows/1/devices")));
    json_decref(list);
    line.length = 0;
    tm_text_printf(&line, "reference --file %s gemm", path);
    list = asked_json(line.data, TM_OK);
    assert_int_equal(json_array_size(member(list, "rows")), 2);
    text_is(list, "rows/1/row", "5x4x4");
    json_decref(list);
    tm_text_fini(&line), tm_text_fini(&storage);
}

TEST_FIXTURE(NULL, test_folder_teardown)
