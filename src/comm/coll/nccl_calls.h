/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/nccl_calls.h - the calls of NCCL and RCCL, which have the same names, and numbers and structs of their
 * header; private to comm/coll. `make judge-headers` compares them with nccl.h and rccl.h. */
#ifndef TM_COMM_NCCL_CALLS_H
#define TM_COMM_NCCL_CALLS_H

#include <stddef.h>

/* X(name, value, the library's expression) */
#define NCCL_NUMBERS(X)                                                                                                \
    X(NCCL_ID_BYTES, 128, "sizeof(ncclUniqueId)")                                                                      \
    X(NCCL_SUCCESS, 0, "ncclSuccess")                                                                                  \
    X(NCCL_IN_PROGRESS, 7, "ncclInProgress")                                                                           \
    X(NCCL_UINT8, 1, "ncclUint8")                                                                                      \
    X(NCCL_INT64, 4, "ncclInt64")                                                                                      \
    X(NCCL_FLOAT32, 7, "ncclFloat32")                                                                                  \
    X(NCCL_FLOAT64, 8, "ncclFloat64")                                                                                  \
    X(NCCL_BFLOAT16, 9, "ncclBfloat16")                                                                                \
    X(NCCL_SUM, 0, "ncclSum")                                                                                          \
    X(NCCL_MAX, 2, "ncclMax")                                                                                          \
    X(NCCL_MIN, 3, "ncclMin")                                                                                          \
    X(NCCL_HAS_BFLOAT16, 21000, "NCCL_VERSION(2, 10, 0)")                                                              \
    X(NCCL_HAS_CONFIG, 21400, "NCCL_VERSION(2, 14, 0)")                                                                \
    X(NCCL_HAS_BLOCKS, 21700, "NCCL_VERSION(2, 17, 0)")                                                                \
    X(NCCL_UNSET, -2147483647 - 1, "NCCL_CONFIG_UNDEF_INT")

enum {
#define X(name, value, maker) name = (value),
    NCCL_NUMBERS(X)
#undef X
};

/* The first member of a configuration behind its size. */
#define NCCL_MAGIC 0xcafebeefU

typedef struct {
    char bytes[NCCL_ID_BYTES];
} nccl_unique_id;

/* The first of its kind (2.14): later ones have more behind it, and take this as what it says it is. */
typedef struct {
    size_t   size;
    unsigned magic, version;
    int      blocking, unset;
} nccl_config;

/* That of 2.17, which bounds the blocks of a call. */
typedef struct {
    size_t      size;
    unsigned    magic, version;
    int         blocking, cluster, least_blocks, most_blocks;
    const char *net;
} nccl_blocks_config;

/* X(member, result, arguments, later): the name is "nccl" and the member; later: older versions do not have it. */
#define NCCL_CALLS(X)                                                                                                  \
    X(GetVersion, int, (int *version), false)                                                                          \
    X(GetUniqueId, int, (nccl_unique_id * id), false)                                                                  \
    X(GetErrorString, const char *, (int code), false)                                                                 \
    X(GetLastError, const char *, (void *comm), true)                                                                  \
    X(CommInitRank, int, (void **comm, int size, nccl_unique_id id, int rank), false)                                  \
    X(CommInitRankConfig, int, (void **comm, int size, nccl_unique_id id, int rank, void *config), true)               \
    X(CommFinalize, int, (void *comm), true)                                                                           \
    X(CommDestroy, int, (void *comm), false)                                                                           \
    X(CommAbort, int, (void *comm), false)                                                                             \
    X(CommGetAsyncError, int, (void *comm, int *code), false)                                                          \
    X(AllReduce, int, (const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream),     \
      false)                                                                                                           \
    X(ReduceScatter, int, (const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream), \
      false)                                                                                                           \
    X(AllGather, int, (const void *send, void *receive, size_t count, int type, void *comm, void *stream), false)      \
    X(Broadcast, int, (const void *send, void *receive, size_t count, int type, int root, void *comm, void *stream),   \
      false)                                                                                                           \
    X(Send, int, (const void *send, size_t count, int type, int peer, void *comm, void *stream), false)                \
    X(Recv, int, (void *receive, size_t count, int type, int peer, void *comm, void *stream), false)                   \
    X(GroupStart, int, (void), false)                                                                                  \
    X(GroupEnd, int, (void), false)

typedef struct {
#define X(member, result, arguments, later) result(*member) arguments;
    NCCL_CALLS(X)
#undef X
} nccl_calls;

#endif
