/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/copy.c - see copy.h.
 *
 * A fetch asks for all of its pages at once before it copies, so that a disk is read in long runs. Pages of a file are
 * let go as soon as they are copied: what was written stays in the system's cache until it is on the disk, but is no
 * memory of this process any more.
 */
#include "device/cpu/copy.h"

#include "graph/tensor.h"
#include "op/attrs.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, PART = 1 << 20 };

/* Only ever called with shared mappings of a file: dropping their pages loses nothing. */
static void advise(const void *data, size_t bytes, int advice)
{
    uintptr_t from = (uintptr_t)data / PAGE * PAGE, to = (uintptr_t)data + bytes;
    madvise((void *)from, to - from, advice); /* whole pages; refused advice costs speed, not bits */
}

static void copy_run(const tm_call *call)
{
    const tm_copy_attr *attr = call->attr;
    const tm_view      *x = &call->in[0], *y = &call->out[0];
    size_t              bytes = tm_tensor_bytes(x->shape, x->dtype);
    bool                disk = attr->space == TM_SPACE_DISK, fetches = call->op == &tm_op_fetch;
    if (disk && fetches) advise(x->data, bytes, MADV_WILLNEED);
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (size_t at = 0; at < bytes; at += PART)
        memcpy((char *)y->data + at, (const char *)x->data + at, bytes - at < PART ? bytes - at : PART);
    if (disk) advise(fetches ? x->data : y->data, bytes, MADV_DONTNEED);
}

static const char *copy_refuse(const tm_call *call)
{
    if (call->in[0].dtype != call->out[0].dtype) return "a copy keeps the format";
    return NULL;
}

const tm_kernel tm_cpu_copies[] = {
    { .op = TM_OP_fetch, .name = "fetch/base", .refuse = copy_refuse, .run = copy_run },
    { .op = TM_OP_store, .name = "store/base", .refuse = copy_refuse, .run = copy_run },
    { .name = NULL },
};
