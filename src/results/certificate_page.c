/* SPDX-License-Identifier: Apache-2.0 */
/* results/certificate_page.c - certificates as pages for people. */
#include "results/certificate.h"
#include "results/certificate_parts.h"
#include "results/chart.h"
#include "results/report_charts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *class_of(const char *verdict)
{
    return strcmp(verdict, "pass") == 0   ? "valid"
           : strcmp(verdict, "fail") == 0 ? "invalid"
           : strcmp(verdict, "skip") == 0 ? "not-judged"
                                          : "noisy";
}

static void add_cell(tm_text *out, const char *tag, const char *class_name, const char *text)
{
    tm_text_printf(out, "<%s%s%s%s>", tag, class_name ? " class=\"" : "", class_name ? class_name : "",
                   class_name ? "\"" : "");
    chart_escape(out, text);
    tm_text_printf(out, "</%s>", tag);
}

static void begin(const char *name, const char *title, tm_text *out)
{
    const char *names[] = { name };
    report_page_begin(&(report_runs){ .names = names, .n = 1 }, title, out);
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

static const char *cell_text(const tm_table *table, size_t row, size_t column, char buffer[40])
{
    const tm_cell *cell = tm_table_cell(table, row, column);
    if (cell->kind == TM_CELL_TEXT) return cell->text;
    if (cell->kind == TM_CELL_I64) snprintf(buffer, 40, "%lld", (long long)cell->i64);
    if (cell->kind == TM_CELL_F64) snprintf(buffer, 40, "%.6g", cell->f64);
    return cell->kind == TM_CELL_I64 || cell->kind == TM_CELL_F64 ? buffer : "";
}

static bool is_verdict(const char *text)
{
    return strcmp(text, "pass") == 0 || strcmp(text, "fail") == 0 || strcmp(text, "no verdict") == 0 ||
           strcmp(text, "skip") == 0;
}

static void add_table(const tm_table *table, const char *id, tm_text *out)
{
    tm_text_printf(out, "<div class=\"wide\"><table id=\"%s\"><tr>", id);
    for (size_t c = 0; c < tm_table_n_columns(table); c++)
        add_cell(out, "th", NULL, tm_table_column_at(table, c)->name);
    tm_text_add(out, "</tr>\n");
    for (size_t r = 0; r < tm_table_n_rows(table); r++) {
        tm_text_add(out, "<tr>");
        for (size_t c = 0; c < tm_table_n_columns(table); c++) {
            char        buffer[40];
            const char *text = cell_text(table, r, c, buffer);
            add_cell(out, "td", is_verdict(text) ? class_of(text) : NULL, text);
        }
        tm_text_add(out, "</tr>\n");
    }
    tm_text_add(out, "</table></div>\n");
    for (size_t i = 0; i < tm_table_n_notes(table); i++) add_cell(out, "p", "note", tm_table_note_at(table, i));
}

/* --- one certificate ---------------------------------------------------------------------------------------------- */

static void add_number(tm_text *out, const json_t *object, const char *member, double scale)
{
    char         text[40] = "";
    const double value = certificate_number(object, member);
    if (isfinite(value)) snprintf(text, sizeof text, "%.6g", scale * value);
    add_cell(out, "td", "number", text);
}

static void add_where(const tm_result *certificate, const json_t *one, tm_text *out)
{
    tm_text where = { 0 };
    certificate_place(certificate, one, &where);
    add_cell(out, "td", NULL, where.data);
    tm_text_fini(&where);
}

static void add_list(const tm_result *certificate, const char *member, const char *title, tm_text *out)
{
    size_t  i, k, n = 0;
    json_t *check, *one;
    json_array_foreach(certificate_checks(certificate), i, check) n += json_array_size(json_object_get(check, member));
    if (n == 0) return;
    tm_text_printf(out, "<h2>%s</h2><table id=\"%s\"><tr><th>check</th><th>where</th><th>what</th></tr>\n", title,
                   member);
    json_array_foreach(certificate_checks(certificate), i, check)
    {
        json_array_foreach(json_object_get(check, member), k, one)
        {
            tm_text_add(out, "<tr>");
            add_cell(out, "td", NULL, certificate_text(check, "id"));
            add_where(certificate, one, out);
            add_cell(out, "td", NULL, certificate_text(one, "text"));
            tm_text_add(out, "</tr>\n");
        }
    }
    tm_text_add(out, "</table>\n");
}

static void add_figures(const tm_result *certificate, const json_t *figures, tm_text *out)
{
    size_t  i;
    json_t *one;
    if (json_array_size(figures) == 0) return;
    tm_text_add(out, "<table><tr><th>figure</th><th>where</th><th>value</th><th>low</th><th>high</th><th>unit</th>"
                     "<th>floor, %</th></tr>\n");
    json_array_foreach(figures, i, one)
    {
        tm_text_add(out, "<tr>");
        add_cell(out, "td", NULL, certificate_text(one, "name"));
        add_where(certificate, one, out);
        add_number(out, one, "value", 1);
        add_number(out, one, "low", 1);
        add_number(out, one, "high", 1);
        add_cell(out, "td", NULL, certificate_text(one, "unit"));
        add_number(out, one, "floor", 100);
        tm_text_add(out, "</tr>\n");
    }
    tm_text_add(out, "</table>\n");
}

static void add_facts(const tm_result *certificate, const json_t *facts, tm_text *out)
{
    size_t  i;
    json_t *one;
    if (json_array_size(facts) == 0) return;
    tm_text_add(out, "<table><tr><th>fact</th><th>where</th><th>text</th></tr>\n");
    json_array_foreach(facts, i, one)
    {
        tm_text_add(out, "<tr>");
        add_cell(out, "td", NULL, certificate_text(one, "name"));
        add_where(certificate, one, out);
        add_cell(out, "td", NULL, certificate_text(one, "text"));
        tm_text_add(out, "</tr>\n");
    }
    tm_text_add(out, "</table>\n");
}

static void add_check(const tm_result *certificate, const json_t *check, tm_text *out)
{
    const char *verdict = certificate_text(check, "verdict");
    tm_text_printf(out, "<details><summary><span class=\"%s\">", class_of(verdict));
    chart_escape(out, verdict);
    tm_text_add(out, "</span> ");
    chart_escape(out, certificate_text(check, "title"));
    tm_text_printf(out, "</summary><p class=\"note\">%.3g s. Finds ", certificate_number(check, "seconds"));
    chart_escape(out, certificate_text(check, "finds"));
    tm_text_add(out, ". Cannot find ");
    chart_escape(out, certificate_text(check, "cannot"));
    tm_text_add(out, ".</p>\n");
    add_figures(certificate, json_object_get(check, "figures"), out);
    add_facts(certificate, json_object_get(check, "facts"), out);
    tm_text_add(out, "</details>\n");
}

void tm_results_certificate_page(const tm_result *certificate, tm_text *out)
{
    const json_t *tree = results_tree(certificate);
    const char   *verdict = certificate_text(tree, "verdict");
    size_t        i;
    json_t       *one;
    tm_table     *table = tm_results_certificate_table(certificate, 0);
    begin(certificate_text(tree, "name"), "Certificate of a node", out);
    tm_text_printf(out, "<p class=\"about\"><span class=\"verdict %s\">", class_of(verdict));
    chart_escape(out, verdict);
    tm_text_add(out, "</span> ");
    chart_escape(out, certificate_text(tree, "finished"));
    json_array_foreach(json_object_get(tree, "nodes"), i, one)
    {
        tm_text_add(out, " · ");
        chart_escape(out, certificate_text(one, "host"));
        tm_text_add(out, " (");
        chart_escape(out, certificate_text(one, "kind"));
        tm_text_add(out, ")");
    }
    tm_text_add(out, "</p>\n");
    add_list(certificate, "findings", "Findings", out);
    add_list(certificate, "told", "Changed since earlier certificates", out);
    tm_text_add(out, "<h2>Checks</h2>\n");
    add_table(table, "checks", out);
    tm_table_destroy(table);
    tm_text_add(out, "<h2>All that was measured</h2>\n");
    json_array_foreach(certificate_checks(certificate), i, one) add_check(certificate, one, out);
    add_cell(out, "p", "note", certificate_text(tree, "hash"));
    report_page_end(out);
}

/* --- many --------------------------------------------------------------------------------------------------------- */

void tm_results_certificates_page(const tm_table *nodes, const tm_table *details, tm_text *out)
{
    begin("fleet", "Certificates of a fleet", out);
    add_table(nodes, "nodes", out);
    tm_text_add(out, "<h2>Figures beside the other nodes, and what has changed</h2>\n");
    add_table(details, "details", out);
    report_page_end(out);
}
