/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints on a disk that fails, fills up or loses power at every single call, and in processes that are killed. */
#include "support/test.h"
#include "checkpoint_fixture.h"

#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { MAX_NODES = 64, MAX_FDS = 1024, PATH_ROOM = 512 };

typedef enum {
    FAIL_ONCE, /* the k-th call fails, the process lives on */
    CRASH,     /* the k-th and all later calls do nothing: the process is dead, what it wrote is there */
    POWER_CUT, /* like CRASH, and what was not flushed is lost */
} fault_kind;

/* A file or folder that was made through the table, and how much of it would survive a power cut. */
typedef struct {
    char path[PATH_ROOM];
    bool is_live, is_folder;
    bool is_flushed; /* its content */
    bool is_linked;  /* its name: the folder above was flushed */
} node;

typedef struct {
    char from[PATH_ROOM], to[PATH_ROOM];
} move;

typedef struct {
    fault_kind kind;
    int        error;   /* of the failing call */
    int        fail_at; /* 1 is the first call; 0: never */
    int        calls;
    bool       is_dead;
    size_t     write_limit; /* longest single write; 0: any */
    node       nodes[MAX_NODES];
    size_t     n_nodes;
    int        node_of_fd[MAX_FDS];
    move       moves[8]; /* renames whose folder was not flushed yet */
    size_t     n_moves;
} disk;

static bool fails(disk *d)
{
    d->calls++;
    bool now = d->is_dead || d->calls == d->fail_at;
    if (now && d->kind != FAIL_ONCE) d->is_dead = true;
    if (now) errno = d->is_dead ? EIO : d->error;
    return now;
}

static node *add_node(disk *d, const char *path, bool is_folder)
{
    assert_true(d->n_nodes < MAX_NODES);
    node *n = &d->nodes[d->n_nodes++];
    *n = (node){ .is_live = true, .is_folder = is_folder, .is_flushed = is_folder };
    snprintf(n->path, sizeof n->path, "%s", path);
    return n;
}

static bool is_inside(const char *path, const char *folder, bool directly)
{
    size_t length = strlen(folder);
    if (strncmp(path, folder, length) != 0 || path[length] != '/') return false;
    return !directly || !strchr(path + length + 1, '/');
}

static int disk_create(void *context, const char *path)
{
    disk *d = context;
    if (fails(d)) return -1;
    int fd = tm_checkpoint_system_io.create(NULL, path);
    if (fd >= 0) {
        assert_true(fd < MAX_FDS);
        d->node_of_fd[fd] = (int)(add_node(d, path, false) - d->nodes);
    }
    return fd;
}

static ssize_t disk_write(void *context, int fd, const void *data, size_t bytes)
{
    disk *d = context;
    if (fails(d)) return -1;
    d->nodes[d->node_of_fd[fd]].is_flushed = false;
    return tm_checkpoint_system_io.write(NULL, fd, data,
                                         d->write_limit && bytes > d->write_limit ? d->write_limit : bytes);
}

static int disk_sync(void *context, int fd)
{
    disk *d = context;
    if (fails(d)) return -1;
    d->nodes[d->node_of_fd[fd]].is_flushed = true;
    return tm_checkpoint_system_io.sync(NULL, fd);
}

static int disk_close(void *context, int fd)
{
    int failed = fails(context), cause = errno;
    int result = tm_checkpoint_system_io.close(NULL, fd); /* close gives the descriptor back even when it fails */
    errno = cause;
    return failed ? -1 : result;
}

static int disk_make_folder(void *context, const char *path)
{
    disk *d = context;
    if (fails(d)) return -1;
    add_node(d, path, true);
    return tm_checkpoint_system_io.make_folder(NULL, path);
}

static int disk_sync_folder(void *context, const char *path)
{
    disk *d = context;
    if (fails(d)) return -1;
    for (size_t i = 0; i < d->n_nodes; i++)
        if (is_inside(d->nodes[i].path, path, true)) d->nodes[i].is_linked = true;
    if (d->n_moves > 0 && is_inside(d->moves[0].to, path, true)) d->n_moves = 0; /* all are in one folder */
    return tm_checkpoint_system_io.sync_folder(NULL, path);
}

static void rename_nodes(disk *d, const char *from, const char *to)
{
    for (size_t i = 0; i < d->n_nodes; i++) {
        char was[PATH_ROOM];
        memcpy(was, d->nodes[i].path, sizeof was);
        if (strcmp(was, from) == 0 || is_inside(was, from, false))
            snprintf(d->nodes[i].path, PATH_ROOM, "%.200s%.300s", to, was + strlen(from));
    }
}

static int disk_rename(void *context, const char *from, const char *to)
{
    disk *d = context;
    if (fails(d)) return -1;
    int result = tm_checkpoint_system_io.rename(NULL, from, to);
    if (result != 0) return result;
    rename_nodes(d, from, to);
    move *m = &d->moves[d->n_moves++];
    snprintf(m->from, sizeof m->from, "%s", from);
    snprintf(m->to, sizeof m->to, "%s", to);
    return 0;
}

static void forget(disk *d, const char *path)
{
    for (size_t i = 0; i < d->n_nodes; i++)
        if (strcmp(d->nodes[i].path, path) == 0) d->nodes[i].is_live = false;
}

static int disk_remove_file(void *context, const char *path)
{
    if (fails(context)) return -1;
    forget(context, path);
    return tm_checkpoint_system_io.remove_file(NULL, path);
}

static int disk_remove_folder(void *context, const char *path)
{
    if (fails(context)) return -1;
    forget(context, path);
    return tm_checkpoint_system_io.remove_folder(NULL, path);
}

static int disk_open(void *context, const char *path)
{
    return fails(context) ? -1 : tm_checkpoint_system_io.open(NULL, path);
}

static int64_t disk_size(void *context, int fd)
{
    return fails(context) ? -1 : tm_checkpoint_system_io.size(NULL, fd);
}

static ssize_t disk_read_at(void *context, int fd, void *data, size_t bytes, int64_t offset)
{
    return fails(context) ? -1 : tm_checkpoint_system_io.read_at(NULL, fd, data, bytes, offset);
}

static tm_checkpoint_io table_of(disk *d)
{
    return (tm_checkpoint_io){
        .context = d,
        .create = disk_create,
        .write = disk_write,
        .sync = disk_sync,
        .close = disk_close,
        .make_folder = disk_make_folder,
        .sync_folder = disk_sync_folder,
        .rename = disk_rename,
        .remove_file = disk_remove_file,
        .remove_folder = disk_remove_folder,
        .open = disk_open,
        .size = disk_size,
        .read_at = disk_read_at,
    };
}

/* What a file system may make of it: the last `undone` renames did not happen, names that were not flushed are gone,
 * files that were not flushed are half as long (or, every other time, full of zeros). */
static void cut_power(disk *d, size_t undone, bool zeros)
{
    while (d->n_moves > 0 && undone-- > 0) {
        move *m = &d->moves[--d->n_moves];
        assert_int_equal(rename(m->to, m->from), 0);
        rename_nodes(d, m->to, m->from);
    }
    for (size_t i = 0; i < d->n_nodes; i++) {
        node       *n = &d->nodes[i];
        struct stat info;
        if (!n->is_live) continue;
        if (!n->is_linked && !(n->is_folder && d->n_moves > 0)) {
            clear(n->path);
        } else if (!n->is_flushed && stat(n->path, &info) == 0) {
            assert_int_equal(truncate(n->path, zeros ? 0 : info.st_size / 2), 0);
            if (zeros) assert_int_equal(truncate(n->path, info.st_size), 0);
        }
    }
}

/* Saved before, being saved when the fault strikes, how many are kept. */
typedef struct {
    int64_t before[2];
    size_t  n_before;
    int64_t step;
    int     keep;
} scenario;

static const scenario scenarios[] = {
    { { 1, 2 }, 2, 3, 2 }, /* one is removed at the end */
    { { 1 }, 1, 2, 1 },    /* the only one is replaced by a later one */
    { { 1, 2 }, 2, 2, 0 }, /* the newest is replaced by one of the same step */
    { { 2 }, 1, 2, 1 },    /* so is the only one */
};

/* After the fault: the newest one from before, or the new one, and nothing else; then a healthy save puts all right. */
static void check_what_is_left(fixture *f, const scenario *s, bool saved, const char *what)
{
    tm_checkpoint_report report;
    tm_error             err;
    int64_t              newest = s->before[s->n_before - 1];
    if (load(f, -1, &report, &err) != TM_OK) fail_msg("%s: %s", what, err.text);
    bool is_new = holds(f, s->step, 1);
    if (!is_new && !holds(f, newest, 0)) fail_msg("%s: loaded something else", what);
    if (saved && !is_new) fail_msg("%s: the save succeeded, but the earlier one was loaded", what);
    save(f, s->step, 2, s->keep);
    load_and_expect(f, s->step, 2);
    if (count_entries(f, TM_CHECKPOINT_TEMPORARY) != 0 || count_entries(f, TM_CHECKPOINT_OLD) != 0)
        fail_msg("%s: leftovers after the next save", what);
    if (s->keep > 0 && count_entries(f, TM_CHECKPOINT_FINAL) > (size_t)s->keep) fail_msg("%s: too many kept", what);
}

/* Returns how many calls the save made. */
static int run_with_fault(const scenario *s, fault_kind kind, int error, int fail_at, size_t undone, bool *struck)
{
    fixture          f = new_fixture();
    disk            *d = tm_alloc(sizeof *d);
    tm_checkpoint_io io = table_of(d);
    tm_error         err = { 0 };
    char             what[200], final[32];
    snprintf(what, sizeof what, "scenario %d, fault %d at call %d, %zu renames undone", (int)(s - scenarios), (int)kind,
             fail_at, undone);
    d->kind = kind;
    d->error = error;
    d->fail_at = fail_at;
    for (size_t i = 0; i < s->n_before; i++) save(&f, s->before[i], 0, 0);
    fill(&f, s->step, 1);
    tm_status st = tm_checkpoint_save_with(&io, f.folder, &f.state, f.tensors, N_TENSORS, s->keep, &err);
    *struck = fail_at > 0 && d->calls >= fail_at;
    if (st != TM_OK && st != TM_IO) fail_msg("%s: status %d", what, (int)st);
    if (st != TM_OK && !*struck) fail_msg("%s: %s", what, err.text);
    if (kind == POWER_CUT) cut_power(d, undone, fail_at % 2);
    if (kind == FAIL_ONCE && st != TM_OK && count_entries(&f, TM_CHECKPOINT_TEMPORARY) != 0)
        fail_msg("%s: the temporary folder is still there", what);
    if (kind == FAIL_ONCE && st != TM_OK && error == ENOSPC) assert_says(&err, "free some space");
    snprintf(final, sizeof final, "step-%08d", (int)s->before[s->n_before - 1]);
    if (kind == FAIL_ONCE && st != TM_OK && !exists(&f, final)) fail_msg("%s: the earlier one has lost its name", what);
    int calls = d->calls;
    check_what_is_left(&f, s, st == TM_OK, what);
    free(d);
    clear(f.folder);
    return calls;
}

static void sweep_faults(fault_kind kind, int error, size_t max_undone)
{
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        for (size_t undone = 0; undone <= max_undone; undone++) {
            bool struck = true;
            int  calls = 0, k = 1;
            for (; struck; k++) calls = run_with_fault(&scenarios[i], kind, error, k, undone, &struck);
            assert_true(calls > 20 && k == calls + 2); /* every call of a whole save was the failing one once */
        }
}

static void a_full_disk_at_any_call(void **unused)
{
    (void)unused;
    sweep_faults(FAIL_ONCE, ENOSPC, 0);
}

static void a_crash_at_any_call(void **unused)
{
    (void)unused;
    sweep_faults(CRASH, 0, 0);
}

static void a_power_cut_at_any_call(void **unused)
{
    (void)unused;
    sweep_faults(POWER_CUT, 0, 2);
}

static void short_and_interrupted_writes(void **unused)
{
    (void)unused;
    fixture          f = new_fixture();
    disk            *d = tm_alloc(sizeof *d);
    tm_checkpoint_io io = table_of(d);
    tm_error         err = { 0 };
    d->write_limit = 7;
    d->error = EINTR;
    d->fail_at = 5; /* a write */
    set_tensors(&f);
    fill(&f, 1, 0);
    assert_int_equal(tm_checkpoint_save_with(&io, f.folder, &f.state, f.tensors, N_TENSORS, 0, &err), TM_OK);
    assert_true(d->calls > 60);
    load_and_expect(&f, 1, 0);
    free(d);
    clear(f.folder);
}

static void a_failing_read_at_any_call(void **unused)
{
    (void)unused;
    fixture f = new_fixture();
    save(&f, 1, 0, 0);
    save(&f, 2, 0, 0);
    disk *d = tm_alloc(sizeof *d);
    bool  struck = true;
    int   fell_back = 0;
    for (int k = 1; struck; k++) {
        tm_checkpoint_io     io = table_of(d);
        tm_checkpoint_report report;
        tm_error             err = { 0 };
        *d = (disk){ .kind = FAIL_ONCE, .error = EIO, .fail_at = k };
        memset(f.data, 0xEE, sizeof f.data);
        assert_int_equal(
            tm_checkpoint_load_with(&io, NULL, f.folder, -1, &f.state, f.tensors, N_TENSORS, &report, &err), TM_OK);
        assert_true(holds(&f, report.step, 0));
        struck = d->calls >= k;
        fell_back += report.step == 1;
        if (report.step == 1) assert_non_null(strstr(report.text, "Input/output error"));
    }
    assert_true(fell_back > 10);
    free(d);
    clear(f.folder);
}

static void killed_processes(void **unused)
{
    (void)unused;
    fixture f = new_fixture();
    save(&f, 1, 0, 0);
    int64_t last = 1;
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            for (int64_t step = last + 1;; step++) {
                fill(&f, step, 0);
                if (tm_checkpoint_save(f.folder, &f.state, f.tensors, N_TENSORS, 2, NULL) != TM_OK) _exit(1);
            }
        }
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 + round * 700000 }, NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        tm_checkpoint_report report;
        tm_error             err;
        if (load(&f, -1, &report, &err) != TM_OK) fail_msg("round %d: %s", round, err.text);
        assert_true(report.step >= last && holds(&f, report.step, 0));
        assert_int_equal(report.passed_over, 0); /* a kill never leaves a broken one under a final name */
        last = report.step;
    }
    assert_true(last > 1);
    save(&f, last + 1, 0, 2);
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 0);
    assert_int_equal(count_entries(&f, TM_CHECKPOINT_FINAL), 2);
    clear(f.folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_full_disk_at_any_call),    cmocka_unit_test(a_crash_at_any_call),
    cmocka_unit_test(a_power_cut_at_any_call),    cmocka_unit_test(short_and_interrupted_writes),
    cmocka_unit_test(a_failing_read_at_any_call), cmocka_unit_test(killed_processes),
};

TM_TESTS(tests, NULL, NULL)
