/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the hub in a cache that the package huggingface_hub wrote (tools/make_hub_fixture.py), judged by what the
 * package itself finds there; and caches of which a part is missing. */
#include "support/folder.h"

#include "support/test.h"

#include "base/hub.h"

#include <jansson.h>

#define MAIN "b28b7af69320201d1cf206ebf28373980add1451"
#define TINY "models--example--tiny-llama"

static const char *const variables[] = { "HF_HUB_CACHE",   "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                         "XDG_CACHE_HOME", "HF_HUB_OFFLINE",        "TRANSFORMERS_OFFLINE" };

static void forget(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
}

static void expect_text(const tm_error *err, const char *words)
{
    if (!strstr(err->text, words)) fail_msg("'%s' lacks '%s'", err->text, words);
}

static void found_is(tm_hub_kind kind, const char *given, const char *cache, const char *path)
{
    tm_hub_place place;
    tm_text      want = { 0 };
    tm_text_printf(&want, "%s%s%s", cache, *cache ? "/" : "", path);
    assert_ok_of(given, tm_hub_find(kind, given, &place, err));
    assert_string_equal(place.path.data, want.data);
    assert_int_equal(place.found.data != NULL, *cache != '\0');
    const char *at = strchr(given, '@'), *revision = at ? at + 1 : "main"; /* a commit is told once */
    char        told[80];
    snprintf(told, sizeof told, ", revision %.*s, commit ", (int)strcspn(revision, "/"), revision);
    if (*cache) assert_true((strstr(place.found.data, told) != NULL) == (strcspn(revision, "/") < 40));
    tm_hub_place_fini(&place);
    tm_text_fini(&want);
}

static void refused(tm_hub_kind kind, const char *given, tm_status wanted, const char *words)
{
    tm_hub_place place;
    tm_error     err = { 0 };
    tm_status    st = tm_hub_find(kind, given, &place, &err);
    tm_hub_place_fini(&place);
    if (st != wanted) fail_msg("%s: %s (%s)", given, tm_status_text(st), err.text);
    expect_text(&err, words);
}

static json_t *read_answers(const char *member)
{
    json_error_t error;
    json_t      *root = json_load_file("tests/hf/hub.json", 0, &error);
    if (!root) fail_msg("%s", error.text);
    json_t *out = json_incref(json_object_get(root, member));
    json_decref(root);
    return out;
}

static const char *text_of(const json_t *object, const char *member)
{
    return json_string_value(json_object_get(object, member));
}

/* What is found is the snapshot that the package finds, and nothing is where it finds nothing. A snapshot that lacks
 * weights is found for its config.json; the package refuses it as a whole. */
TEST(snapshots_are_those_of_the_package)
{
    json_t *all = read_answers("asked"), *one;
    size_t  i, right = 0;
    setenv("HF_HUB_CACHE", "tests/hf/hub", 1);
    json_array_foreach(all, i, one)
    {
        bool         dataset = strcmp(text_of(one, "kind"), "dataset") == 0;
        const char  *revision = text_of(one, "revision"), *found = text_of(one, "found");
        tm_text      given = { 0 }, want = { 0 };
        tm_hub_place place;
        tm_error     err = { 0 };
        tm_text_printf(&given, "%s%s%s%s", text_of(one, "name"), revision ? "@" : "", revision ? revision : "",
                       dataset ? "/data" : "");
        tm_text_printf(&want, "tests/hf/hub/%s%s", found, dataset ? "/data" : "");
        tm_status st = tm_hub_find(dataset ? TM_HUB_DATASET : TM_HUB_MODEL, given.data, &place, &err);
        if (strcmp(found, "IncompleteSnapshotError") == 0) {
            assert_int_equal(st, TM_OK);
            assert_int_equal(tm_hub_check_weights(place.path.data, &err), TM_FORMAT);
            expect_text(&err, "'example/half-llama' lacks 2 files of weights");
            expect_text(
                &err, "the first is 'model-00002-of-00002.safetensors' (blobs/*.incomplete: a download has not ended)");
            expect_text(&err, "`hf download example/half-llama --revision 6dbdd59a");
        } else if (strstr(found, "Error")) {
            if (place.found.data) fail_msg("%s: found %s", given.data, place.found.data);
        } else {
            if (st != TM_OK) fail_msg("%s: %s", given.data, err.text);
            assert_string_equal(place.path.data, want.data);
            assert_int_equal(tm_hub_check_weights(place.path.data, &err), TM_OK);
            right++;
        }
        tm_hub_place_fini(&place);
        tm_text_fini(&given);
        tm_text_fini(&want);
    }
    assert_true(right >= 6 && i >= 13);
    json_decref(all);
    forget();
}

/* The cache is where the package has it, by the same variables. */
TEST(the_cache_is_where_the_package_has_it)
{
    json_t     *all = read_answers("caches"), *one, *value;
    size_t      i;
    const char *name, *home = getenv("HOME");
    char        kept[512];
    snprintf(kept, sizeof kept, "%s", home ? home : "");
    json_array_foreach(all, i, one)
    {
        tm_text words = { 0 };
        forget();
        setenv("HOME", "/home/me", 1);
        json_object_foreach(json_object_get(one, "environment"), name, value) setenv(name, json_string_value(value), 1);
        tm_text_printf(&words, "the Hugging Face cache '%s' (", text_of(one, "cache"));
        refused(TM_HUB_MODEL, "example/none", TM_INVALID, words.data);
        tm_text_fini(&words);
    }
    assert_true(i >= 11);
    json_decref(all);
    forget();
    unsetenv("HOME");
    refused(TM_HUB_MODEL, "example/none", TM_INVALID, "neither HF_HUB_CACHE, HF_HOME nor HOME is set");
    setenv("HF_HOME", "$SOMEWHERE/x", 1);
    refused(TM_HUB_MODEL, "example/none", TM_INVALID, "HF_HOME is '$SOMEWHERE/x'; write the path out");
    setenv("HF_HOME", "~/x", 1);
    refused(TM_HUB_MODEL, "example/none", TM_INVALID, "HF_HOME is '~/x'; write the path out");
    forget();
    if (home) setenv("HOME", kept, 1);
}

/* --- caches that are made here ------------------------------------------------------------------------------------ */

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SET(name, file) "hub/datasets--o--" name "/snapshots/" COMMIT "/" file
#define MODEL(file) "hub/models--o--m/snapshots/" COMMIT "/" file

/* A cache that grows, row by row: what is put into it (NULL: nothing), then what is found or refused. */
enum { FOUND, REFUSED, WEIGHTS };
typedef struct {
    const char *put, *text;
    int         asks;
    tm_hub_kind kind;
    const char *name; /* WEIGHTS: of the snapshot of o/m */
    tm_status   status;
    const char *says; /* where it is found; of a refusal */
} cache_row;

static void walk(const cache_row *rows, size_t n)
{
    char cache[600], snapshot[700];
    snprintf(cache, sizeof cache, "%s", test_in_folder("hub"));
    snprintf(snapshot, sizeof snapshot, "%s", test_in_folder("hub/models--o--m/snapshots/" COMMIT));
    setenv("HF_HUB_CACHE", cache, 1);
    for (size_t i = 0; i < n; i++) {
        tm_error err = { 0 };
        if (rows[i].put) test_put(test_folder(), rows[i].put, rows[i].text);
        if (!rows[i].says) continue;
        if (rows[i].asks == FOUND) found_is(rows[i].kind, rows[i].name, cache, rows[i].says);
        if (rows[i].asks == REFUSED) refused(rows[i].kind, rows[i].name, rows[i].status, rows[i].says);
        if (rows[i].asks != WEIGHTS) continue;
        assert_int_equal(tm_hub_check_weights(snapshot, &err), rows[i].status);
        expect_text(&err, rows[i].says);
    }
    forget();
    test_folder_remove();
}

TEST(a_set_is_what_one_part_of_it_is)
{
    static const cache_row rows[] = {
        { "hub/datasets--o--one/refs/main", COMMIT, .says = NULL },
        { SET("one", "README.md"), "x", .says = NULL },
        { SET("one", "dataset_infos.json"), "{}", .says = NULL },
        { SET("one", "data/train-00000-of-00001.parquet"), "x", FOUND, TM_HUB_DATASET, "o/one", TM_OK,
          "datasets--o--one/snapshots/" COMMIT "/data/train-00000-of-00001.parquet" },
        { "hub/datasets--o--several/refs/main", COMMIT, .says = NULL },
        { SET("several", "data/a.jsonl.gz"), "x", .says = NULL },
        { SET("several", "data/b.jsonl.gz"), "x", FOUND, TM_HUB_DATASET, "o/several", TM_OK,
          "datasets--o--several/snapshots/" COMMIT "/data" },
        { "hub/datasets--o--two/refs/main", COMMIT, .says = NULL },
        { SET("two", "en/a.jsonl"), "x", .says = NULL },
        { SET("two", "de/a.jsonl"), "x", .says = NULL },
        { SET("two", "de/b.jsonl"), "x", REFUSED, TM_HUB_DATASET, "o/two", TM_INVALID,
          "has 2 parts; name one, or a pattern of it (o/two/DIR/train-*): "
          "o/two/de/a.jsonl (2 files), o/two/en/a.jsonl (1 file)" },
        { "hub/datasets--o--none/refs/main", COMMIT, .says = NULL },
        { SET("none", "x.csv"), "x", REFUSED, TM_HUB_DATASET, "o/none", TM_UNSUPPORTED,
          ", but x.csv: wanted .jsonl, .json, .parquet" },
    };
    walk(rows, sizeof rows / sizeof rows[0]);
}

TEST(what_is_missing_is_named)
{
    static const char      other[] = "fedcba9876543210fedcba9876543210fedcba98", main[] = "hub/models--o--m/refs/main";
    static const cache_row rows[] = {
        { MODEL("config.json"), "{}", .says = NULL },
        { "hub/models--o--m/refs/v2", COMMIT "\n", REFUSED, TM_HUB_MODEL, "o/m", TM_INVALID,
          "there: v2; `hf download o/m`" },
        { NULL, NULL, FOUND, TM_HUB_MODEL, "o/m@v2", TM_OK, "models--o--m/snapshots/" COMMIT },
        { main, "../../../etc", REFUSED, TM_HUB_MODEL, "o/m", TM_FORMAT,
          "refs/main' holds no commit, but '../../../etc'" },
        { main, other, REFUSED, TM_HUB_MODEL, "o/m", TM_FORMAT,
          "/snapshots/fedcba9876543210fedcba9876543210fedcba98' is not there; `hf d" },
        { main, COMMIT, WEIGHTS, .status = TM_OK, .says = "" }, /* none, and none on their way: not wanted */
        { "hub/models--o--m/blobs/aa.0123abcd.incomplete", "", WEIGHTS, .status = TM_FORMAT,
          .says = "'o/m' has no weights in '" },
        { MODEL("model.safetensors.index.json"),
          "{\"weight_map\": {\"a\": \"model-1.safetensors\", \"b\": \"model-2.safetensors\"}}", WEIGHTS,
          .status = TM_FORMAT, .says = "'o/m' lacks 2 files of weights in '" },
        { MODEL("model-1.safetensors"), "x", WEIGHTS, .status = TM_FORMAT,
          .says = "the first is 'model-2.safetensors' (blobs/*.incomplete" },
        { MODEL("model-2.safetensors"), "x", WEIGHTS, .status = TM_OK, .says = "" },
        { NULL, NULL, REFUSED, TM_HUB_MODEL, "o/m@v3", TM_INVALID, "hf download o/m --revision v3`" },
        { NULL, NULL, REFUSED, TM_HUB_DATASET, "o/x", TM_INVALID,
          "hf download o/x --repo-type dataset` (trainmark downl" },
        /* what the commit has tells what is missing where the index is not there yet */
        { "hub/models--o--m/trees/" COMMIT ".json",
          "{\"files\": {\"model-1.safetensors\": {}, \"model-3.safetensors\": {}}}", .says = NULL },
    };
    walk(rows, sizeof rows / sizeof rows[0]);
}

TEST(paths_say_what_they_are)
{
    tm_hub_origin o;
    assert_true(tm_hub_origin_of("/x/models--meta-llama--Llama-3.1-8B/snapshots/" COMMIT, &o));
    assert_string_equal(o.name, "meta-llama/Llama-3.1-8B");
    assert_string_equal(o.commit, COMMIT);
    assert_false(o.dataset);
    assert_true(tm_hub_origin_of("datasets--a--b/snapshots/" COMMIT "/data/x.jsonl", &o));
    assert_true(o.dataset);
    assert_string_equal(o.commit, COMMIT);
    assert_true(tm_hub_origin_of("models--gpt2/snapshots/" COMMIT "/", &o));
    assert_string_equal(o.name, "gpt2");
    assert_false(tm_hub_origin_of("/x/other--a--b/snapshots/" COMMIT, &o));
    assert_false(tm_hub_origin_of("/x/models--a--b/snapshots/latest", &o));
    assert_false(tm_hub_origin_of("/x/models--a--b", &o));
}

static int without_variables(void **state)
{
    (void)state;
    forget();
    return 0;
}

TEST_FIXTURE(without_variables, test_folder_teardown)
