/* SPDX-License-Identifier: Apache-2.0 */
/* results/certificate.c - certificates of nodes: the seal, and the table for people. Many: results/certificate_fleet.c;
 * the page: results/certificate_page.c. */
#include "results/certificate.h"

#include "base/secret.h"
#include "results/certificate_parts.h"
#include "stats/summary.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- parts -------------------------------------------------------------------------------------------------------- */

const char *certificate_text(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text ? text : "";
}

double certificate_number(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

json_t *certificate_checks(const tm_result *certificate)
{
    return json_object_get(results_tree(certificate), "checks");
}

const json_t *certificate_node(const tm_result *certificate, json_int_t rank)
{
    size_t  i, k;
    json_t *node, *one;
    json_array_foreach(json_object_get(results_tree(certificate), "nodes"), i, node)
    {
        json_array_foreach(json_object_get(node, "ranks"), k, one)
        {
            if (json_integer_value(one) == rank) return node;
        }
    }
    return NULL;
}

const char *certificate_host(const tm_result *certificate, const json_t *entry)
{
    return certificate_text(certificate_node(certificate, json_integer_value(json_object_get(entry, "rank"))), "host");
}

/* --- the seal ----------------------------------------------------------------------------------------------------- */

static const char mark[] = ",\n  \"hash\": \"";

static void hash_of(const char *text, size_t n, char out[2 * crypto_hash_sha256_BYTES + 1])
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, (const unsigned char *)text, n);
    for (size_t i = 0; i < sizeof hash; i++) snprintf(out + 2 * i, 3, "%02x", (unsigned)hash[i]);
}

void tm_results_seal(tm_text *document)
{
    char hash[2 * crypto_hash_sha256_BYTES + 1];
    tm_secret_mask(document);
    hash_of(document->data, document->length, hash);
    tm_text_printf(document, "%s%s\"\n}\n", mark, hash);
}

/* --- verified ----------------------------------------------------------------------------------------------------- */

static void add_row(tm_table *table, const char *figure, const char *written, const char *again, size_t *wrong)
{
    const bool same = strcmp(written, again) == 0;
    tm_table_row(table);
    tm_table_text(table, "figure", figure);
    tm_table_text(table, "written", written);
    tm_table_text(table, "recomputed", again);
    tm_table_text(table, "verdict", same ? "ok" : "differs");
    *wrong += !same;
}

/* Nothing but the end of the object may follow the hash. */
static void verify_hash(const tm_result *certificate, tm_table *table, size_t *wrong)
{
    const tm_text *text = tm_result_document(certificate, TM_DOCUMENT_RESULT);
    const char    *at = NULL, *written = tm_result_string(certificate, "hash");
    char           again[2 * crypto_hash_sha256_BYTES + 1] = "not the last member";
    for (const char *p = text->data; (p = strstr(p, mark)); p++) at = p;
    if (at) {
        const char  *end = at + sizeof mark - 1;
        const size_t n = strcspn(end, "\"");
        if (strcmp(end + n, "\"\n}\n") == 0) hash_of(text->data, (size_t)(at - text->data), again);
    }
    add_row(table, "hash", written ? written : "missing", again, wrong);
}

/* Of checks the worst counts; skipped ones are passed over unless there is nothing else. */
static const char *worse(const char *a, const char *b)
{
    static const char *const order[] = { "skip", "pass", "no verdict", "fail" };
    int                      x = 0, y = 0;
    for (int i = 0; i < 4; i++) {
        if (strcmp(a, order[i]) == 0) x = i;
        if (strcmp(b, order[i]) == 0) y = i;
    }
    return order[x > y ? x : y];
}

tm_table *tm_results_certificate_verify(const tm_result *certificate, size_t *wrong)
{
    static const tm_column columns[] = { { "figure", 0 }, { "written", 0 }, { "recomputed", 0 }, { "verdict", 0 } };
    tm_table              *table = tm_table_create("verify");
    const char            *whole = "skip", *written = tm_result_string(certificate, "verdict");
    size_t                 i;
    json_t                *check;
    *wrong = 0;
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    verify_hash(certificate, table, wrong);
    json_array_foreach(certificate_checks(certificate), i, check)
    {
        char        name[128];
        const char *verdict = certificate_text(check, "verdict");
        const bool  found = json_array_size(json_object_get(check, "findings")) > 0;
        snprintf(name, sizeof name, "verdict of %.80s", certificate_text(check, "id"));
        add_row(table, name, verdict, found ? "fail" : strcmp(verdict, "fail") == 0 ? "pass" : verdict, wrong);
        whole = worse(whole, verdict);
    }
    add_row(table, "verdict", written ? written : "missing", whole, wrong);
    return table;
}

/* --- for people --------------------------------------------------------------------------------------------------- */

/* The figure that matters: the first one that is compared, else the first; of its places the one nearest to their
 * median. */
static const json_t *main_figure(const json_t *check, size_t *places)
{
    size_t        i;
    json_t       *one;
    const json_t *first = NULL, *middle = NULL;
    const json_t *figures = json_object_get(check, "figures");
    *places = 0;
    json_array_foreach(figures, i, one)
    {
        const bool compared = strcmp(certificate_text(one, "sense"), "told") != 0;
        if (!first || (compared && strcmp(certificate_text(first, "sense"), "told") == 0)) first = one;
    }
    if (!first) return NULL;
    double *values = tm_alloc((json_array_size(figures) + 1) * sizeof *values), median;
    json_array_foreach(figures, i, one)
    {
        const double value = certificate_number(one, "value");
        if (strcmp(certificate_text(one, "name"), certificate_text(first, "name")) == 0 && isfinite(value))
            values[(*places)++] = value;
    }
    median = *places > 0 ? tm_stats_median(values, (int64_t)*places) : 0;
    json_array_foreach(figures, i, one)
    {
        const double value = certificate_number(one, "value");
        if (strcmp(certificate_text(one, "name"), certificate_text(first, "name")) == 0 && isfinite(value) &&
            (!middle || fabs(value - median) < fabs(certificate_number(middle, "value") - median)))
            middle = one;
    }
    free(values);
    return middle ? middle : first;
}

static void add_number(tm_table *table, const json_t *check)
{
    size_t        places;
    const json_t *f = main_figure(check, &places);
    if (!f) return;
    char         interval[80] = "", of[40] = "";
    const double low = certificate_number(f, "low"), high = certificate_number(f, "high");
    if (isfinite(low) && isfinite(high)) snprintf(interval, sizeof interval, " [%.4g, %.4g]", low, high);
    if (places > 1) snprintf(of, sizeof of, ", %zu places", places);
    tm_table_printf(table, "number", "%s: %.4g%s %s%s", certificate_text(f, "name"), certificate_number(f, "value"),
                    interval, certificate_text(f, "unit"), of);
}

void certificate_place(const tm_result *certificate, const json_t *finding, tm_text *out)
{
    const char *place = certificate_text(finding, "place"), *host = certificate_host(certificate, finding);
    tm_text_printf(out, "%s, rank %lld%s%s", *host ? host : "unknown host",
                   (long long)json_integer_value(json_object_get(finding, "rank")), *place ? ", " : "", place);
}

static void add_notes(const tm_result *certificate, const json_t *check, const char *member, size_t *left,
                      tm_table *table)
{
    size_t  i;
    json_t *one;
    json_array_foreach(json_object_get(check, member), i, one)
    {
        tm_text where = { 0 };
        if (*left == 0) return;
        --*left;
        certificate_place(certificate, one, &where);
        tm_table_note(table, "%s%s: %s: %s", strcmp(member, "told") == 0 ? "(told) " : "",
                      certificate_text(check, "id"), where.data, certificate_text(one, "text"));
        tm_text_fini(&where);
    }
}

tm_table *tm_results_certificate_table(const tm_result *certificate, size_t most)
{
    static const tm_column columns[] = { { "check", 0 }, { "verdict", 0 }, { "number", 0 }, { "reach", 0 } };
    tm_table              *table = tm_table_create("certificate");
    size_t                 i, findings = 0, left = most, told = most;
    json_t                *check;
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    json_array_foreach(certificate_checks(certificate), i, check)
    {
        const char *reason = certificate_text(check, "reason");
        tm_table_row(table);
        tm_table_text(table, "check", certificate_text(check, "id"));
        tm_table_text(table, "verdict", certificate_text(check, "verdict"));
        add_number(table, check);
        const bool failed =
            strcmp(certificate_text(check, "verdict"), "fail") == 0; /* then its findings are the reason */
        tm_table_text(table, "reach", *reason && !failed ? reason : certificate_text(check, "reach"));
        findings += json_array_size(json_object_get(check, "findings"));
    }
    json_array_foreach(certificate_checks(certificate), i, check)
        add_notes(certificate, check, "findings", &left, table);
    if (most > 0 && findings > most)
        tm_table_note(table, "and %zu more findings, which the certificate lists", findings - most);
    json_array_foreach(certificate_checks(certificate), i, check) add_notes(certificate, check, "told", &told, table);
    tm_table_note(table, "verdict: %s", certificate_text(results_tree(certificate), "verdict"));
    return table;
}

const char *tm_results_certificate_of_host(const tm_result *certificate, size_t index, const char *host)
{
    size_t        i;
    json_t       *one;
    const json_t *check = json_array_get(certificate_checks(certificate), index);
    const char   *verdict = certificate_text(check, "verdict");
    if (strcmp(verdict, "fail") != 0) return verdict;
    json_array_foreach(json_object_get(check, "findings"), i, one)
    {
        if (strcmp(certificate_host(certificate, one), host) == 0) return "fail";
    }
    return "pass";
}
