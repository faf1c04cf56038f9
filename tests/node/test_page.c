/* SPDX-License-Identifier: Apache-2.0 */
/* docs/certify.md has the table of the checks. TM_UPDATE_DOCS=1 writes it. */
#include "support/test.h"

#include "base/file.h"
#include "apps/node/node.h"

TEST(table_of_the_checks)
{
    static const char begin[] = "| id | check | finds | cannot find |\n|---|---|---|---|\n", path[] = "docs/certify.md";
    size_t            n;
    const tm_node_check *checks = tm_node_checks(&n);
    tm_text              table = { 0 }, page = { 0 }, now = { 0 };
    assert_int_equal(tm_file_read(path, 1 << 20, &page, NULL), TM_OK);
    const char *from = strstr(page.data, begin);
    assert_non_null(from);
    const char *to = strstr(from, "\n\n") ? strstr(from, "\n\n") + 1 : page.data + page.length;
    tm_text_add(&table, begin);
    for (size_t i = 0; i < n; i++) {
        assert_true(checks[i].title[0] && checks[i].finds[0] && checks[i].cannot[0] && checks[i].share > 0);
        tm_text_printf(&table, "| %s | %s | %s | %s |\n", checks[i].id, checks[i].title, checks[i].finds,
                       checks[i].cannot);
    }
    tm_text_printf(&now, "%.*s%s%s", (int)(from - page.data), page.data, table.data, to);
    if (strcmp(now.data, page.data) != 0) {
        if (!getenv("TM_UPDATE_DOCS")) fail_msg("docs/certify.md is out of date; run this test with TM_UPDATE_DOCS=1");
        assert_int_equal(tm_file_write(path, now.data, now.length, NULL), TM_OK);
    }
    tm_text_fini(&table);
    tm_text_fini(&page);
    tm_text_fini(&now);
}
