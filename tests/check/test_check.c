/* SPDX-License-Identifier: Apache-2.0 */
/* The checks on made-up machines: every outcome of every row, and how checks are run and printed. */
#include "support/test.h"

#include "base/clock.h"
#include "check_fixtures.h"
#include "trees.h"
#include "apps/check/report.h"

#include <fcntl.h>
#include <jansson.h>
#include <sys/file.h>
#include <time.h>

static int lock = -1;

/* --- trees ----------------------------------------------------------------------------------- */

static void new_root(void)
{
    static int number;
    char       name[32];
    snprintf(name, sizeof name, "machine%d", number++);
    snprintf(machine_root, sizeof machine_root, "%s", test_in_folder(name));
    assert_int_equal(tm_folder_make(machine_root, NULL), TM_OK);
}

/* PCI configuration space: a power capability 1 at 100h, which leads to ACS (000Dh) at 148h. */
static void put_config(const char *path, const char *kind)
{
    unsigned char config[4096] = { 0x22, 0x10 };
    config[0x100] = 0x01;
    config[0x102] = 0x01; /* version 1 */
    if (strcmp(kind, "no-acs") != 0) {
        config[0x102] |= 0x80;
        config[0x103] = 0x14;
        config[0x148] = 0x0D;
        config[0x14A] = 0x01;
        config[0x14E] = strcmp(kind, "acs-on") == 0 ? 0x1D : 0x1C;
    }
    put_bytes(path, config, strcmp(kind, "short") == 0 ? 64 : sizeof config);
}

/* As put() takes it; a content that begins with '%' is made here. */
static void put_entry(const char *entry)
{
    char        path[1024], full[1024];
    const char *special = strstr(entry, "=%");
    if (!special) {
        put("%s", entry);
        return;
    }
    snprintf(path, sizeof path, "%.*s", (int)(special - entry), entry);
    if (strcmp(special, "=%locked") != 0) {
        put_config(path, special + 2);
        return;
    }
    put("%s={}", path);
    tree_path(path, full);
    lock = open(full, O_RDONLY);
    assert_int_equal(flock(lock, LOCK_EX), 0);
}

static void put_fixture(const fixture *f)
{
    new_root();
    for (int i = 0; i < FIXTURE_FILES && f->files[i]; i++)
        if (f->files[i][0] != '$') put_entry(f->files[i]);
}

static int clean(void **state)
{
    (void)state;
    if (lock >= 0) close(lock);
    lock = -1;
    test_folder_remove();
    return 0;
}

/* Runs the rows that `only` names on the machine below `machine_root`. */
static void run(const char *only, const fixture *f, bool isolate, tm_checks *checks)
{
    char            *variables[FIXTURE_FILES + 1] = { NULL };
    int              n = 0;
    tm_arena        *arena = tm_arena_create();
    tm_check_host    host = tm_check_host_read(machine_root, true, arena);
    tm_check_options options = tm_check_options_default();
    tm_error         err = { 0 };
    for (int i = 0; f && i < FIXTURE_FILES && f->files[i]; i++)
        if (f->files[i][0] == '$') variables[n++] = tm_arena_text(arena, f->files[i] + 1);
    host.environment = variables;
    host.wall_ms = 1767225600000; /* 2026-01-01 */
    options.sysroot = machine_root;
    options.only = only;
    options.isolate = isolate;
    options.host = &host;
    if (f && f->set) f->set(&options, &host);
    *checks = (tm_checks){ 0 };
    if (tm_checks_run(&options, checks, &err) != TM_OK) fail_msg("%s", err.text);
    tm_arena_destroy(arena);
}

/* --- outcomes -------------------------------------------------------------------------------- */

/* It becomes a file's name: up to the first dot, letters, digits and, behind the first one, - and _. */
TEST(hosts_have_names)
{
    static const char *const rows[][2] = { { "/proc/sys/kernel/hostname=node7.example.org\n", "node7" },
                                           { "/proc/sys/kernel/hostname=-od/d na_me-\n", "_od_d_na_me-" },
                                           { "/proc/sys/kernel/hostname=.domain\n", "unknown" },
                                           { "/proc/sys/kernel/hostname=\n", "unknown" },
                                           { "/proc/sys/kernel/other=x\n", "unknown" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_checks checks;
        new_root();
        put("%s", rows[i][0]);
        run("os", NULL, false, &checks);
        assert_string_equal(checks.host, rows[i][1]);
        tm_checks_fini(&checks);
    }
}

/* Each number that is known, once; what is of another maker has its own. */
TEST(errors_of_gpus_have_their_remedy)
{
#define XID(number) "3,1,1,-;NVRM: Xid (PCI:0000:41:00): " number ", pid=1\n"
    static const char *const labels[] = {
        "Xid 13: ", "Xid 31: ", "Xid 48: ", "Xid 63: ", "Xid 64: ",
        "Xid 74: ", "Xid 79: ", "Xid 94: ", "Xid 95: ", "amdgpu: see the checks ecc"
    };
    static const struct {
        const char *log, *wanted; /* labels */
    } rows[] = { { XID("79"), "Xid 79: " },
                 { XID("13") XID("95") XID("13"), "Xid 13: Xid 95: " },
                 { XID("5"), "" },
                 { "3,1,1,-;amdgpu 0000:05:00.0: ring sdma0 timeout\n", "amdgpu: see the checks ecc" },
                 { "3,1,1,-;GPU reset begin!\n" XID("31"), "Xid 31: amdgpu: see the checks ecc" },
                 { "3,1,1,-;mce: [Hardware Error]: of memory\n", "" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_checks checks;
        new_root();
        put("/dev/kmsg=%s", rows[i].log);
        run("klog", NULL, false, &checks);
        const char *remedy = checks.results[0].remedy;
        for (size_t k = 0; k < sizeof labels / sizeof labels[0]; k++) {
            const char *found = strstr(remedy, labels[k]);
            if (!found != !strstr(rows[i].wanted, labels[k]) || (found && strstr(found + 1, labels[k])))
                fail_msg("row %zu: '%s' in '%s'", i, labels[k], remedy);
        }
        assert_non_null(strstr(remedy, "dmesg"));
        tm_checks_fini(&checks);
    }
}

/* What people read: one line, nothing that a format left behind. */
static void reads_well(const char *id, const char *text)
{
    static const char *const odd[] = { "(null)", "%s", "%d", "%.", "\n", "  ", "%zu" };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        const char *found = strstr(text, odd[i]);
        if (found) fail_msg("%s: '%s' has '%s'", id, text, odd[i]);
    }
    if (*text) assert_true(text[0] != ' ' && text[strlen(text) - 1] != ' ');
}

static void every_fixture(bool isolate, int step)
{
    for (int i = 0; i < FIXTURES; i += step) {
        const fixture *f = &fixtures[i];
        tm_checks      checks;
        put_fixture(f);
        run(f->id, f, isolate, &checks);
        assert_int_equal(checks.n, 1);
        const tm_check_result *r = &checks.results[0];
        if (r->status != f->status || !strstr(r->observed, f->observed))
            fail_msg("row %d, %s: %s '%s', wanted %s '%s'", i, f->id, tm_check_status_name(r->status), r->observed,
                     tm_check_status_name(f->status), f->observed);
        assert_true(*r->observed && *r->expected && *r->source);
        const char *const texts[] = { r->observed, r->expected, r->source, r->remedy };
        for (int k = 0; k < 4; k++) reads_well(r->id, texts[k]);
        if (r->status == TM_CHECK_WARN || r->status == TM_CHECK_FAIL) assert_true(*r->remedy);
        assert_int_equal(checks.counts[f->status], 1);
        assert_int_equal(tm_checks_failed(&checks), f->status == TM_CHECK_FAIL);
        tm_checks_fini(&checks);
        if (lock >= 0) close(lock);
        lock = -1;
    }
}

TEST_WITH(each_fixture_has_its_outcome, NULL, clean)
{
    every_fixture(false, 1);
}

TEST(no_outcome_is_without_fixture)
{
    size_t              n;
    const tm_check_row *rows = tm_check_rows(&n);
    for (size_t i = 0; i < n; i++) {
        unsigned seen = 0;
        if (strncmp(rows[i].id, "perf_", 5) == 0) continue; /* tests/cli/test_check_command.c */
        for (int k = 0; k < FIXTURES; k++)
            if (strcmp(fixtures[k].id, rows[i].id) == 0) seen |= 1u << fixtures[k].status;
        char wanted[TM_CHECK_OUTCOMES_BYTES], have[TM_CHECK_OUTCOMES_BYTES];
        if (seen != rows[i].outcomes)
            fail_msg("%s can be %s, the fixtures show %s", rows[i].id, tm_check_outcomes(rows[i].outcomes, wanted),
                     tm_check_outcomes(seen, have));
        for (int g = 0; g < TM_CHECK_GROUPS; g++)
            assert_string_not_equal(rows[i].id, tm_check_group_name((tm_check_group)g));
        /* What can go wrong has a remedy. */
        bool wrong = rows[i].outcomes & (1u << TM_CHECK_WARN | 1u << TM_CHECK_FAIL);
        assert_true(!wrong || *rows[i].remedy);
    }
}

/* --- choosing and running --------------------------------------------------------------------- */

/* A machine of which nothing is known: no row is passed for what nobody saw, but for daemons that are not there. */
TEST_WITH(nothing_is_known, NULL, clean)
{
    tm_checks checks;
    new_root();
    run(NULL, NULL, false, &checks);
    for (size_t i = 0; i < checks.n; i++) {
        const tm_check_result *r = &checks.results[i];
        bool                   absent = strcmp(r->id, "tuned") == 0;
        bool                   told = strcmp(r->id, "container") == 0 || strcmp(r->id, "time") == 0;
        assert_int_equal(r->status, absent ? TM_CHECK_PASS : told ? TM_CHECK_INFO : TM_CHECK_SKIP);
        assert_true(*r->observed && *r->expected && *r->source);
    }
    tm_checks_fini(&checks);
}

/* The running system has all that it is asked for, and no group that may hang. */
TEST(this_machine)
{
    tm_checks        checks = { 0 };
    tm_check_options options = tm_check_options_default();
    options.quick = true;
    assert_int_equal(tm_checks_run(&options, &checks, NULL), TM_OK);
    assert_true(checks.n > 20);
    for (size_t k = 0; k < checks.n; k++) assert_true(*checks.results[k].observed);
    tm_checks_fini(&checks);
}

/* --- printing -------------------------------------------------------------------------------- */

/* Checks that are skipped for one reason are one line with their number; with -v each has its own, expectation and
 * source below it. Lines fit, only states have colours, and without them the text is the same. */
TEST(reports_for_a_terminal)
{
    tm_checks checks = { .host = "node7" };
    char      id[16];
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof id, "check_%d", i);
        tm_checks_add(&checks, &(tm_check_result){ .id = id,
                                                   .group = i < 7 ? "gpu" : "net",
                                                   .status = i == 3   ? TM_CHECK_WARN
                                                             : i == 4 ? TM_CHECK_PASS
                                                                      : TM_CHECK_SKIP,
                                                   .observed = i == 6 ? "another reason" : "there is no GPU to be seen",
                                                   .expected = "some of the most usual settings of such machines",
                                                   .source = "/sys/somewhere/in/a/file",
                                                   .remedy = "buy one" });
    }
    for (int kind = 0; kind < 8; kind++) {
        tm_check_view view = { .width = kind & 1 ? 66 : 0, .colour = kind & 2, .verbose = kind & 4 };
        tm_text       text = { 0 }, plain = { 0 };
        tm_checks_print(&checks, &view, &text);
        for (const char *at = text.data; *at;) {
            size_t n = *at == '\033' ? strcspn(at, "m") + 1 : 0;
            if (n == 0) tm_text_add_n(&plain, at, 1);
            at += n ? n : 1;
        }
        for (const char *line = plain.data; *line; line += strcspn(line, "\n") + 1)
            assert_true(view.width == 0 || strcspn(line, "\n") <= view.width);
        assert_int_equal(strstr(text.data, "\033[33mWARN\033[0m") != NULL, view.colour);
        assert_int_equal(strstr(text.data, "\033[32mPASS\033[0m  check_4") != NULL, view.colour);
        assert_int_equal(strchr(text.data, '\033') != NULL, view.colour);
        assert_int_equal(strstr(plain.data, "  SKIP  check_0 ") != NULL, view.verbose);
        assert_int_equal(strstr(plain.data, "  SKIP  check_5 ") != NULL, view.verbose);
        assert_int_equal(strstr(plain.data, "  SKIP  4 checks        there is no GPU") != NULL, !view.verbose);
        assert_int_equal(strstr(plain.data, "  SKIP  2 checks        there is no GPU") != NULL, !view.verbose);
        assert_non_null(strstr(plain.data, "  SKIP  check_6         another reason\n"));
        assert_non_null(strstr(plain.data, "\nnode7:  PASS  1 pass, 1 warn, 0 fail, 0 info, 7 skipped ("));
        int details = 0;
        for (const char *at = plain.data; (at = strstr(at, " expected: ")); at++) details++;
        assert_int_equal(details, view.verbose ? 9 : 1);
        tm_text_fini(&text);
        tm_text_fini(&plain);
    }
    tm_checks_fini(&checks);
}
