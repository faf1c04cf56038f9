/* SPDX-License-Identifier: Apache-2.0 */
/* A certificate as a document: what is printed is read again, a changed digit is seen; hosts that do not come; and the
 * fleet of a store, beside which the next certificate is judged. */
#include "support/test.h"

#include "../support/folder.h"
#include "apps/node/certificate.h"
#include "results/certificate.h"
#include "results/keep.h"

#include <jansson.h>

enum { RANKS = 3, CHECKS = 32 };

/* Ranks 0 and 1 on a host, rank 2 on another. */
typedef struct {
    tm_node_site        sites[RANKS];
    tm_node_outcome     outcomes[CHECKS];
    tm_node_options     options;
    tm_node_certificate certificate;
    char               *root;
} made;

/* A check's place among all. */
static size_t at(const char *id)
{
    size_t               n, i = 0;
    const tm_node_check *checks = tm_node_checks(&n);
    while (i < n && strcmp(checks[i].id, id) != 0) i++;
    assert_true(i < n);
    return i;
}

#define HOST at("host")
#define SOFTWARE at("software")

static void make(made *m, const char *first, const char *second)
{
    size_t n;
    tm_node_checks(&n);
    assert_true(n >= 2 && n <= CHECKS);
    *m = (made){ .root = test_tree_make() };
    for (int r = 0; r < RANKS; r++) {
        m->sites[r].number = r / 2;
        snprintf(m->sites[r].host, sizeof m->sites[r].host, "%s", r < 2 ? first : second);
        snprintf(m->sites[r].kind, sizeof m->sites[r].kind, "8 x CPU");
    }
    m->options = (tm_node_options){ .minutes = 0.5, .seed = 7, .folder = ".", .sysroot = m->root };
    m->certificate = (tm_node_certificate){
        .options = &m->options, .sites = m->sites, .ranks = RANKS, .outcomes = m->outcomes, .seconds = 1.5
    };
}

static void add_figure(made *m, size_t check, int rank, const char *place, double value)
{
    tm_node_figure f = { .name = "product",
                         .unit = "GFLOP/s",
                         .sense = TM_NODE_SPEED,
                         .value = value,
                         .low = value - 0.5,
                         .high = value + 0.5,
                         .floor = 0.01 };
    snprintf(f.place, sizeof f.place, "%s", place);
    tm_node_figure_add(&m->outcomes[check], &f);
    m->outcomes[check].figures[m->outcomes[check].n_figures - 1].rank = rank;
}

static void add_fact(made *m, size_t check, int rank, const char *text)
{
    tm_node_fact_add(&m->outcomes[check], "driver", "", true, text);
    m->outcomes[check].facts[m->outcomes[check].n_facts - 1].rank = rank;
}

static void free_made(made *m)
{
    for (int i = 0; i < CHECKS; i++) tm_node_outcome_fini(&m->outcomes[i]);
    test_tree_remove(m->root);
}

static tm_result *print(const made *m)
{
    tm_text    text = { 0 };
    tm_result *result = NULL;
    tm_error   err = { 0 };
    tm_node_print(&m->certificate, &text);
    if (tm_result_parse("made", &text, NULL, NULL, &result, &err) != TM_OK) fail_msg("%s", err.text);
    tm_text_fini(&text);
    assert_int_equal(tm_result_kind_of(result), TM_RESULT_CERTIFICATE);
    return result;
}

static size_t differs(const tm_result *result)
{
    size_t wrong;
    tm_table_destroy(tm_results_certificate_verify(result, &wrong));
    return wrong;
}

/* --- the document ------------------------------------------------------------------------------------------------- */

TEST(document)
{
    made m;
    make(&m, "a", "b");
    add_figure(&m, HOST, 2, "core 1", 12.25);
    add_figure(&m, HOST, 0, "core 0", (double)NAN);
    tm_node_find(&m.outcomes[SOFTWARE], 2, "word 17", "\"a\" < b\n");
    tm_node_undecided(&m.outcomes[HOST], "noise");
    tm_result *result = print(&m);
    assert_string_equal(tm_result_string(result, "verdict"), "fail");
    assert_string_equal(tm_result_string(result, "name"), "a and 1 other");
    assert_true(tm_result_number(result, "options/seed") == 7);
    json_t *tree = json_loads(tm_result_document(result, TM_DOCUMENT_RESULT)->data, 0, NULL), *check, *figure;
    assert_int_equal(json_array_size(json_object_get(tree, "nodes")), 2);
    check = json_array_get(json_object_get(tree, "checks"), HOST);
    assert_string_equal(json_string_value(json_object_get(check, "verdict")), "no verdict");
    assert_string_equal(json_string_value(json_object_get(check, "reason")), "noise");
    figure = json_array_get(json_object_get(check, "figures"), 0);
    assert_true(json_real_value(json_object_get(figure, "value")) == 12.25);
    assert_true(json_integer_value(json_object_get(figure, "rank")) == 2);
    assert_true(json_is_null(json_object_get(json_array_get(json_object_get(check, "figures"), 1), "value")));
    json_decref(tree);
    tm_stored row;
    tm_result_describe(result, &row);
    assert_string_equal(row.kind, "certificate");
    assert_string_equal(row.verdict, "fail");
    tm_table *table = tm_results_certificate_table(result, 20);
    assert_string_equal(tm_table_note_at(table, 0), "software: b, rank 2, word 17: \"a\" < b\n");
    tm_table_destroy(table);
    tm_text page = { 0 };
    tm_results_certificate_page(result, &page);
    assert_non_null(strstr(page.data, "word 17"));
    assert_non_null(strstr(page.data, "a&quot; &lt; b"));
    assert_null(strstr(page.data, "http:"));
    tm_text_fini(&page);
    tm_result_destroy(result);
    free_made(&m);
}

/* Every byte of the document is in the hash: whichever is changed, something differs, or it is no certificate. */
TEST(changed_digits)
{
    made m;
    make(&m, "a", "b");
    add_figure(&m, HOST, 0, "core 1", 12.25);
    tm_result     *result = print(&m);
    const tm_text *text = tm_result_document(result, TM_DOCUMENT_RESULT);
    assert_int_equal(differs(result), 0);
    for (size_t i = 0; i < text->length; i += 1 + i % 19) {
        tm_text    other = { 0 };
        tm_result *read = NULL;
        tm_error   err = { 0 };
        tm_text_add_n(&other, text->data, text->length);
        other.data[i] = other.data[i] == '1' ? '2' : '1';
        if (tm_result_parse("changed", &other, NULL, NULL, &read, &err) == TM_OK &&
            (tm_result_kind_of(read) != TM_RESULT_CERTIFICATE || differs(read) == 0))
            fail_msg("byte %zu of %zu can be changed", i, text->length);
        tm_result_destroy(read);
        tm_text_fini(&other);
    }
    tm_result_destroy(result);
    free_made(&m);
}

/* --- hosts -------------------------------------------------------------------------------------------------------- */

TEST(expected_hosts)
{
    made m;
    make(&m, "a", "b.example.org");
    tm_node_expect(&m.certificate, "# all\na\nb slots=2\n\n");
    assert_int_equal(m.outcomes[HOST].n_findings, 0);
    tm_node_expect(&m.certificate, "a.example.org\nb2\n  c # new");
    assert_int_equal(m.outcomes[HOST].n_findings, 2);
    assert_string_equal(m.outcomes[HOST].findings[0].place, "b2");
    assert_string_equal(m.outcomes[HOST].findings[1].place, "c");
    assert_int_equal(tm_node_whole_verdict(&m.certificate), TM_NODE_FAIL);
    assert_int_equal(tm_node_expected("# nobody\n\n \t\n"), 0);
    assert_int_equal(tm_node_expected("a # b\n\nc"), 2);
    free_made(&m);
}

/* --- many --------------------------------------------------------------------------------------------------------- */

/* Certificates of b and c are in the store; that of a, which is slower, and whose driver is another one, is judged. */
TEST_WITH(judged_beside_the_store, NULL, test_folder_teardown)
{
    tm_error    err = { 0 };
    tm_store   *store;
    const char *path = test_in_folder("fleet.db");
    assert_int_equal(tm_store_open(path, true, &store, &err), TM_OK);
    for (int i = 0; i < 2; i++) {
        made    m;
        int64_t id;
        make(&m, i ? "b" : "c", i ? "b" : "c");
        for (int r = 0; r < RANKS; r++) m.sites[r].number = 0;
        add_figure(&m, HOST, 0, "core", 100 + i);
        add_fact(&m, SOFTWARE, 0, "1");
        tm_result *result = print(&m);
        assert_int_equal(tm_results_keep(store, result, NULL, NULL, &id, &err), TM_OK);
        tm_result_destroy(result);
        free_made(&m);
    }
    tm_store_close(store);
    for (int with = 0; with < 2; with++) {
        made m;
        make(&m, "a", "a");
        for (int r = 0; r < RANKS; r++) m.sites[r].number = 0;
        add_figure(&m, HOST, 1, "core", 80);
        add_fact(&m, SOFTWARE, 0, "2");
        assert_int_equal(tm_node_judge_all(&m.certificate, with ? path : NULL, &err), TM_OK);
        assert_int_equal(m.outcomes[HOST].n_findings, with);
        assert_int_equal(m.outcomes[SOFTWARE].n_findings, with);
        if (with) assert_int_equal(m.outcomes[HOST].findings[0].rank, 1);
        if (with) assert_non_null(strstr(m.outcomes[HOST].findings[0].text, "2 nodes of earlier certificates"));
        if (with) assert_non_null(strstr(m.outcomes[SOFTWARE].findings[0].text, "all 2 other nodes"));
        free_made(&m);
    }
}
