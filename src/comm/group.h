/* SPDX-License-Identifier: Apache-2.0 */
/* comm/group.h - a group of ranks from the inside: places in shared memory, calls as others see them, waits.
 *
 * Ranks of a host share a memory segment each. It has a *slot* for each group of the rank: the header of its current
 * call, a flag that counts its steps, and two staging buffers for data that others cannot reach where they lie. A rank
 * has arrived at step n when its flag says so; the flag also carries a hash of the call, so that ranks which call
 * different things find out before any data moves. Beside the slots lie rings of messages to the other ranks
 * (comm/p2p/p2p.h).
 */
#ifndef TM_COMM_GROUP_H
#define TM_COMM_GROUP_H

#include "comm/comm.h"
#include "comm/engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* GROUPS: that a rank is in at the same time; BUFFER: bytes of a staging buffer; SMALL: bytes of a call that
 * takes one step, every rank adding for itself (a broadcast: twice as many); LOCAL: most ranks of a host; RING: bytes
 * of messages to one rank that it has not taken. */
enum {
    TM_COMM_GROUPS = 64,
    TM_COMM_BUFFER = 32768,
    TM_COMM_RING = 65536,
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
} tm_comm_header;

/* An event count: who publishes something counts the word on and wakes who sleeps until it is another one (event.c). */
typedef struct {
    _Atomic uint32_t word, sleepers;
} tm_comm_event;

/* A flag is step << 32 | hash << 1 | which of the two headers. */
typedef struct {
    _Alignas(64) _Atomic uint64_t flag;
    _Alignas(64) tm_comm_event all_arrived; /* of the group whose first rank this is: at the same step */
    _Alignas(64) _Atomic uint32_t beat;     /* counts on while the rank itself waits for another host */
    _Alignas(64) tm_comm_header header[2];
    _Alignas(64) unsigned char buffer[2][TM_COMM_BUFFER];
} tm_comm_slot;

/* A ring buffer of packets from one rank to another one of its host; taken: out of the ring since the beginning, in
 * bytes; changed: one was put in or taken out. */
typedef struct {
    _Alignas(64) _Atomic uint64_t taken;
    _Alignas(64) tm_comm_event changed;
    _Alignas(64) unsigned char data[TM_COMM_RING];
} tm_comm_ring;

/* What a rank has in the shared memory of its host from the beginning: tm_comm_segment_bytes. The failure is that of
 * the host's first rank: 0 none, 1 being written, 2 there. */
typedef struct {
    _Atomic int  failed, told; /* told: a rank says so on standard error */
    int          status, code; /* code: exit code of the whole job */
    int64_t      pid;          /* of its rank, which has this memory: so it is a process of this host */
    char         text[2048];
    tm_comm_slot slot[TM_COMM_GROUPS];
    tm_comm_ring ring[]; /* to each rank of the host */
} tm_comm_segment;

size_t tm_comm_segment_bytes(int local_size);

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

typedef struct tm_comm_send_queue tm_comm_send_queue;
typedef struct tm_comm_ring_ends  tm_comm_ring_ends;
typedef struct tm_comm_stage      tm_comm_stage;

/* One rank's world. */
typedef struct {
    tm_comm_ports    ports;
    int             *local; /* (size) local rank of each rank */
    int              hosts, local_size;
    tm_comm_segment *segment[TM_COMM_LOCAL]; /* by local rank; NULL behind the last */
    double           deadline_s;
    bool             oversubscribed; /* more ranks on this host than processors: waiting gives them away at once */

    pthread_mutex_t     lock; /* of what follows: groups may be called by different threads */
    tm_comm_window     *window[TM_COMM_WINDOWS];
    _Atomic int         n_windows;
    uint64_t            used; /* a bit for each slot in use */
    uint32_t            step[TM_COMM_GROUPS];
    _Atomic bool        failed;
    tm_error            error;
    int                 groups;     /* that are open, the world among them */
    tm_comm_send_queue *send_queue; /* buffered sends; NULL: there was none */
    tm_comm_ring_ends  *ring_ends;  /* (local_size) of the rings to and from each rank of this host */
    tm_comm_stage      *stages;     /* of this rank */

    _Atomic uint64_t between;   /* bytes that this rank has sent to other hosts */
    _Atomic int64_t  waited_ns; /* tm_comm_waited_ns */
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
    bool           one_host;
    tm_comm_slot **slots; /* (size) of each member, on one host */
    uint32_t       step;
    int            buffer, header;
    void          *scratch; /* several hosts: for the pieces of others */
    /* Several hosts, and some of its ranks share one: where they are; those of this host, a group with the same slot.
     */
    struct tm_comm_hosts *hosts;
    tm_comm              *inner;
    bool                  direct;  /* hosts share nothing out */
    bool                  inside;  /* it is another group's inner one */
    double                grace_s; /* a wait lasts so much longer than the deadline: behind another rank's */
    const char           *way;     /* how the last call was made */
    /* For the call that runs, kept: nothing is allocated from the second one on. */
    size_t          *matrix;  /* (size, size) */
    size_t          *first;   /* (size + 1) */
    const void     **parts;   /* (size) */
    tm_comm_header  *headers; /* (size) */
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

/* Backoff of one wait: first a few turns of spinning, then the processor is given away, then naps. In a oversubscribed
 * world the processor is given away at once, and then the rank sleeps: until the event (NULL: none tells of what is
 * waited for), but not for long. Turns of sleep count as many, so that all that is looked at every few turns is due.
 */
typedef struct {
    int64_t        since_ns, turn;
    int64_t        counted_ns; /* since when it is counted as waited; 0: not yet, -1: no more */
    tm_comm_event *event;
    uint32_t       seen; /* its word before what is waited for was looked at */
} tm_comm_backoff;

/* One turn; false when the deadline has passed since the backoff began (zero, but for the event). */
bool tm_comm_wait_turn(const tm_comm *comm, tm_comm_backoff *backoff);

/* What is waited for has come: the wait is counted (tm_comm_waited_ns). Later turns of the backoff are not. */
void tm_comm_wait_over(const tm_comm *comm, tm_comm_backoff *backoff);

/* After what others wait for can be seen. Only in oversubscribed worlds are there sleepers. */
void tm_comm_event_signal(tm_comm_event *event);
/* Until the event is told of after its word was `seen`, or so long. */
void tm_comm_event_sleep(tm_comm_event *event, uint32_t seen, int64_t most_ns);
void tm_comm_pause(int pauses); /* of the processor, each a few nanoseconds */

/* What a rank calls, in words: "all-reduce of 12 float32 'gradients', step 3". */
char *tm_comm_header_text(const tm_comm_header *header, char out[256]);
void  tm_comm_header_fill(const tm_collective *call, tm_comm_header *header);
/* TM_INVALID with the names of both calls. */
tm_status tm_comm_mismatch(tm_comm *comm, const tm_comm_header *mine, int other, const tm_comm_header *theirs,
                           tm_error *err);
/* The ranks that are late, and what this rank calls. */
tm_status tm_comm_late(tm_comm *comm, const tm_comm_header *mine, const int *late, int n, tm_error *err);

/* The window that holds all of this memory in one part, or -1. Nothing lies everywhere. */
void tm_comm_locate(const tm_comm_world *world, const void *memory, size_t bytes, int32_t *window, uint64_t *at);
/* That place of another rank of this host, in this process. */
void *tm_comm_reach(const tm_comm *comm, int rank, int32_t window, uint64_t at);
/* Bytes that a call of so many elements each reads at call->send and writes at call->receive (not of an all-to-all). */
void tm_comm_extents(const tm_comm *comm, const tm_collective *call, size_t *sends, size_t *receives);

/* A message to another host is counted. */
void tm_comm_count(tm_comm_world *world, int to, size_t bytes);

void tm_comm_window_close(tm_comm_window *window);

/* A file of a rank that lies in memory only, and what others of its host have to know of it. */
typedef struct {
    int64_t  pid, fd, why; /* why: errno if there is no file; fd: to be closed by who has made it */
    uint64_t device, inode, bytes;
} tm_comm_file;

tm_comm_file tm_comm_file_make(size_t bytes); /* 0: none */
/* Maps that of a rank whose process this is. It has to be a file as tm_comm_file_make makes them, of the same user,
 * that cannot become smaller. Returns 0 or the errno. */
int tm_comm_file_map(const tm_comm_file *its, int64_t pid, void **where);

/* Calls of a library that wait for other ranks without an end, between begin and end: after so many seconds, this
 * process says that `what` (which stays there) took too long, and ends with exit code 1. NULL: there is no thread to
 * watch it. */
typedef struct tm_comm_watchdog tm_comm_watchdog;
tm_comm_watchdog               *tm_comm_watchdog_begin(int rank, double seconds, const char *what);
void                            tm_comm_watchdog_end(tm_comm_watchdog *guard);

/* A started engine becomes a world, which owns it. segment: of the ranks of this host, zeros, by local rank. */
enum { TM_COMM_DEADLINE_S = 300 }; /* unless told */
tm_comm *tm_comm_world_open(const tm_comm_ports *ports, void *const *segment, double deadline_seconds);
/* tm_comm_open_threads with ranks on several hosts that do not reach each other's memory: host[r] of each rank, 0, 1,
 * ... in the order of their first ranks. NULL: all on one. For tests. */
TM_MUST_USE tm_status tm_comm_open_threads_on(int ranks, const int *host, double deadline_seconds, tm_comm **out,
                                              tm_error *err);

#endif
