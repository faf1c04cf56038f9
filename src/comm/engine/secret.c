/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/secret.c - where the secret of a job comes from: the environment, a file that is named there, or, among
 * ranks of one user on one host, a file that the first rank makes. */
#include "comm/engine/proof.h"

#include "base/again.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Text of any length becomes a key. */
static void key_of(const void *text, size_t bytes, tm_comm_key *out)
{
    crypto_auth_hmacsha256_state state;
    static const unsigned char   purpose[] = "trainmark secret of a job";
    crypto_auth_hmacsha256_init(&state, text, bytes);
    crypto_auth_hmacsha256_update(&state, purpose, sizeof purpose);
    crypto_auth_hmacsha256_final(&state, out->byte);
    sodium_memzero(&state, sizeof state);
}

/* Is an open file or folder this user's alone? */
static bool is_own(int fd, mode_t kind)
{
    struct stat facts;
    return fstat(fd, &facts) == 0 && (facts.st_mode & S_IFMT) == kind && facts.st_uid == geteuid() &&
           (facts.st_mode & 077) == 0;
}

/* At most `most` bytes; -1 and errno, EACCES for what is not this user's alone. */
static ssize_t read_own(int folder, const char *path, void *out, size_t most)
{
    int     fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t got = 0;
    if (fd < 0) return -1;
    bool own = is_own(fd, S_IFREG);
    for (size_t at = 0; own && at < most; at += (size_t)got) {
        got = read(fd, (char *)out + at, most - at);
        if (got < 0 && errno == EINTR) {
            got = 0;
            continue;
        }
        if (got <= 0) {
            got = got < 0 ? got : (ssize_t)at;
            break;
        }
        if (at + (size_t)got == most) {
            got = (ssize_t)most;
            break;
        }
    }
    int why = own ? errno : EACCES;
    close(fd);
    errno = why;
    return own ? got : -1;
}

/* --- given ----------------------------------------------------------------------------------- */

static tm_status read_given(const char *path, tm_comm_key *out, tm_error *err)
{
    char    text[TM_COMM_SECRET_MOST + 1];
    ssize_t n = read_own(AT_FDCWD, path, text, sizeof text);
    if (n < 0 && errno == EACCES)
        return tm_fail(err, TM_INVALID,
                       "TRAINMARK_SECRET_FILE '%.1000s' has to be a file of this user that nobody else may read; "
                       "`chmod 600 %.1000s`",
                       path, path);
    if (n < 0)
        return tm_fail(err, TM_INVALID, "TRAINMARK_SECRET_FILE '%.1000s' cannot be read: %s", path,
                       errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
    tm_status st = TM_OK;
    if (n < TM_COMM_SECRET_LEAST || n > TM_COMM_SECRET_MOST)
        st =
            tm_fail(err, TM_INVALID,
                    "TRAINMARK_SECRET_FILE '%.1000s' has to have %d to %d characters; `openssl rand -hex 16` makes one",
                    path, TM_COMM_SECRET_LEAST, TM_COMM_SECRET_MOST);
    else
        key_of(text, (size_t)n, out);
    sodium_memzero(text, sizeof text);
    return st;
}

tm_status tm_comm_secret_given(tm_comm_key *out, bool *given, tm_error *err)
{
    const char *text = getenv("TRAINMARK_SECRET"), *path = getenv("TRAINMARK_SECRET_FILE");
    *given = (text && *text) || (path && *path);
    if (!*given) return TM_OK;
    if (text && *text && path && *path)
        return tm_fail(err, TM_INVALID,
                       "TRAINMARK_SECRET and TRAINMARK_SECRET_FILE are both set; leave one of them out");
    if (path && *path) return read_given(path, out, err);
    size_t n = strlen(text);
    if (n < TM_COMM_SECRET_LEAST || n > TM_COMM_SECRET_MOST)
        return tm_fail(err, TM_INVALID,
                       "TRAINMARK_SECRET has %zu characters instead of %d to %d; `openssl rand -hex 16` makes one", n,
                       TM_COMM_SECRET_LEAST, TM_COMM_SECRET_MOST);
    key_of(text, n, out);
    return TM_OK;
}

/* --- shared on one host ---------------------------------------------------------------------- */

static const char *const places[] = { "/dev/shm", "/tmp" };
enum { PLACES = sizeof places / sizeof places[0] };

/* This user's own folder there; -1 and errno: none, or somebody else has put one. */
static int open_folder(const char *place, bool makes, char *path, size_t room)
{
    snprintf(path, room, "%s/trainmark-secrets-%u", place, (unsigned)geteuid());
    if (makes && mkdir(path, 0700) != 0 && errno != EEXIST) return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || is_own(fd, S_IFDIR)) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* Complete from the moment on that it has its name. False with errno. */
static bool put_file(int folder, const char *name, const tm_comm_key *secret)
{
    char draft[PATH_MAX];
    int  fd = tm_file_open_random(folder, name, 0600, draft, sizeof draft);
    if (fd < 0) return false;
    bool well = write(fd, secret->byte, sizeof secret->byte) == (ssize_t)sizeof secret->byte;
    if (close(fd) != 0) well = false;
    if (well && tm_again_rename(folder, draft, name) == 0) return true;
    int why = errno;
    unlinkat(folder, draft, 0);
    errno = why;
    return false;
}

tm_status tm_comm_secret_make(uint64_t name, tm_comm_key *out, char path[PATH_MAX], tm_error *err)
{
    char text[32], folder[64] = "";
    int  why = 0;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)name);
    randombytes_buf(out->byte, sizeof out->byte);
    for (int i = 0; i < PLACES; i++) {
        int  fd = open_folder(places[i], true, folder, sizeof folder);
        bool well = fd >= 0 && put_file(fd, text, out);
        why = errno;
        if (fd >= 0) close(fd);
        snprintf(path, PATH_MAX, "%s/%s", folder, text);
        if (well) return TM_OK;
    }
    return tm_fail(err, TM_IO,
                   "the first rank cannot keep a secret for the others in '%s': %s; give one in TRAINMARK_SECRET",
                   folder, why == EPERM ? "it is not this user's own" : strerror(why));
}

tm_status tm_comm_secret_find(uint64_t name, tm_comm_key *out, tm_error *err)
{
    char text[32], folder[64];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)name);
    for (int i = 0; i < PLACES; i++) {
        int     fd = open_folder(places[i], false, folder, sizeof folder);
        ssize_t got = fd < 0 ? -1 : read_own(fd, text, out->byte, sizeof out->byte);
        if (fd >= 0) close(fd);
        if (got == (ssize_t)sizeof out->byte) return TM_OK;
    }
    return tm_fail(
        err, TM_INVALID,
        "this rank finds no secret of its first rank in /dev/shm or /tmp: that is another user, container or "
        "program; `export TRAINMARK_SECRET=$(openssl rand -hex 16)` before all ranks, the same for each");
}
