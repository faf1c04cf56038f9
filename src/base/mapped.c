/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mapped.h"

#include "base/arena.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Never freed, only used again: the handler may be looking. `path` is NULL while there is nothing. */
typedef struct entry {
    _Atomic(uintptr_t)      at;
    _Atomic(size_t)         bytes;
    _Atomic(const char *)   path;
    _Atomic(struct entry *) next;
} entry;

static _Atomic(entry *) first;
static pthread_mutex_t  changing = PTHREAD_MUTEX_INITIALIZER;
static bool             handled;

static void say(const char *text, size_t n)
{
    while (n > 0) {
        ssize_t written = write(STDERR_FILENO, text, n);
        if (written <= 0) return;
        text += written;
        n -= (size_t)written;
    }
}

static void say_plain(const char *text)
{
    for (; *text; text++) say((unsigned char)*text < 0x20 || *text == 0x7f ? "?" : text, 1);
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char before[] = "trainmark: invalid configuration or input: '";
    static const char after[] = "' was truncated during the run, or its disk cannot be read; keep data unchanged\n";
    uintptr_t         fault = (uintptr_t)info->si_addr;
    (void)context;
    for (entry *e = atomic_load(&first); e; e = atomic_load(&e->next)) {
        const char *path = atomic_load(&e->path);
        uintptr_t   at = atomic_load(&e->at);
        if (!path || fault < at || fault - at >= atomic_load(&e->bytes)) continue;
        say(before, sizeof before - 1);
        say_plain(path);
        say(after, sizeof after - 1);
        _exit(4);
    }
    signal(number, SIG_DFL); /* not ours: it happens again, and ends the process */
}

void tm_mapped_add(const void *at, size_t bytes, const char *path)
{
    pthread_mutex_lock(&changing);
    if (!handled) {
        struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
        handled = sigaction(SIGBUS, &action, NULL) == 0;
    }
    entry *e = atomic_load(&first);
    while (e && atomic_load(&e->path)) e = atomic_load(&e->next);
    bool is_new = !e;
    if (is_new) e = memset(tm_alloc(sizeof *e), 0, sizeof *e);
    atomic_store(&e->at, (uintptr_t)at);
    atomic_store(&e->bytes, bytes);
    atomic_store(&e->path, path);
    if (is_new) {
        atomic_store(&e->next, atomic_load(&first));
        atomic_store(&first, e);
    }
    pthread_mutex_unlock(&changing);
}

void tm_mapped_remove(const void *at)
{
    pthread_mutex_lock(&changing);
    for (entry *e = atomic_load(&first); e; e = atomic_load(&e->next))
        if (atomic_load(&e->path) && atomic_load(&e->at) == (uintptr_t)at) {
            atomic_store(&e->path, NULL);
            break;
        }
    pthread_mutex_unlock(&changing);
}
