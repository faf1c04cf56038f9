/* SPDX-License-Identifier: Apache-2.0 */
/* base/status.h - how things go wrong.
 *
 * A bug (broken precondition) is a TM_ASSERT: it prints place and expression and aborts, in release builds too.
 * An event (file, memory, bad input) is a tm_status; its story is in the caller's tm_error, where the first failure
 * stays. A number gone wrong (NaN loss) is neither: it is a field of a result. Only cli prints an error, only main
 * exits.
 */
#ifndef TM_BASE_STATUS_H
#define TM_BASE_STATUS_H

#include <stddef.h>

/* X(id, exit code, text): exit codes are the project's table (0 done, 1 internal, 2 usage, 3 invalid numbers
 * or numbers that allow no verdict, 4 invalid configuration or input, 5 negative verdict, 130 interrupted). */
#define TM_STATUS_LIST(X)                                                                                              \
    X(OK, 0, "ok")                                                                                                     \
    X(USAGE, 2, "wrong usage")                                                                                         \
    X(INVALID, 4, "invalid configuration or input")                                                                    \
    X(FORMAT, 4, "malformed file")                                                                                     \
    X(UNSUPPORTED, 4, "unsupported combination")                                                                       \
    X(NOMEM, 4, "does not fit in memory")                                                                              \
    X(IO, 1, "input/output error")                                                                                     \
    X(DEVICE, 1, "device failure")                                                                                     \
    X(INTERNAL, 1, "internal error")                                                                                   \
    X(NUMBERS, 3, "the numbers of this run are invalid")                                                               \
    X(UNDECIDED, 3, "no verdict")                                                                                      \
    X(NEGATIVE, 5, "negative verdict")                                                                                 \
    X(INTERRUPTED, 130, "interrupted")

typedef enum {
#define X(id, code, text) TM_##id,
    TM_STATUS_LIST(X)
#undef X
        TM_STATUS_COUNT
} tm_status;

/* The first failure and where it was noticed. Zero-initialise: tm_error err = {0}. */
typedef struct {
    tm_status   status;
    const char *file; /* source file of the tm_fail */
    int         line;
    int         n;          /* failures: 1, or more from checks that went on (tm_also) */
    char        text[4096]; /* lower case, no full stop: what failed, value found, value wanted, way out */
} tm_error;

const char *tm_status_text(tm_status status);
int         tm_status_exit_code(tm_status status);

/* Records the failure in *err unless one is there already; returns `status`. err may be NULL. */
tm_status tm_fail_at(tm_error *err, tm_status status, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
#define tm_fail(err, status, ...) tm_fail_at((err), (status), __FILE__, __LINE__, __VA_ARGS__)

/* Records a failure beside those that are there, for checks that go on because what follows is no consequence. Then
 * the text is "N problems" and a line for each; the same one is told once, and what has no room is counted. Returns
 * `status`; that of *err stays the first one's. */
tm_status tm_also_at(tm_error *err, tm_status status, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
#define tm_also(err, status, ...) tm_also_at((err), (status), __FILE__, __LINE__, __VA_ARGS__)

/* The same for what a call has recorded in *own, where `status` says that it failed; *own is then empty again. */
tm_status tm_also_of(tm_error *err, tm_status status, tm_error *own);

/* The line of a failure, behind *at, which is NULL for the first; NULL: there is none. Sets its length. */
const char *tm_error_next(const tm_error *err, const char *at, size_t *length);

/* Passes a failure up when there is nothing to undo. */
#define TM_TRY(call)                                                                                                   \
    do {                                                                                                               \
        tm_status tm_try_status_ = (call);                                                                             \
        if (tm_try_status_ != TM_OK) return tm_try_status_;                                                            \
    } while (0)

#define TM_MUST_USE __attribute__((warn_unused_result))

_Noreturn void tm_assert_failed(const char *expression, const char *file, int line);
#define TM_ASSERT(expression) ((expression) ? (void)0 : tm_assert_failed(#expression, __FILE__, __LINE__))

#endif
