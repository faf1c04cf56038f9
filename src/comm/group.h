/* SPDX-License-Identifier: Apache-2.0 */
/* comm/group.h - a group of ranks from the inside: places in shared memory, calls as others see them, waits.
 *
 * Within a host, each rank has a *post* for each of its groups: what it calls at the moment, a flag that counts its
 * steps, and two halves of memory for data that others cannot reach where they lie. A rank has arrived at step n when
 * its flag says so; the flag also carries a hash of the call, so that ranks which call different things find out before
 * any data moves.
 */
#ifndef TM_COMM_GROUP_H
#define TM_COMM_GROUP_H

#include "comm/comm.h"
#include "comm/engine.h"
#include "comm/hosts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* GROUPS: that a rank is in at the same time; HALF: bytes that go through a post at once; SMALL: bytes of a call that
 * takes one step, every rank adding for itself (a broadcast: twice as many); LOCAL: most ranks of a host; MAIL: bytes
 * of letters to one rank that it has not taken. */
enum {
    TM_COMM_GROUPS = 64,
    TM_COMM_HALF = 32768,
    TM_COMM_MAIL = 65536,
    TM_COMM_SMALL = 4096,
    TM_COMM_WHAT = 56,
    TM_COMM_WINDOWS = 64,
    TM_COMM_LOCAL = 256
};

/* A kind of our own: the group is closed. */
enum { TM_COMM_CLOSE = TM_COMM_RECEIVE + 1 };

/* A call as other ranks see it. */
typedef struct {
    uint64_t hash; /* of kind, operation, format, count, root and name */
    uint64_t count;
    int64_t  step;
    uint64_t send_at, receive_at;         /* offsets in windows */
    int32_t  send_window, receive_window; /* -1: out of reach */
    int32_t  peer;
    uint8_t  kind, op, format, pieces; /* pieces: all-to-all with counts of its own */
    char     what[TM_COMM_WHAT];
    uint64_t direct; /* its rank wants no hosts to share the call out */
} tm_comm_notice;

/* An event count: who publishes something counts the word on and wakes who sleeps until it is another one (event.c). */
typedef struct {
    _Atomic uint32_t word, sleepers;
} tm_comm_event;

/* A flag is step << 32 | hash << 1 | which of the two notices. */
typedef struct {
    _Alignas(64) _Atomic uint64_t flag;
    _Alignas(64) tm_comm_event all_arrived; /* of the group whose first rank this is: at the same step */
    _Alignas(64) _Atomic uint32_t beat;     /* counts on while the rank itself waits for another host */
    _Alignas(64) tm_comm_notice notice[2];
    _Alignas(64) unsigned char half[2][TM_COMM_HALF];
} tm_comm_post;

/* Letters from one rank to another one of its host; taken: out of the ring since the beginning, in bytes; changed: one
 * was put in or taken out. */
typedef struct {
    _Alignas(64) _Atomic uint64_t taken;
    _Alignas(64) tm_comm_event changed;
    _Alignas(64) unsigned char ring[TM_COMM_MAIL];
} tm_comm_mail;

/* What a rank has in the shared memory of its host from the beginning: tm_comm_desk_bytes. The failure is that of the
 * host's first rank: 0 none, 1 being written, 2 there. */
typedef struct {
    _Atomic int  failed, told; /* told: a rank says so on standard error */
    int          status, code; /* code: exit code of the whole job */
    char         text[2048];
    tm_comm_post post[TM_COMM_GROUPS];
    tm_comm_mail mail[]; /* to each rank of the host */
} tm_comm_desk;

size_t tm_comm_desk_bytes(int local_size);

/* A range of this rank's memory, and where it lies in the file that others have mapped. */
typedef struct {
    uintptr_t begin;
    size_t    bytes, at;
} tm_comm_part;

/* What one call of tm_comm_share has made. */
typedef struct {
    void         *where[TM_COMM_LOCAL]; /* the files of the other ranks of this host in this process, by local rank */
    size_t        mapped[TM_COMM_LOCAL];
    tm_comm_part *parts;
    int           n_parts;
    void         *own; /* of tm_comm_alloc: to be given back with it */
    size_t        own_bytes;
    _Atomic bool  open;
} tm_comm_window;

typedef struct tm_comm_outbox  tm_comm_outbox;
typedef struct tm_comm_letters tm_comm_letters;
typedef struct tm_comm_tray    tm_comm_tray;

/* One rank's world. */
typedef struct {
    tm_comm_ports ports;
    int          *local; /* (size) local rank of each rank */
    int           hosts, local_size;
    tm_comm_desk *desk[TM_COMM_LOCAL]; /* by local rank; NULL behind the last */
    double        deadline_s;
    bool          crowded; /* more ranks on this host than processors: waiting gives them away at once */

    pthread_mutex_t  lock; /* of what follows: groups may be called by different threads */
    tm_comm_window  *window[TM_COMM_WINDOWS];
    _Atomic int      n_windows;
    uint64_t         slots; /* a bit for each post in use */
    uint32_t         step[TM_COMM_GROUPS];
    _Atomic bool     failed;
    tm_error         error;
    int              groups;  /* that are open, the world among them */
    tm_comm_outbox  *outbox;  /* post.c: messages that nobody waits for; NULL: there was none */
    tm_comm_letters *letters; /* mail.c: (local_size) to and from each rank of this host */
    tm_comm_tray    *trays;   /* tray.c: of this rank */

    _Atomic uint64_t between; /* bytes that this rank has sent to other hosts */
} tm_comm_world;

/* A message under way. */
typedef struct {
    tm_comm_request request;
    int             peer, label; /* label: of what is waited for by itself; 0: of nothing */
    bool            done;
} tm_comm_message;

struct tm_comm {
    tm_comm_world *world;
    char           name[48];
    int            rank, size;
    int           *member; /* (size) ranks in the world */
    int            slot;
    bool           near; /* all on one host */
    tm_comm_post **post; /* (size) near: of each member */
    uint32_t       step;
    int            half, notice;
    void          *scratch; /* far: for the pieces of others */
    /* far, and some of its ranks share a host: where they are; those of this host, a near group with the same post */
    tm_comm_hosts *hosts;
    tm_comm       *inner;
    bool           direct;  /* hosts share nothing out */
    bool           inside;  /* it is another group's inner one */
    double         grace_s; /* a wait lasts so much longer than the deadline: behind another rank's */
    const char    *way;     /* how the last call was made */
    /* For the call that runs, kept: nothing is allocated from the second one on. */
    size_t          *matrix;  /* (size, size) */
    size_t          *first;   /* (size + 1) */
    const void     **parts;   /* (size) */
    tm_comm_notice  *notices; /* (size) */
    tm_comm_message *message; /* (n_messages) under way */
    int              n_messages, room;
};

enum { TM_COMM_SCRATCH = 4 << 20 };

size_t tm_comm_bytes_of(tm_comm_format format); /* of an element */

/* Records the first failure of the world, or takes over the one that is there; always an error. */
tm_status tm_comm_fail(tm_comm *comm, tm_status status, tm_error *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Has it failed, on this rank or another of this host? */
TM_MUST_USE tm_status tm_comm_failed(tm_comm *comm, tm_error *err);

/* Patience of one wait: first a few turns of spinning, then the processor is given away, then naps. In a crowded world
 * the processor is given away at once, and then the rank sleeps: until the event (NULL: none tells of what is waited
 * for), but not for long. Turns of sleep count as many, so that all that is looked at every few turns is due.
 */
typedef struct {
    int64_t        since_ns, turn;
    tm_comm_event *event;
    uint32_t       seen; /* its word before what is waited for was looked at */
} tm_comm_patience;

/* One turn; false when the deadline has passed since the patience was new (zero, but for the event). */
bool tm_comm_wait_turn(const tm_comm *comm, tm_comm_patience *patience);

/* After what others wait for can be seen. Only in crowded worlds are there sleepers. */
void tm_comm_event_tell(tm_comm_event *event);
/* Until the event is told of after its word was `seen`, or so long. */
void tm_comm_event_sleep(tm_comm_event *event, uint32_t seen, int64_t most_ns);
void tm_comm_pause(int pauses); /* of the processor, each a few nanoseconds */

/* What a rank calls, in words: "all-reduce of 12 float32 'gradients', step 3". */
char *tm_comm_notice_text(const tm_comm_notice *notice, char out[256]);
void  tm_comm_notice_fill(const tm_collective *call, tm_comm_notice *notice);
/* TM_INVALID with the names of both calls. */
tm_status tm_comm_mismatch(tm_comm *comm, const tm_comm_notice *mine, int other, const tm_comm_notice *theirs,
                           tm_error *err);
/* The ranks that are late, and what this rank calls. */
tm_status tm_comm_late(tm_comm *comm, const tm_comm_notice *mine, const int *late, int n, tm_error *err);

/* A slice of `count` elements for each of `parts`, in whole cache lines, so that no two ranks write the same one. */
void tm_comm_slice(size_t count, size_t element, size_t part, size_t parts, size_t *first, size_t *end);

/* The window that holds all of this memory in one part, or -1. Nothing lies everywhere. */
void tm_comm_locate(const tm_comm_world *world, const void *memory, size_t bytes, int32_t *window, uint64_t *at);
/* That place of another rank of this host, in this process. */
void *tm_comm_reach(const tm_comm *comm, int rank, int32_t window, uint64_t at);
/* Bytes that a call of so many elements each reads at call->send and writes at call->receive (not of an all-to-all). */
void tm_comm_extents(const tm_comm *comm, const tm_collective *call, size_t *sends, size_t *receives);

/* The calls of a group on one host, and of one on several (everything but messages to one rank). Receive and send do
 * not overlap, or are in place. */
TM_MUST_USE tm_status tm_comm_run_near(tm_comm *comm, const tm_collective *call, tm_error *err);
TM_MUST_USE tm_status tm_comm_run_far(tm_comm *comm, const tm_collective *call, tm_error *err);
/* Messages to one rank, on the same host or another. */
TM_MUST_USE tm_status tm_comm_run_pair(tm_comm *comm, const tm_collective *call, tm_error *err);

/* A copy of the message goes on its way, with its notice in front; before a world is closed, what is on its way
 * arrives.
 */
TM_MUST_USE tm_status tm_comm_post_message(tm_comm *comm, const tm_comm_notice *notice, const tm_collective *call,
                                           int tag, tm_error *err);
void                  tm_comm_close_outbox(tm_comm_world *world);

/* Messages of this rank on their way to that one whose notice is not: what follows has to stay behind them. */
bool tm_comm_outbox_waits(tm_comm_world *world, int to);

/* Within a host: a letter with the notice, and the data if it is small. False: there is no room as yet. How the
 * data goes, tm_comm_mail_way says; of a posted message TM_COMM_LAID_OUT, where that can be, instead of
 * TM_COMM_CARRIED. *end: tm_comm_mail_taken tells when it was taken. */
typedef enum { TM_COMM_INSIDE, TM_COMM_REACHED, TM_COMM_CARRIED, TM_COMM_LAID_OUT } tm_comm_mail_how;
bool             tm_comm_is_local(const tm_comm_world *world, int rank);
tm_comm_mail_how tm_comm_mail_way(const tm_comm_notice *notice, size_t bytes, bool posted);
bool tm_comm_mail_put(tm_comm_world *world, int to, int tag, const tm_comm_notice *notice, tm_comm_mail_how how,
                      const void *data, size_t bytes, uint64_t *end);
bool tm_comm_mail_taken(const tm_comm_world *world, int to, uint64_t end);
void tm_comm_mail_open(tm_comm_world *world);
void tm_comm_mail_close(tm_comm_world *world);

/* A message to another host is counted. */
void tm_comm_count(tm_comm_world *world, int to, size_t bytes);

void tm_comm_window_close(tm_comm_window *window);

/* A file of a rank that lies in memory only, and what others of its host have to know of it. */
typedef struct {
    int64_t  pid, fd, why; /* why: errno if there is no file; fd: to be closed by who has made it */
    uint64_t device, inode, bytes;
} tm_comm_file;

tm_comm_file tm_comm_file_make(size_t bytes); /* 0: none */
/* Maps another rank's. Returns 0 or the errno. */
int tm_comm_file_map(const tm_comm_file *its, void **where);

/* A letter whose data, a copy, lies in a tray of this rank. False: there is no room as yet, or no memory that the other
 * rank is known to reach. */
bool tm_comm_lay_out(tm_comm_world *world, int to, int tag, const tm_comm_notice *notice, const void *data,
                     size_t bytes);
/* What lies in a tray of another rank; it stays in the list of those that were seen. NULL: errno in *why. */
const void *tm_comm_see_tray(tm_comm_tray **seen, const tm_comm_file *file, int *why);
void        tm_comm_close_seen(tm_comm_tray *seen);
/* After all that lies in them was taken, if the world has not failed. */
void tm_comm_close_trays(tm_comm_world *world);

/* All-to-all with counts: comm->matrix[a * size + b] becomes the elements from a to b. */
TM_MUST_USE tm_status tm_comm_counts(tm_comm *comm, const tm_collective *call, tm_error *err);

/* out[i] = in[0][i] op in[1][i] op ..., in this order; bfloat16 in float32, rounded once. `out` may be one of `in`. */
void tm_comm_reduce(tm_comm_op op, tm_comm_format format, const void *const *in, int n, void *out, size_t count);

/* The same over ranks of which earlier ones were reduced to `before` (NULL: none were). `keeps`: others follow, and
 * `out` stays as it is accumulated. What is accumulated of bfloat16 is float32, of every other format the format
 * itself. */
void tm_comm_reduce_on(tm_comm_op op, tm_comm_format format, const void *before, const void *const *in, int n,
                       bool keeps, void *out, size_t count);

/* The sums of float32 go to each of out[0 .. n_out - 1], past the caches: for more than they hold. False: it is not
 * done, the places do not begin with a cache line or do not end with one, or this processor cannot. */
bool tm_comm_add_past(const float *const *in, int n, float *const *out, int n_out, size_t count);

/* Calls of a library that wait for other ranks without an end, between begin and end: after so many seconds, this
 * process says that `what` (which stays there) took too long, and ends with exit code 1. NULL: there is no thread to
 * watch it. */
typedef struct tm_comm_guard tm_comm_guard;
tm_comm_guard               *tm_comm_guard_begin(int rank, double seconds, const char *what);
void                         tm_comm_guard_end(tm_comm_guard *guard);

/* A started engine becomes a world, which owns it. desk: of the ranks of this host, zeros, by local rank. */
enum { TM_COMM_DEADLINE_S = 300 }; /* unless told */
tm_comm *tm_comm_world_open(const tm_comm_ports *ports, void *const *desk, double deadline_seconds);
/* tm_comm_open_threads with ranks on several hosts that do not reach each other's memory: host[r] of each rank, 0, 1,
 * ... in the order of their first ranks. NULL: all on one. For tests. */
TM_MUST_USE tm_status tm_comm_open_threads_on(int ranks, const int *host, double deadline_seconds, tm_comm **out,
                                              tm_error *err);

#endif
