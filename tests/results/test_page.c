/* SPDX-License-Identifier: Apache-2.0 */
/* What a page says first, and all over: headline, stars, measured roofs, rounded numbers, colours that differ. */
#include "results/report.h"
#include "figure_rules.h"

#include "support/test.h"

enum { MOST = 4 };

static svg_page page_of(const tm_result *const *results, size_t n, tm_text *html)
{
    tm_error err = { 0 };
    html->length = 0;
    if (tm_results_report(results, n, TM_REPORT_HTML, html, &err) != TM_OK) fail_msg("%s", err.text);
    return svg_read(html->data);
}

static size_t with_id(const svg_page *page, const char *id)
{
    for (size_t i = 0; i < page->n; i++) {
        const char *is = svg_attribute(&page->nodes[i], "id");
        if (is && strcmp(is, id) == 0) return i;
    }
    fail_msg("there is no %s", id);
    return 0;
}

/* --- headline ----------------------------------------------------------------------------------------------------- */

/* The i-th large figure below a node, without its star. */
static const char *large(const svg_page *page, size_t from, size_t i)
{
    size_t at = svg_find(page, from + 1, page->nodes[from].end, "b", NULL);
    while (i-- > 0) at = svg_find(page, at + 1, page->nodes[from].end, "b", NULL);
    assert_true(at < page->nodes[from].end);
    const char *text = svg_text(page, at);
    return strncmp(text, "★ ", 4) == 0 ? text + 4 : text;
}

TEST(one_run_has_cards)
{
    static const char *const paths[] = { "tokens_per_second_per_device/median", "step_time/median", "loss/validation",
                                         "memory/used_bytes" };
    source                   run = open_source("rich", changed(rich, "'6 N' => 'titan'"), told_text(metrics));
    const tm_result         *one = run.run;
    tm_text                  html = { 0 };
    svg_page                 page = page_of(&one, 1, &html);
    size_t                   cards = with_id(&page, "headline");
    for (size_t i = 0; i < 4; i++) {
        const char *text = large(&page, cards, i);
        assert_near(amount_of(text), number_at(run.tree, paths[i]), last_place(text), paths[i]);
    }
    assert_string_equal(large(&page, cards, 4), "24.6 TFLOP/s");
    assert_non_null(strstr(svg_text(&page, cards), "MFU 61.4 %"));
    svg_close(&page);
    tm_text_fini(&html);
    close_source(&run);
}

/* A run with this verdict, speed (lo and hi null: no interval) and source of data. */
static tm_result *run_at(const char *name, const char *verdict, const char *lo, const char *median, const char *hi,
                         const char *data)
{
    char changes[300];
    snprintf(changes, sizeof changes,
             "'median': 4096,\n    'lo': 4000,\n    'hi': 4196 => 'median': %s, 'lo': %s, 'hi': %s; "
             "'verdict': 'noisy' => 'verdict': '%s'; 'data_source': 'synthetic' => 'data_source': '%s'",
             median, lo, hi, verdict, data);
    return run_of(name, rich, changes, NULL);
}

/* Has the run's cell of the column a star? Column 0: speed, 2: loss. */
static bool has_star(const svg_page *page, size_t run, size_t column)
{
    size_t table = with_id(page, "headline"), at = table;
    for (size_t i = 0; i < run + 2; i++) at = svg_find(page, at + 1, page->nodes[table].end, "tr", NULL);
    size_t end = page->nodes[at].end, cell = at;
    for (size_t i = 0; i < column + 2; i++) {
        do cell++;
        while (cell < end && strcmp(page->nodes[cell].tag, "td") != 0);
    }
    assert_true(cell < end);
    bool star = strstr(svg_text(page, cell), "★") != NULL;
    assert_int_equal(star, svg_is(&page->nodes[cell], "td", "best")); /* not by colour alone */
    return star;
}

/* The fastest that is not invalid, and all whose intervals reach it; losses of other data are not compared. */
TEST(several_runs_have_stars)
{
    tm_result        *runs[] = { run_at("slow", "valid", "90", "100", "110", "synthetic"),
                                 run_at("fast", "valid", "190", "200", "210", "synthetic"),
                                 run_at("alike", "noisy", "150", "180", "195", "synthetic"),
                                 run_at("wrong", "invalid", "900", "1000", "1100", "synthetic") };
    static const bool best[] = { false, true, true, false };
    tm_text           html = { 0 };
    svg_page          page = page_of((const tm_result *const *)runs, MOST, &html);
    for (size_t i = 0; i < MOST; i++) {
        assert_int_equal(has_star(&page, i, 0), best[i]);
        assert_int_equal(has_star(&page, i, 2), i != 3); /* all have the same loss */
    }
    svg_close(&page);
    tm_result_destroy(runs[0]);
    runs[0] = run_at("other", "valid", "90", "100", "110", "text");
    page = page_of((const tm_result *const *)runs, MOST, &html);
    for (size_t i = 0; i < MOST; i++) assert_false(has_star(&page, i, 2));
    svg_close(&page);
    for (size_t i = 0; i < MOST; i++) tm_result_destroy(runs[i]);
    tm_text_fini(&html);
}

static size_t stars(const svg_page *page, size_t runs, size_t column)
{
    size_t n = 0;
    for (size_t i = 0; i < runs; i++) n += has_star(page, i, column);
    return n;
}

/* A run of a few steps may seem the fastest: without an interval nobody knows. */
TEST(no_interval_no_star)
{
    tm_result *runs[] = { run_at("short", "valid", "null", "900", "null", "synthetic"),
                          run_at("long", "valid", "90", "100", "110", "synthetic"),
                          run_at("longer", "valid", "190", "200", "210", "synthetic") };
    tm_text    html = { 0 };
    svg_page   page = page_of((const tm_result *const *)runs, 2, &html);
    assert_int_equal(stars(&page, 2, 0) + stars(&page, 2, 4), 0); /* one alone is the best of nothing */
    assert_int_equal(stars(&page, 2, 2), 2);
    svg_close(&page);
    page = page_of((const tm_result *const *)runs, 3, &html);
    assert_true(has_star(&page, 2, 0) && stars(&page, 3, 0) == 1);
    svg_close(&page);
    for (size_t i = 0; i < 3; i++) tm_result_destroy(runs[i]);
    tm_text_fini(&html);
}

/* Of runs that do not do the same work none is the best in anything; the page says in what they differ. */
TEST(other_work_is_not_compared)
{
    static const struct {
        const char *changes, *differ;
    } cases[] = {
        { NULL, NULL },
        { "'llama-small' => 'llama-large'", "model" },
        { "'batch_tokens': 4096 => 'batch_tokens': 512", "tokens of a step" },
        { "'configuration': null => 'configuration': {'training.seq_len': 8}", "sequence length" },
        { "'preference' => 'images_per_second_per_device': {'median': 2}, 'is'", "unit of the loss" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_result *runs[] = { run_of("a", rich, NULL, NULL), run_of("b", rich, cases[i].changes, NULL) };
        tm_text    html = { 0 };
        svg_page   page = page_of((const tm_result *const *)runs, 2, &html);
        for (size_t c = 0; c < 5; c++)
            if (cases[i].differ || c == 3) assert_int_equal(stars(&page, 2, c), cases[i].differ ? 0 : 2);
        const char *note = svg_text(&page, svg_find(&page, with_id(&page, "headline"), page.n, "p", "note"));
        if (cases[i].differ && !strstr(note, cases[i].differ)) fail_msg("'%s' has no '%s'", note, cases[i].differ);
        svg_close(&page);
        tm_text_fini(&html);
        for (size_t k = 0; k < 2; k++) tm_result_destroy(runs[k]);
    }
}

/* --- roofs -------------------------------------------------------------------------------------------------------- */

static tm_result *bench_of(const char *host, const char *notes)
{
    tm_text json = { 0 };
    tm_text_printf(&json, "{\"name\": \"stream\", \"rows\": [{\"host\": \"%s\"}], \"notes\": [%s]}", host, notes);
    return parsed("machine.json", &json, NULL);
}

/* What the chart tells of the roofs, and the page below it. Products of bfloat16 have a peak of their own. */
TEST(roofs_are_of_benchmarks)
{
    static const char high[] = "\"peak: 6e6 GFLOP/s float32 measured (how)\", \"peak of bfloat16 products: 9e6 GFLOP/s "
                               "measured\", \"memory: 4e5 GB/s measured (how)\"";
    static const char higher[] = "\"peak: 7e6 GFLOP/s float32 measured (how)\", \"memory: 3e5 GB/s measured (how)\"";
    static const char tiny[] = "\"peak: 1e-9 GFLOP/s float32 measured\", \"memory: 1e-9 GB/s measured\"";
    tm_result *runs[] = { run_of("rich", rich, "'environment': null => 'environment': {'os': {'host': 'near'}}", NULL),
                          run_of("rich", rich, "'float32' => 'bfloat16'", NULL) };
    tm_result *benches[] = { bench_of("far", high), bench_of("far", higher), bench_of("far", tiny) };
    static const struct {
        int         run;
        size_t      first, n;
        const char *roofs, *note;
    } cases[] = {
        { 0, 0, 0, "- memory: at least 2.67 MB/s\narithmetic: 40 TFLOP/s, of the device's data sheet\n",
          "trainmark bench stream --output-file machine.json" },
        { 0, 0, 1, "memory: 400 TB/s, measured\narithmetic: 6 PFLOP/s, measured\n",
          "measured by trainmark bench on host far, which is another host" },
        { 0, 0, 2, "memory: 400 TB/s, measured\narithmetic: 7 PFLOP/s, measured\n", "measured by trainmark bench" },
        { 0, 2, 1, "- memory: at least 2.67 MB/s\n- arithmetic: at least 1.33 GFLOP/s\n",
          "A line is faster than a roof" },
        { 1, 0, 1, "memory: 400 TB/s, measured\narithmetic: 9 PFLOP/s, measured\n", "measured by trainmark bench" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tm_result *all[3] = { runs[cases[i].run] };
        tm_text          html = { 0 }, told = { 0 };
        for (size_t k = 0; k < cases[i].n; k++) all[k + 1] = benches[cases[i].first + k];
        svg_page page = page_of(all, 1 + cases[i].n, &html);
        chart_tells(&page, "roofline", true, true, &told);
        const char *roofs = strchr(told.data, '\n') + 1, *note = svg_text(&page, with_id(&page, "roofs"));
        if (strncmp(roofs, cases[i].roofs, strlen(cases[i].roofs)) != 0) fail_msg("%s", told.data);
        if (!strstr(note, cases[i].note)) fail_msg("'%s' does not say '%s'", note, cases[i].note);
        svg_close(&page);
        tm_text_fini(&html);
        tm_text_fini(&told);
    }
    for (size_t i = 0; i < 3; i++) tm_result_destroy(benches[i]);
    for (size_t i = 0; i < 2; i++) tm_result_destroy(runs[i]);
}

/* --- all over ----------------------------------------------------------------------------------------------------- */

/* On a logarithmic scale, or all other steps would be a flat line; not where a loss is not positive. */
TEST(a_loss_may_run_away)
{
    static const struct {
        double losses[3];
        bool   logarithmic;
    } cases[] = {
        { { 4, 90, 4.5 }, false }, { { 4, 4000, 4.5 }, true }, { { 4, 4e6, 3 }, true }, { { -1e6, 4e6, 3 }, false }
    };
    for (size_t i = 0; i < 4; i++) {
        tm_text lines = { 0 }, html = { 0 }, told = { 0 }, wanted = { 0 };
        tm_text_add(&wanted, "Loss; nats per pair over step\nrich:");
        for (int k = 0; k < 3; k++) {
            tm_text_printf(&lines, "{\"step\": %d, \"loss\": %.17g}\n", k + 1, cases[i].losses[k]);
            tm_text_printf(&wanted, "%s %d %.6g", k ? "," : "", k + 1, cases[i].losses[k]);
        }
        tm_result       *run = run_of("rich", rich, NULL, lines.data);
        const tm_result *one = run;
        svg_page         page = page_of(&one, 1, &html);
        chart_tells(&page, "loss", false, cases[i].logarithmic, &told);
        assert_memory_equal(told.data, wanted.data, wanted.length);
        svg_close(&page);
        tm_result_destroy(run);
        tm_text_fini(&lines), tm_text_fini(&html), tm_text_fini(&told), tm_text_fini(&wanted);
    }
}

/* --- colours ------------------------------------------------------------------------------------------------------ */

/* Of runs and of kinds, on light pages and on dark ones: no two are alike. */
TEST(colours_differ)
{
    const char *light = chart_style(), *dark = strstr(light, "@media(prefers-color-scheme:dark)");
    for (int s = 0; s < 2; s++) {
        unsigned rgb[32][3];
        for (int i = 0; i < 32; i++) {
            char name[16];
            snprintf(name, sizeof name, "--c%d:#", i);
            const char *at = strstr(s ? dark : light, name);
            assert_true(at && sscanf(at + strlen(name), "%2x%2x%2x", &rgb[i][0], &rgb[i][1], &rgb[i][2]) == 3);
            for (int k = 0; k < i; k++) {
                int apart = 0;
                for (int c = 0; c < 3; c++) apart += abs((int)rgb[i][c] - (int)rgb[k][c]);
                if (apart < 20) fail_msg("colours %d and %d are %d apart", i, k, apart);
            }
        }
    }
}
