/* SPDX-License-Identifier: Apache-2.0 */
/* results/report_pictures.c - what models of images drew during the runs. The pictures are in the page. */
#include "base/file.h"
#include "results/chart.h"
#include "results/report_charts.h"

#include <string.h>

enum { MOST = 60, MOST_BYTES = 4 << 20 };

static void add_base64(tm_text *out, const unsigned char *bytes, size_t n)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned v =
            (unsigned)bytes[i] << 16 | (i + 1 < n ? (unsigned)bytes[i + 1] << 8 : 0) | (i + 2 < n ? bytes[i + 2] : 0);
        char four[4];
        for (int k = 0; k < 4; k++) four[k] = letters[v >> (18 - 6 * k) & 63];
        if (i + 1 >= n) four[2] = '=';
        if (i + 2 >= n) four[3] = '=';
        tm_text_add_n(out, four, 4);
    }
}

/* A PNG of the run's own folder for pictures, wherever a record of the run points to. */
static bool own_file(const char *file)
{
    const char *name = file + strlen("pictures/");
    return strncmp(file, "pictures/", strlen("pictures/")) == 0 && *name && *name != '.' && !strchr(name, '/');
}

static void add_picture(const tm_result *run, const tm_result_picture *p, tm_text *out)
{
    static const char signature[] = "\x89PNG\r\n\x1a\n";
    const char       *path = tm_result_path(run), *slash = path ? strrchr(path, '/') : NULL;
    tm_text           file = { 0 }, bytes = { 0 };
    tm_error          unread = { 0 };
    if (slash) tm_text_add_n(&file, path, (size_t)(slash - path + 1));
    tm_text_add(&file, p->file);
    bool read = path && own_file(p->file) && tm_file_read(file.data, MOST_BYTES, &bytes, &unread) == TM_OK;
    tm_text_add(out, "<figure>");
    if (read && bytes.length > 8 && memcmp(bytes.data, signature, 8) == 0) {
        tm_text_add(out, "<img src=\"data:image/png;base64,");
        add_base64(out, (const unsigned char *)bytes.data, bytes.length);
        tm_text_add(out, "\" alt=\"");
        chart_escape(out, p->caption ? p->caption : p->file);
        tm_text_add(out, "\">");
    } else {
        tm_text_add(out, "not there: ");
        chart_escape(out, p->file);
    }
    tm_text_printf(out, "<figcaption>step %lld", (long long)p->step);
    if (p->caption) tm_text_add(out, ": "), chart_escape(out, p->caption);
    tm_text_add(out, "</figcaption></figure>\n");
    tm_text_fini(&file);
    tm_text_fini(&bytes);
}

void report_add_pictures(const report_runs *r, tm_text *out)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t                   n;
        const tm_result_picture *all = tm_result_pictures(r->runs[i], &n);
        size_t                   from = n > MOST ? n - MOST : 0;
        if (n == 0) continue;
        tm_text_add(out, "<h2>Pictures that ");
        chart_escape(out, r->names[i]);
        tm_text_add(out, " drew");
        if (from > 0) tm_text_printf(out, ", the last %d of %zu", MOST, n);
        tm_text_add(out, "</h2><div class=\"pictures\">\n");
        for (size_t k = from; k < n; k++) add_picture(r->runs[i], &all[k], out);
        tm_text_add(out, "</div>\n");
    }
}
