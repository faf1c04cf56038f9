/* SPDX-License-Identifier: Apache-2.0 */
/* What takes long says how far it is: not before ten seconds, and not more often. */
#include "base/progress.h"
#include "base/log.h"

#include "support/test.h"

static char told[512];

static void take(void *context, const char *lines)
{
    (void)context;
    snprintf(told, sizeof told, "%s", lines);
}

/* The progress began so many seconds ago, and told something so many seconds ago. */
static void age(tm_progress *p, int began, int spoke)
{
    p->begin -= (int64_t)began * 1000000000;
    p->told -= (int64_t)spoke * 1000000000;
    *told = '\0';
}

TEST(a_note_every_ten_seconds)
{
    tm_progress p = tm_progress_begin("reading weights", (int64_t)80 << 30);
    tm_log_set_outlet(take, NULL);
    age(&p, 5, 5);
    tm_progress_add(&p, (int64_t)10 << 30);
    assert_string_equal(told, "");
    age(&p, 15, 15);
    tm_progress_add(&p, (int64_t)10 << 30);
    assert_non_null(strstr(told, "reading weights: 20.00 GiB of 80.00 GiB after 20 s, about 60 s left"));
    age(&p, 5, 5);
    tm_progress_add(&p, (int64_t)1 << 30); /* the last note is five seconds old */
    assert_string_equal(told, "");
    age(&p, 15, 15);
    tm_progress_add(&p, (int64_t)59 << 30); /* all is done */
    assert_string_equal(told, "");
    tm_log_set_outlet(NULL, NULL);
}

TEST(nothing_is_divided_by_nothing)
{
    tm_progress p = tm_progress_begin("initial values", 100);
    tm_log_set_outlet(take, NULL);
    age(&p, 60, 60);
    tm_progress_add(&p, 0);
    assert_string_equal(told, "");
    tm_log_set_outlet(NULL, NULL);
}
