/* SPDX-License-Identifier: Apache-2.0 */
/* Collective calls on GPUs, over libraries that stand in for CUDA's driver and NCCL (tests/standins): every kind of
 * call against plain loops, waits that are needed, and what happens when a call fails, hangs or finds other ranks than
 * it should. Ranks are threads here; as processes: tests/cli/test_gpu_ranks.sh.
 */
#include "support/test.h"
#include "base/file.h"
#include "comm/coll/nccl.h"
#include "gpu/defaults.h"

#include "support/folder.h"
#include "world.h"

#include <limits.h>

enum { N = 40000, MOST = 4, ROOM = N * 8 * MOST };

/* A rank's GPU, and what lies on it. */
typedef struct {
    tm_comm *world;
    tm_nccl *nccl;
    tm_gpu  *gpu;
    int      rank, size;
    char    *send, *receive, *host;
} card;

static void open_card(card *c, tm_comm *world)
{
    void *memory[2];
    *c = (card){ .world = world, .rank = tm_comm_rank(world), .size = tm_comm_size(world), .host = malloc(ROOM) };
    CHECK(c->host);
    CHECK_OK(tm_nccl_open(world, NULL, 20, &c->nccl, err));
    c->gpu = tm_nccl_gpu(c->nccl);
    for (int i = 0; i < 2; i++) CHECK_OK(tm_gpu_alloc(c->gpu, ROOM, &memory[i], err));
    c->send = memory[0];
    c->receive = memory[1];
}

static void close_card(card *c)
{
    tm_nccl_close(c->nccl);
    free(c->host);
}

/* --- calls --------------------------------------------------------------------------------------- */

static const size_t bytes_of[] = {
    [TM_COMM_BYTES] = 1, [TM_COMM_INT64] = 8, [TM_COMM_FLOAT64] = 8, [TM_COMM_FLOAT32] = 4, [TM_COMM_BFLOAT16] = 2
};

/* Whole numbers that every format holds, and their sums. */
static int number(int rank, size_t i)
{
    return (int)((i * 7 + (size_t)rank * 3) % 23) + (rank == 1);
}

static void put(tm_comm_format format, char *out, size_t i, int value)
{
    float    f = (float)value;
    double   d = value;
    int64_t  n = value;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    uint16_t    half = (uint16_t)(word >> 16);
    const void *from[] = { [TM_COMM_BYTES] = &n,
                           [TM_COMM_INT64] = &n,
                           [TM_COMM_FLOAT64] = &d,
                           [TM_COMM_FLOAT32] = &f,
                           [TM_COMM_BFLOAT16] = &half };
    memcpy(out + i * bytes_of[format], from[format], bytes_of[format]);
}

/* a sends b as many elements of an all-to-all in pieces, which is none for some. */
static size_t piece(int a, int b)
{
    return (size_t)((a * 2 + b) % 3) * 777;
}

/* What the plain loop has at element i of this rank's result. */
static int wanted_at(const card *c, const tm_collective *call, size_t i)
{
    size_t rank = (size_t)c->rank;
    int    all, from = 0;
    switch (call->kind) {
    case TM_COMM_ALL_GATHER:
        return number((int)(i / call->count), i % call->count);
    case TM_COMM_ALL_TO_ALL:
        if (!call->send_counts) return number((int)(i / call->count), i % call->count + rank * call->count);
        while (i >= call->receive_counts[from]) i -= call->receive_counts[from++];
        for (int b = 0; b < c->rank; b++) i += piece(from, b);
        return number(from, i);
    case TM_COMM_ALL_REDUCE:
    case TM_COMM_REDUCE_SCATTER:
        if (call->kind == TM_COMM_REDUCE_SCATTER) i += rank * call->count;
        all = number(0, i);
        for (int r = 1; r < c->size; r++) {
            int x = number(r, i);
            all = call->op == TM_COMM_SUM ? all + x : (call->op == TM_COMM_MAX) == (x > all) ? x : all;
        }
        return all;
    default:
        return number(call->peer, i);
    }
}

/* Runs it on what `send` elements hold, and judges `receive` elements. */
static void run_call(card *c, tm_collective call, size_t send, size_t receive)
{
    size_t e = bytes_of[call.format];
    char   want[8] = { 0 };
    for (size_t i = 0; i < send; i++) put(call.format, c->host, i, number(c->rank, i));
    CHECK_OK(tm_gpu_write(c->gpu, c->send, c->host, send * e, err));
    call.send = c->send, call.receive = c->receive, call.what = "test", call.step = 7;
    CHECK_OK(tm_nccl_run(c->nccl, &call, err));
    CHECK_OK(tm_nccl_wait(c->nccl, err));
    memset(c->host, 0x77, receive * e);
    CHECK_OK(tm_gpu_read(c->gpu, c->host, c->receive, receive * e, err));
    for (size_t i = 0; i < receive; i++) {
        put(call.format, want, 0, wanted_at(c, &call, i));
        CHECK(memcmp(c->host + i * e, want, e) == 0);
    }
}

static void every_call(card *c, tm_comm_format format)
{
    size_t p = (size_t)c->size, out[MOST], in[MOST], send = 0, receive = 0;
    for (int op = TM_COMM_SUM; op <= TM_COMM_MIN && format != TM_COMM_BYTES; op++)
        run_call(c, (tm_collective){ .kind = TM_COMM_ALL_REDUCE, .op = (tm_comm_op)op, .format = format, .count = N },
                 N, N);
    if (format != TM_COMM_BYTES)
        run_call(c, (tm_collective){ .kind = TM_COMM_REDUCE_SCATTER, .format = format, .count = N / p }, N / p * p,
                 N / p);
    run_call(c, (tm_collective){ .kind = TM_COMM_ALL_GATHER, .format = format, .count = N }, N, N * p);
    for (int root = 0; root < c->size; root++)
        run_call(c, (tm_collective){ .kind = TM_COMM_BROADCAST, .format = format, .count = N, .peer = root }, N, N);
    run_call(c, (tm_collective){ .kind = TM_COMM_ALL_TO_ALL, .format = format, .count = N }, N * p, N * p);
    for (int r = 0; r < c->size; r++) {
        send += out[r] = piece(c->rank, r);
        receive += in[r] = piece(r, c->rank);
    }
    run_call(c,
             (tm_collective){ .kind = TM_COMM_ALL_TO_ALL, .format = format, .send_counts = out, .receive_counts = in },
             send, receive);
    if (c->rank < 2 && c->size > 1)
        run_call(c,
                 (tm_collective){
                     .kind = c->rank ? TM_COMM_SEND : TM_COMM_RECEIVE, .format = format, .count = N, .peer = !c->rank },
                 N, c->rank ? 0 : N);
}

static void all_calls_of(tm_comm *world, void *context)
{
    card c;
    (void)context;
    open_card(&c, world);
    for (int format = TM_COMM_BYTES; format <= TM_COMM_BFLOAT16; format++) every_call(&c, (tm_comm_format)format);
    close_card(&c);
}

static void calls(void **state)
{
    (void)state;
    run_world(1, NULL, 20, false, all_calls_of, NULL);
    run_world(2, NULL, 20, false, all_calls_of, NULL);
    run_world(4, NULL, 20, false, all_calls_of, NULL);
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    run_world(2, NULL, 20, false, all_calls_of, NULL);
    unsetenv("NCCL_COMM_BLOCKING");
}

/* --- failures ------------------------------------------------------------------------------------ */

static struct {
    const char *words[2]; /* of rank 0, of rank 1 */
    tm_status   status;
} wanted;

static void failing(tm_comm *world, void *context)
{
    tm_nccl      *n;
    void         *memory;
    tm_error      first = { 0 }, again = { 0 };
    int           rank = tm_comm_rank(world);
    tm_collective call = {
        .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_FLOAT32, .count = 10, .what = "sums", .step = 2
    };
    (void)context;
    tm_status st = tm_nccl_open(world, NULL, 0.5, &n, &first);
    for (int i = 0; i < 5 && st == TM_OK; i++) {
        CHECK(tm_gpu_alloc(tm_nccl_gpu(n), 40, &memory, &first) == TM_OK);
        call.send = call.receive = memory;
        st = tm_nccl_run(n, &call, &first);
        if (st == TM_OK) st = tm_nccl_wait(n, &first);
    }
    if (st != wanted.status || (wanted.words[rank] && !strstr(first.text, wanted.words[rank]))) {
        fprintf(stderr, "rank %d: status %d: %s; wanted: %d: %s\n", rank, (int)st, first.text, (int)wanted.status,
                wanted.words[rank]);
        abort();
    }
    if (!n) return;
    /* It stays failed, with the same words. */
    CHECK(tm_nccl_run(n, &call, &again) == st && strcmp(again.text, first.text) == 0);
    again = (tm_error){ 0 };
    CHECK(tm_nccl_wait(n, &again) == st && strcmp(again.text, first.text) == 0);
    tm_nccl_close(n);
}

static void failure(const char *variable, const char *value, tm_status status, const char *of_0, const char *of_1)
{
    const char *before = getenv(variable);
    char        kept[PATH_MAX] = "";
    if (before) snprintf(kept, sizeof kept, "%s", before);
    setenv(variable, value, 1);
    wanted.words[0] = of_0;
    wanted.words[1] = of_1;
    wanted.status = status;
    run_world(2, NULL, 5, false, failing, NULL);
    before ? setenv(variable, kept, 1) : unsetenv(variable);
}

static void failures(void **state)
{
    (void)state;
    failure("STANDIN_RETURN", "1@3=5", TM_DEVICE,
            "of group world disagree: rank 1 has closed it, rank 0 calls barrier 'roll call after a GPU's deadline'",
            "rank 1: ncclAllReduce (all-reduce (sum) of 10 float32 'sums', step 2): invalid usage (5); the stand-in "
            "was told to");
    failure("STANDIN_ASYNC", "0@2=6", TM_DEVICE,
            "rank 0: what was under way (all-reduce (sum) of 10 float32 'sums', step 2)",
            "step 2 on GPU 1 (0000:11:00.0); ranks of group world disagree: rank 0 has closed it");
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    failure("STANDIN_ASYNC", "0@3=6", TM_DEVICE, "rank 0: ncclAllReduce (all-reduce (sum) of 10",
            "rank 0 has closed it");
    unsetenv("NCCL_COMM_BLOCKING");
    failure("STANDIN_HANG", "1@4", TM_DEVICE,
            "step 2 on GPU 0 (0000:10:00.0); all ranks are there: look at what links the GPUs (NCCL_DEBUG=INFO)",
            "rank 1 has waited 0.5 s for the end of all-reduce (sum) of 10 float32 'sums', step 2 on GPU 1");
    failure("STANDIN_GPU_FAIL", "cuStreamQuery@9=700", TM_DEVICE, NULL, NULL);
}

static void refusals(void **state)
{
    char path[PATH_MAX];
    (void)state;
    failure("STANDIN_GPUS", "1", TM_INVALID, "ranks 0 and 1 on ",
            "would use the same GPU (0000:10:00.0): 2 ranks there");
    failure("STANDIN_GPUS", "0", TM_INVALID, "rank 0 on ", "shows no GPU to this process");
    snprintf(path, sizeof path, "%.*s-ancient.so", (int)(strlen(getenv("TRAINMARK_NCCL")) - 3),
             getenv("TRAINMARK_NCCL"));
    failure("TRAINMARK_NCCL", path, TM_UNSUPPORTED, "(version 2.4.2) has no ncclSend", "rank 0 on ");
    failure("TRAINMARK_NCCL", "/nowhere/libnccl.so.2", TM_INVALID, "NCCL cannot be loaded", "/nowhere/libnccl.so.2");
    failure("TRAINMARK_GPU_RUNTIME", "/nowhere/libcuda.so.1", TM_INVALID, "no runtime of a GPU",
            "install NVIDIA's driver");
}

/* An old one, without configurations and bfloat16; that of the other maker. */
static void other_library_of(tm_comm *world, void *context)
{
    const bool *old = context;
    card        c;
    char        want[PATH_MAX + 200];
    tm_error    failure = { 0 };
    open_card(&c, world);
    const tm_nccl_facts *f = tm_nccl_facts_of(c.nccl);
    CHECK(strcmp(f->name, *old ? "nccl" : "rccl") == 0 && f->blocking);
    CHECK(strcmp(f->version, *old ? "2.7.8" : "2.28.9") == 0);
    CHECK(strcmp(tm_gpu_facts_of(c.gpu)->runtime, *old ? "CUDA" : "HIP") == 0);
    every_call(&c, TM_COMM_FLOAT32);
    tm_collective call = collective_of(TM_COMM_ALL_REDUCE, TM_COMM_BFLOAT16, c.send, c.receive, 3, NULL, -1);
    tm_status     st = tm_nccl_run(c.nccl, &call, &failure);
    snprintf(want, sizeof want, "'%s' is version 2.7.8: bfloat16 came with 2.10; use float32, or a later one",
             f->library);
    CHECK(*old ? st == TM_UNSUPPORTED && strcmp(failure.text, want) == 0 : st == TM_OK);
    if (!*old) CHECK_OK(tm_nccl_wait(c.nccl, err));
    close_card(&c);
}

static void other_libraries(void **state)
{
    static const char place[] = "lib/python3.9/site-packages/nvidia/nccl/lib";
    char              nccl[PATH_MAX], gpu[PATH_MAX], other[PATH_MAX], folder[PATH_MAX];
    (void)state;
    snprintf(nccl, sizeof nccl, "%s", getenv("TRAINMARK_NCCL"));
    snprintf(gpu, sizeof gpu, "%s", getenv("TRAINMARK_GPU_RUNTIME"));
    snprintf(other, sizeof other, "%.*s-old.so", (int)strlen(nccl) - 3, nccl);
    setenv("TRAINMARK_NCCL", other, 1);
    run_world(2, NULL, 20, false, other_library_of, &(bool){ true });
    /* found in the environment that is in use */
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), place);
    assert_ok(tm_folder_make(folder, err));
    snprintf(folder, sizeof folder, "%s/%s/libnccl.so.2", test_folder(), place);
    assert_int_equal(symlink(other, folder), 0);
    unsetenv("TRAINMARK_NCCL");
    setenv("VIRTUAL_ENV", test_folder(), 1);
    run_world(2, NULL, 20, false, other_library_of, &(bool){ true });
    unsetenv("VIRTUAL_ENV");
    snprintf(other, sizeof other, "%.*s/rccl.so", (int)(strrchr(nccl, '/') - nccl), nccl);
    setenv("TRAINMARK_NCCL", other, 1);
    snprintf(other, sizeof other, "%.*s/hip.so", (int)(strrchr(gpu, '/') - gpu), gpu);
    setenv("TRAINMARK_GPU_RUNTIME", other, 1);
    tm_gpu_defaults_set(TM_GPU_HIP); /* adding variables beside threads that read them is no good */
    run_world(2, NULL, 20, false, other_library_of, &(bool){ false });
    setenv("TRAINMARK_NCCL", nccl, 1);
    setenv("TRAINMARK_GPU_RUNTIME", gpu, 1);
}

static int begin(void **state)
{
    (void)state;
    setenv("TRAINMARK_NCCL", test_built("standins/nccl.so"), 1);
    setenv("TRAINMARK_GPU_RUNTIME", test_built("standins/cuda.so"), 1);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(calls),
    full_test(failures),
    cmocka_unit_test(refusals),
    cmocka_unit_test(other_libraries),
};

TEST_TABLE(tests)
TEST_FIXTURE(begin, test_folder_teardown)
