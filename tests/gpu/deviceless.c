/* SPDX-License-Identifier: Apache-2.0 */
/* The real cuDNN, asked without a GPU: `all cudnn LIBRARY [13000]` has it plan the graphs of gpu/dnn_graph.c for GPUs
 * of which it is told the properties (since 9.8), with a driver of CUDA 13.0 (12080: 12.8). For each it names the
 * engine that gpu/dnn.c would take: the first that can be made and does with the workspace of tm_gpu_dnn_bytes. Exit
 * status 5: there is none, or its sums have no fixed order.
 */
#include "base/text.h"
#include "gpu/dnn_graph.h"

#include <dlfcn.h>

#include "support/test.h"

/* cudnn_graph.h: what gpu/dnn.c does not ask for */
enum {
    ENGINE = 2,
    PROPERTIES = 38,
    T_NOTE = 11,
    HEURISTIC_PROPERTIES = 204,
    CONFIG_ENGINE = 300,
    PLAN_PROPERTIES = 407,
    ENGINE_INDEX = 1301,
    ENGINE_NOTES = 1303,
    PROPERTIES_TEXT = 2702,
    NOT_DETERMINISTIC = 4
};
enum { MOST_NOTES = 10, MOST_CONFIGS = 8 };

typedef struct {
    const char *name;
    int         arch, multiprocessors, shared_kib, threads_per_multiprocessor, blocks, mhz, cache_mib;
    double      memory_gb;
} gpu;

/* NVIDIA's data sheets; CUDA C++ Programming Guide, technical specifications by compute capability. */
static const gpu gpus[] = { { "NVIDIA A100-SXM4-80GB", 800, 108, 163, 2048, 32, 1410, 40, 80 },
                            { "NVIDIA L40S", 890, 142, 99, 1536, 24, 2520, 96, 48 },
                            { "NVIDIA H200", 900, 132, 227, 2048, 32, 1980, 60, 141 },
                            { "NVIDIA B200", 1000, 148, 227, 2048, 32, 1965, 126, 180 },
                            { "NVIDIA RTX PRO 6000", 1200, 188, 99, 1536, 24, 2430, 128, 96 } };

static const struct {
    const char *name;
    int64_t     sequences, heads, kv_heads, queries, keys, dim_qk, dim_v, causal, window;
} shapes[] = {
    { "Llama 3.1 8B, 4,096 tokens", 1, 32, 8, 4096, 4096, 128, 128, 1, 0 },
    { "GPT-2 1.5B, 16 x 1,024", 16, 25, 25, 1024, 1024, 64, 64, 1, 0 },
    { "GPT Medium, 16 x 512", 16, 16, 16, 512, 512, 64, 64, 1, 0 },
    { "Mistral 7B, a window of 4,096", 1, 32, 8, 8192, 8192, 128, 128, 1, 4096 },
    { "FLUX, 4,608 of image and text", 1, 24, 24, 4608, 4608, 128, 128, 0, 0 },
    { "DeepSeek, heads of 192 and 128", 1, 16, 16, 4096, 4096, 192, 128, 1, 0 },
    { "CLIP's text, 77 tokens", 2, 12, 12, 77, 77, 64, 64, 1, 0 },
    { "T5's text, heads of 64", 2, 64, 64, 256, 256, 64, 64, 0, 0 },
    { "cross, more keys", 2, 8, 2, 100, 300, 80, 80, 0, 0 },
    { "heads of 8", 2, 4, 4, 130, 130, 8, 8, 1, 0 },
    { "heads of 256", 2, 8, 4, 256, 256, 256, 256, 1, 0 },
};

static char *properties_of(const gpu *g, int driver)
{
    tm_text out = { 0 };
    tm_text_add(&out, "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
                      "\"regsPerBlock\":65536,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
                      "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
                      "\"maxThreadsPerBlock\":1024,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
                      "\"memClockRateKHz\":3201000,\"memoryBusWidth\":5120,\"cudaDeviceId\":0,");
    tm_text_printf(&out,
                   "\"multiProcessorCount\":%d,\"smCountOrigin\":0,\"maxSharedMemoryPerBlockOptin\":%d,"
                   "\"oversizedSharedMemoryPerBlock\":%d,\"maxCtasPerSM\":%d,"
                   "\"maxThreadsPerSM\":%d,\"smClockRateKHz\":%d,\"l2CacheSize\":%d,\"deviceName\":\"%s\","
                   "\"deviceVer\":%d,\"driverVer\":%d,\"totalGlobalMem\":%.0f}",
                   g->multiprocessors, g->shared_kib << 10, g->shared_kib << 10, g->blocks,
                   g->threads_per_multiprocessor, g->mhz * 1000, g->cache_mib << 20, g->name, g->arch, driver,
                   g->memory_gb * 1e9);
    return out.data;
}

static tm_gpu_attention_shape shape_of(int at, int gradients)
{
    tm_gpu_attention_shape s = { .gradients = gradients,
                                 .sequences = shapes[at].sequences,
                                 .queries = shapes[at].queries,
                                 .keys = shapes[at].keys,
                                 .heads = shapes[at].heads,
                                 .kv_heads = shapes[at].kv_heads,
                                 .dim_qk = shapes[at].dim_qk,
                                 .dim_v = shapes[at].dim_v,
                                 .heads_of_all = shapes[at].heads,
                                 .causal = shapes[at].causal,
                                 .window = shapes[at].window };
    s.ld_q = s.ld_dq = s.heads * s.dim_qk;
    s.ld_k = s.ld_dk = s.kv_heads * s.dim_qk;
    s.ld_v = s.ld_dv = s.kv_heads * s.dim_v;
    s.ld_o = s.heads * s.dim_v;
    return s;
}

typedef struct {
    const tm_dnn_calls *call;
    void               *properties;
    int                 wrong;
} asked;

/* Why not, or NULL: the plan is made, and `workspace` is what it wants. */
static bool plans(const asked *a, tm_dnn_graph *g, void *config, int64_t *workspace)
{
    int64_t one;
    void   *plan = tm_dnn_make(g, TM_DNN_PLAN);
    tm_dnn_set(g, plan, TM_DNN_A_PLAN_CONFIG, TM_DNN_T_DESCRIPTOR, 1, &config);
    tm_dnn_set(g, plan, PLAN_PROPERTIES, TM_DNN_T_DESCRIPTOR, 1, (void *)&a->properties);
    tm_dnn_finish(g, plan);
    tm_dnn_get(g, plan, TM_DNN_A_PLAN_WORKSPACE, TM_DNN_T_I64, 1, &one, workspace);
    bool made = g->status == 0;
    g->status = 0;
    return made;
}

/* The engine's number; *fixed: its sums have one order. */
static int64_t engine_of(tm_dnn_graph *g, void *config, bool *fixed)
{
    void   *engine = tm_dnn_make(g, ENGINE);
    int64_t number = -1, n = 0, one;
    int     notes[MOST_NOTES] = { 0 };
    tm_dnn_get(g, config, CONFIG_ENGINE, TM_DNN_T_DESCRIPTOR, 1, &one, &engine);
    tm_dnn_get(g, engine, ENGINE_INDEX, TM_DNN_T_I64, 1, &one, &number);
    tm_dnn_get(g, engine, ENGINE_NOTES, T_NOTE, MOST_NOTES, &n, notes);
    *fixed = g->status == 0;
    for (int i = 0; i < n && i < MOST_NOTES; i++) *fixed = *fixed && notes[i] != NOT_DETERMINISTIC;
    return number;
}

static void ask(asked *a, const gpu *of, int at, int gradients)
{
    tm_dnn_graph           g = { .call = a->call };
    tm_gpu_attention_shape s = shape_of(at, gradients);
    void                  *configs[MOST_CONFIGS], *graph = tm_dnn_attention(&g, &s), *heuristics;
    int64_t                n = 0, workspace = 0, planned = (int64_t)tm_gpu_dnn_bytes(&s), engine = -1;
    int                    mode = TM_DNN_MODE_A;
    bool                   fixed = false, found = false;
    tm_dnn_finish(&g, graph);
    heuristics = tm_dnn_make(&g, TM_DNN_HEURISTICS);
    tm_dnn_set(&g, heuristics, TM_DNN_A_HEURISTIC_GRAPH, TM_DNN_T_DESCRIPTOR, 1, &graph);
    tm_dnn_set(&g, heuristics, TM_DNN_A_HEURISTIC_MODE, TM_DNN_T_HEURISTIC, 1, &mode);
    tm_dnn_set(&g, heuristics, HEURISTIC_PROPERTIES, TM_DNN_T_DESCRIPTOR, 1, &a->properties);
    tm_dnn_finish(&g, heuristics);
    for (int i = 0; i < MOST_CONFIGS; i++) configs[i] = tm_dnn_make(&g, TM_DNN_ENGINE_CONFIG);
    tm_dnn_get(&g, heuristics, TM_DNN_A_HEURISTIC_RESULTS, TM_DNN_T_DESCRIPTOR, MOST_CONFIGS, &n, configs);
    int status = g.status;
    for (int i = 0; i < n && i < MOST_CONFIGS && status == 0 && !found; i++) {
        found = plans(a, &g, configs[i], &workspace) && workspace <= planned;
        if (found) engine = engine_of(&g, configs[i], &fixed);
    }
    /* Of large heads the library has gradients on sm_90 only: own kernels make the others. */
    bool taken = !gradients || of->arch == 900 || s.dim_qk <= 128;
    a->wrong += taken && !(found && fixed);
    printf("%-22s %-32s %-9s ", of->name, shapes[at].name, gradients ? "gradients" : "forward");
    if (found)
        printf("engine %3lld of %lld, workspace %lld of %lld%s%s\n", (long long)engine, (long long)n,
               (long long)workspace, (long long)planned, fixed ? "" : ", NOT DETERMINISTIC",
               taken ? "" : " (not taken)");
    else
        printf("no plan of %lld (status %d%s)%s\n", (long long)n, status, status ? g.failed : "",
               taken ? "" : " (not taken)");
    tm_dnn_drop(&g);
}

static int judge(int argc, char **argv)
{
    tm_dnn_calls call;
    asked        a = { .call = &call };
    void        *library = dlopen(argc > 2 ? argv[2] : "libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    if (!library) fail_msg("%s", dlerror());
#define X(member, result, arguments, name)                                                                             \
    *(void **)&call.member = dlsym(library, name);                                                                     \
    if (!call.member) fail_msg("%s is missing", name);
    DNN_CALLS(X)
#undef X
    printf("cuDNN %zu\n", call.version());
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        tm_dnn_graph g = { .call = &call };
        char        *text = properties_of(&gpus[i], argc > 3 ? atoi(argv[3]) : 13000);
        a.properties = tm_dnn_make(&g, PROPERTIES);
        tm_dnn_set(&g, a.properties, PROPERTIES_TEXT, TM_DNN_T_CHAR, (int64_t)strlen(text), text);
        tm_dnn_finish(&g, a.properties);
        if (g.status != 0) {
            char words[200] = "";
            call.last_words(words, sizeof words);
            fail_msg("properties of %s: status %d of %s: %s", gpus[i].name, g.status, g.failed, words);
        }
        for (int at = 0; at < (int)(sizeof shapes / sizeof shapes[0]); at++)
            for (int gradients = 0; gradients < 2; gradients++) ask(&a, &gpus[i], at, gradients);
        tm_dnn_drop(&g);
        free(text);
    }
    printf("%d wrong\n", a.wrong);
    return a.wrong ? 5 : 0;
}

TM_TEST_ROLE("cudnn", judge)
