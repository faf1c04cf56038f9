/* SPDX-License-Identifier: Apache-2.0 */
/* Host settings there and back, also when the process is killed at any point. */
#include "support/test.h"

#include "support/refusal.h"
#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/file.h"
#include "base/root.h"
#include "apps/check/tune.h"

#include <signal.h>
#include <sys/wait.h>

#define CPUS "/sys/devices/system/cpu"
#define THP "/sys/kernel/mm/transparent_hugepage/"
#define STATE "/run/trainmark-tuned.json"

static char root[512];

/* path, value before, value while tuned */
static const char *const settings[][3] = {
    { CPUS "/cpu0/cpuidle/state2/disable", "0", "1" },
    { CPUS "/cpu1/cpuidle/state2/disable", "1", "1" },
    { CPUS "/cpu0/cpuidle/state1/disable", "0", "0" }, /* C1 stays */
    { CPUS "/cpu0/cpufreq/scaling_governor", "powersave", "performance" },
    { CPUS "/cpu1/cpufreq/scaling_governor", "schedutil", "performance" },
    { "/proc/sys/kernel/nmi_watchdog", "1", "0" },
    { "/proc/sys/kernel/numa_balancing", "1", "0" },
    { "/proc/sys/kernel/randomize_va_space", "2", "0" },
    { THP "enabled", "madvise", "always" },
    { THP "defrag", "defer+madvise", "always" },
    { "/proc/sys/vm/swappiness", "60", "60" },
};
enum { SETTINGS = sizeof settings / sizeof settings[0], CHANGED = 8 };

static void put(const char *path, const char *content)
{
    char line[512];
    snprintf(line, sizeof line, "%s\n", content);
    test_put(root, path, line);
}

static int make_host(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s", test_in_folder("host"));
    for (int i = 0; i < SETTINGS; i++) put(settings[i][0], settings[i][1]);
    put(THP "enabled", "always [madvise] never"); /* as the kernel shows it */
    put(CPUS "/cpu0/cpuidle/state1/name", "C1");
    put(CPUS "/cpu0/cpuidle/state2/name", "C2");
    put(CPUS "/cpu1/cpuidle/state2/name", "C2");
    put("/proc/sys/vm/drop_caches", "0");
    put("/proc/sys/kernel/random/boot_id", "boot-1");
    put("/run/other", "");
    return 0;
}

static int remove_host(void **state)
{
    (void)state;
    test_folder_remove();
    return 0;
}

/* Column 1: as before, 2: tuned. */
static void expect(int column)
{
    char text[64];
    for (int i = 0; i < SETTINGS; i++) {
        assert_true(tm_root_read_line(root, settings[i][0], text, sizeof text));
        if (strcmp(text, "always [madvise] never") == 0) strcpy(text, "madvise"); /* never touched */
        if (strcmp(text, settings[i][column]) != 0)
            fail_msg("%s is %s, not %s", settings[i][0], text, settings[i][column]);
    }
}

static size_t entries(const char *path)
{
    size_t    n;
    tm_arena *arena = tm_arena_create();
    tm_root_list(root, path, 100, arena, &n);
    tm_arena_destroy(arena);
    return n;
}

TEST_WITH(there_and_back, make_host, remove_host)
{
    tm_tune_options options = { .sysroot = root };
    tm_tuning      *tuning, *second;
    tm_text         notes = { 0 }, none = { 0 };
    tm_error        err = { 0 };
    char            text[64], state_path[600];
    assert_int_equal(tm_tune_state_read(root), TM_TUNE_NONE);
    umask(022);
    if (tm_tune_begin(&options, &tuning, &notes, &err) != TM_OK) fail_msg("%s", err.text);
    expect(2);
    assert_int_equal(tm_tune_state_read(root), TM_TUNE_LIVE);
    struct stat info;
    snprintf(state_path, sizeof state_path, "%s" STATE, root);
    assert_true(stat(state_path, &info) == 0 && (info.st_mode & 07777) == 0644); /* for everybody to read */
    assert_true(tm_root_read_line(root, "/proc/sys/vm/drop_caches", text, sizeof text));
    assert_string_equal(text, "3");
    assert_string_equal(notes.data, "tuned  caches: dropped\n"
                                    "tuned  C2 and deeper = 1: 1 changed, 1 so before\n"
                                    "tuned  governor = performance: 2 changed, 0 so before\n"
                                    "tuned  nmi_watchdog = 0: 1 changed, 0 so before\n"
                                    "tuned  numa_balancing = 0: 1 changed, 0 so before\n"
                                    "tuned  randomize_va_space = 0: 1 changed, 0 so before\n"
                                    "tuned  huge pages, enabled = always: 1 changed, 0 so before\n"
                                    "tuned  huge pages, defrag = always: 1 changed, 0 so before\n");
    notes.length = 0;
    /* While it lasts nobody else may tune or restore. */
    assert_int_equal(tm_tune_begin(&options, &second, &none, &err), TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "another process is tuning"));
    assert_int_equal(tm_tune_restore(root, &none, NULL), TM_INVALID);
    expect(2);
    err = (tm_error){ 0 };
    if (tm_tune_end(tuning, &notes, &err) != TM_OK) fail_msg("%s", err.text);
    expect(1);
    assert_int_equal(tm_tune_state_read(root), TM_TUNE_NONE);
    assert_int_equal(tm_tune_restore(root, &none, &err), TM_OK);
    assert_string_equal(none.data, "no host settings to restore\n");
    assert_string_equal(notes.data, "8 host settings restored\n");
    assert_int_equal(entries("/run"), 1); /* no draft stays */
    tm_text_fini(&notes);
    tm_text_fini(&none);
}

static void die_at(void *context, size_t index)
{
    if (index == *(size_t *)context) kill(getpid(), SIGKILL);
}

/* Tunes in a child that is killed before change number `index`; beyond the last one: when all is tuned. */
static void tune_and_die(size_t index)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tm_tune_options options = { .sysroot = root, .before_change = die_at, .context = &index };
        tm_tuning      *tuning;
        tm_text         notes = { 0 };
        if (tm_tune_begin(&options, &tuning, &notes, NULL) == TM_OK) kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_WITH(killed_at_any_point, make_host, remove_host)
{
    for (size_t index = 0; index <= CHANGED; index++) {
        tm_text  notes = { 0 };
        tm_error err = { 0 };
        make_host(test_state);
        tune_and_die(index);
        assert_int_equal(tm_tune_state_read(root), TM_TUNE_LEFT);
        if (index == CHANGED) expect(2);
        if (index % 2) { /* the next tuning puts back first, so that it records the true values */
            tm_tune_options options = { .sysroot = root };
            tm_tuning      *tuning;
            if (tm_tune_begin(&options, &tuning, &notes, &err) != TM_OK) fail_msg("%s", err.text);
            expect(2);
            if (tm_tune_end(tuning, &notes, &err) != TM_OK) fail_msg("%s", err.text);
        } else if (tm_tune_restore(root, &notes, &err) != TM_OK) {
            fail_msg("%s", err.text);
        }
        expect(1);
        assert_int_equal(tm_tune_state_read(root), TM_TUNE_NONE);
        tm_text_fini(&notes);
    }
}

TEST_WITH(a_restart_of_the_system_forgets, make_host, remove_host)
{
    tm_text notes = { 0 };
    tune_and_die(CHANGED);
    put("/proc/sys/kernel/random/boot_id", "boot-2");
    assert_int_equal(tm_tune_restore(root, &notes, NULL), TM_OK);
    assert_string_equal(notes.data, "host settings were recorded before the system was restarted: the restart has "
                                    "restored them\n");
    expect(2); /* the fixture's files are as they were; nothing was written */
    assert_int_equal(tm_tune_state_read(root), TM_TUNE_NONE);
    tm_text_fini(&notes);
}

TEST_WITH(foreign_state_files_change_nothing, make_host, remove_host)
{
#define HEAD "{\"format\": \"trainmark.tuned/1\", \"boot\": \"boot-1\", \"settings\": "
    static const char *const bad[] = {
        "",
        HEAD "[{\"path\": \"/etc/passwd\", \"was\": \"x\"}]}",
        HEAD "[{\"path\": \"/proc/sys/kernel/numa_balancing/../../vm/swappiness\", \"was\": \"1\"}]}",
        HEAD "[{\"path\": \"/sys/devices/system/cpu/cpu/cpufreq/scaling_governor\", \"was\": \"x\"}]}",
        HEAD "[{\"path\": \"/proc/sys/kernel/numa_balancing\"}]}",
        HEAD "[{\"path\": \"/proc/sys/kernel/numa_balancing\", \"was\": \"\"}]}",
        HEAD "[{\"path\": \"/proc/sys/kernel/numa_balancing\", \"was\": \"12345678901234567890123456789012\"}]}",
        HEAD "[{\"path\": \"/sys/devices/system/cpu/cpu0x/cpufreq/scaling_governor\", \"was\": \"x\"}]}",
        "{\"format\": \"trainmark.tuned/2\", \"boot\": \"boot-1\", \"settings\": []}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tm_text         notes = { 0 };
        tm_error        err = { 0 };
        tm_tune_options options = { .sysroot = root };
        tm_tuning      *tuning;
        put(STATE, bad[i]);
        assert_int_equal(tm_tune_restore(root, &notes, &err), TM_FORMAT);
        refusal_is_sound(&err);
        assert_non_null(strstr(err.text, "remove it"));
        assert_int_equal(tm_tune_begin(&options, &tuning, &notes, NULL), TM_FORMAT);
        expect(1);
        assert_int_equal(tm_tune_state_read(root), TM_TUNE_LEFT);
        tm_text_fini(&notes);
    }
}

TEST_WITH(what_cannot_be_written_is_said, make_host, remove_host)
{
    char            path[1024];
    tm_tune_options options = { .sysroot = root };
    tm_tuning      *tuning;
    tm_text         notes = { 0 };
    tm_error        err = { 0 };
    /* Root may write anything: a file that is gone between the look and the change is one that cannot be written. */
    snprintf(path, sizeof path, "%s/proc/sys/kernel/nmi_watchdog", root);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tm_tune_begin(&options, &tuning, &notes, &err), TM_OK);
    assert_non_null(
        strstr(notes.data, "\ntuned  nmi_watchdog: not on this system\ntuned  numa_balancing = 0: 1 changed"));
    put("/proc/sys/kernel/nmi_watchdog", "1");
    snprintf(path, sizeof path, "%s%s", root, CPUS "/cpu1/cpufreq/scaling_governor");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tm_tune_end(tuning, &notes, &err), TM_IO);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "cannot restore"));
    assert_non_null(strstr(notes.data, "\n6 host settings restored, 1 could not be\n"));
    assert_int_equal(tm_tune_state_read(root), TM_TUNE_LEFT); /* the record stays */
    put(CPUS "/cpu1/cpufreq/scaling_governor", "performance");
    assert_int_equal(tm_tune_restore(root, &notes, NULL), TM_OK);
    expect(1);

    /* Without a place for the record nothing is changed. */
    char run[1024], away[1024];
    snprintf(run, sizeof run, "%s/run", root);
    snprintf(away, sizeof away, "%s/away", root);
    assert_int_equal(rename(run, away), 0);
    err = (tm_error){ 0 };
    assert_int_equal(tm_tune_begin(&options, &tuning, &notes, &err), TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "nothing was changed"));
    expect(1);
    tm_text_fini(&notes);
}

TESTS_IN_ORDER
