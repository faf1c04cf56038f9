/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by NVIDIA's cuDNN, over a stand-in for it: values beside the double reference, in one call and in pieces;
 * trainings; what is said where the library is missing, old, has no kernel, or fails. */
#include "gpu/dnn.h"

#include "device/backend.h"
#include "device/gpu/own.h"
#include "device/trial.h"
#include "gpu/emulated.h"
#include "gpu/trials.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <dirent.h>
#include <dlfcn.h>

#include "support/folder.h"
#include "support/test.h"

static void use(void)
{
    setenv("TRAINMARK_GPU_RUNTIME", test_built("standins/cuda.so"), 1);
    setenv("TRAINMARK_CUDNN", test_built("standins/cudnn.so"), 1);
}

/* 0: the library is not loaded yet. */
static int counted(const char *what)
{
    int (*count)(void);
    void *library = dlopen(test_built("standins/cudnn.so"), RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, what) : NULL;
    if (!symbol) return 0;
    memcpy(&count, &symbol, sizeof count);
    return count();
}

/* --- shapes ---------------------------------------------------------------------------------------------------------
 */

static tm_gpu_attention_shape shape_of(int64_t heads, int64_t kv_heads, int64_t length, int64_t dim)
{
    tm_gpu_attention_shape s = { .sequences = 1, .dim_qk = dim, .dim_v = dim, .causal = 1 };
    s.queries = s.keys = length;
    s.heads = s.heads_of_all = heads, s.kv_heads = kv_heads;
    s.ld_q = s.ld_o = s.ld_dq = heads * dim;
    s.ld_k = s.ld_v = s.ld_dk = s.ld_dv = kv_heads * dim;
    return s;
}

/* What 9.19 and 9.26 asked for on H200, A100, L40, B200 at most: sequences, heads, heads of keys, queries, elements. */
TEST(workspace_is_what_the_library_was_seen_to_want)
{
    static const struct {
        int64_t sequences, heads, kv_heads, queries, keys, dim_qk, dim_v, bytes;
    } seen[] = { { 4, 32, 8, 4096, 4096, 128, 128, 4833935616 }, { 1, 32, 8, 4096, 4096, 128, 128, 1208484096 },
                 { 16, 16, 16, 512, 512, 64, 64, 134742272 },    { 2, 32, 8, 8192, 8192, 128, 128, 9128902912 },
                 { 1, 16, 16, 4096, 4096, 192, 128, 537133312 }, { 2, 8, 2, 33, 33, 80, 80, 602496 },
                 { 2, 8, 2, 100, 100, 256, 256, 3807744 },       { 1, 4, 4, 130, 64, 64, 64, 199040 },
                 { 1, 4, 4, 64, 130, 64, 64, 132352 },           { 2, 4, 4, 77, 77, 64, 64, 264960 } };
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        tm_gpu_attention_shape s = shape_of(seen[i].heads, seen[i].kv_heads, seen[i].queries, seen[i].dim_qk);
        s.sequences = seen[i].sequences;
        s.keys = seen[i].keys;
        s.dim_v = seen[i].dim_v;
        assert_true(tm_gpu_dnn_bytes(&s) == 4096);
        s.gradients = 1;
        if (tm_gpu_dnn_bytes(&s) < (size_t)seen[i].bytes) fail_msg("shape %zu: %zu bytes", i, tm_gpu_dnn_bytes(&s));
        if (seen[i].queries >= 512) assert_true(tm_gpu_dnn_bytes(&s) < (size_t)seen[i].bytes / 64 * 65);
    }
}

/* --- values
 * --------------------------------------------------------------------------------------------------------- */

static void judge(const char *op)
{
    if (gpu_is_real() || !emulated_device("cuda")) skip();
    use();
    setenv("TM_TEST_OP", op, 1);
    setenv("TM_TEST_KERNEL", "cudnn", 1);
    kernels_are_right("cuda", CODE_COMPILED);
    assert_true(counted("standin_dnn_executed") > 0);
}

TEST_ON(cuda, TEST, attention_is_right, judge("attention"))
TEST_ON(cuda, TEST, gradients_are_right, judge("attention_grad"))

/* --- pieces
 * --------------------------------------------------------------------------------------------------------- */

static tm_device *opened(const char *library)
{
    tm_device *device;
    tm_error   err = { 0 };
    if (gpu_is_real() || !emulated_device("cuda")) skip();
    use();
    if (library) setenv("TRAINMARK_CUDNN", library, 1);
    if (tm_device_open("cuda", 1, &device, &err) != TM_OK) fail_msg("%s", err.text);
    return device;
}

static const tm_kernel *backward(void)
{
    return &tm_gpu_attention_library[1];
}

/* Gradients of 2 sequences in 4 heads, two for each of the keys'. */
static tm_example *example_of(int64_t length, int64_t window, int64_t offset)
{
    static tm_example       e;
    const tm_attention_attr shape = { .heads = 4, .kv_heads = 2, .dim_qk = 16, .dim_v = 8, .scale = 0.25, .causal = 1 };
    tm_attention_attr       attr = shape;
    attr.seq_q = attr.seq_k = length, attr.window = window, attr.q_offset = offset;
    tm_example_begin(&e, &attr, sizeof attr);
    tm_example_in(&e, 0, TM_ROLE_ACTIVATION, tm_shape_2(2 * length, 4 * 8), 0, 1);
    tm_example_in(&e, 1, TM_ROLE_ACTIVATION, tm_shape_2(2 * length, 4 * 16), 0, 1);
    tm_example_in(&e, 2, TM_ROLE_ACTIVATION, tm_shape_2(2 * length, 2 * 16), 0, 1);
    tm_example_in(&e, 3, TM_ROLE_ACTIVATION, tm_shape_2(2 * length, 2 * 8), 0, 1);
    tm_example_in(&e, 4, TM_ROLE_ACTIVATION, tm_shape_2(2 * length, 4 * 8), 0, 0.5);
    tm_example_in(&e, 5, TM_ROLE_STATISTIC, tm_shape_3(2, 4, length), 4, 0.2);
    return &e;
}

TEST(keys_beyond_a_window_are_not_seen)
{
    tm_device *device = opened(NULL);
    for (int64_t window = 1; window < 10; window++) {
        tm_error err = { 0 };
        tm_judge j;
        tm_trial t;
        tm_judge_open(&j, &tm_op_attention_grad, example_of(8, window, 0), 0, true);
        tm_trial_open(&t, &j, device, backward(), &tm_precision_bf16, 8, 0);
        assert_null(backward()->refuse(&t.call));
        if (tm_trial_run(&t, 0, -1, &err) != TM_OK) fail_msg("%s", err.text);
        if (tm_trial_judge(&t, 0).part > 1) fail_msg("a window of %d keys", (int)window);
        tm_trial_close(&t);
        tm_judge_close(&j);
    }
    tm_device_close(device);
}

/* Own kernels do these. */
TEST(what_the_library_does_not_do_is_refused)
{
    static const char *const words[] = { "no documents", "not asked for sinks", "from position 0 on", "bfloat16" };
    tm_device               *device = opened(NULL);
    for (int k = 0; k < 4; k++) {
        tm_judge    j;
        tm_trial    t;
        tm_example *e = example_of(8, 0, k == 2 ? 3 : 0);
        if (k == 0) tm_example_int(e, 6, tm_shape_1(16), 8);
        if (k == 1) tm_example_in(e, 7, TM_ROLE_PARAMETER, tm_shape_1(4), 0, 1), e->out[3] = tm_shape_1(4);
        tm_judge_open(&j, &tm_op_attention_grad, e, 0, true);
        tm_trial_open(&t, &j, device, backward(), k == 3 ? &tm_precision_f32 : &tm_precision_bf16, 8, 0);
        const char *why = backward()->refuse(&t.call);
        if (!why || !strstr(why, words[k])) fail_msg("%s: '%s'", words[k], why ? why : "");
        tm_trial_close(&t);
        tm_judge_close(&j);
    }
    tm_device_close(device);
}

/* How many calls of the library the gradients take where it may store so much at once; 0: it is refused. Their bits are
 * those of one call, and within the bound. */
static int calls_with(tm_device *device, size_t most, int64_t length)
{
    tm_error err = { 0 };
    tm_judge j;
    tm_trial one, pieces;
    tm_judge_open(&j, &tm_op_attention_grad, example_of(length, 0, 0), 0, true);
    tm_trial_open(&one, &j, device, backward(), &tm_precision_bf16, 8, 0);
    tm_trial_open(&pieces, &j, device, backward(), &tm_precision_bf16, 8, 0);
    ((tm_gpu_own *)device->own)->most_stored = (size_t)1 << 30;
    if (tm_trial_run(&one, 0, -1, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(tm_trial_judge(&one, 0).part <= 1);
    ((tm_gpu_own *)device->own)->most_stored = most;
    int  before = counted("standin_dnn_executed");
    bool refused = backward()->refuse(&pieces.call) != NULL;
    if (!refused && tm_trial_run(&pieces, 0, -1, &err) != TM_OK) fail_msg("%s", err.text);
    for (int k = 0; k < 3 && !refused; k++)
        assert_memory_equal(one.image[TM_MAX_IN + k], pieces.image[TM_MAX_IN + k], one.bytes[TM_MAX_IN + k]);
    tm_trial_close(&one);
    tm_trial_close(&pieces);
    tm_judge_close(&j);
    return refused ? 0 : counted("standin_dnn_executed") - before;
}

TEST(gradients_in_pieces_have_the_same_bits)
{
    tm_device *device = opened(NULL);
    /* a head stores 128 x 128 gradients of scores of 2 bytes, 512 bytes, and 2 x 24 x 8 of 4 bytes; all 4096 more */
    size_t head = 128 * 128 * 2 + 128 * 4 + 8 * 24 * 4;
    assert_int_equal(calls_with(device, 8 * head + 4096, 8), 1);
    assert_int_equal(calls_with(device, 8 * head + 4095, 8), 2); /* a sequence each */
    assert_int_equal(calls_with(device, 4 * head + 4095, 8), 4); /* and a head of keys each */
    assert_int_equal(calls_with(device, 2 * head + 4096, 8), 4);
    assert_int_equal(calls_with(device, 2 * head + 4095, 8), 0);
    assert_int_equal(calls_with(device, 4 * head + 4096, 6), 0); /* statistics of a piece begin at 16 bytes */
    tm_device_close(device);
    assert_int_equal(counted("standin_dnn_held"), 0);
}

/* --- what is said
 * --------------------------------------------------------------------------------------------------------- */

/* Prepares the gradients, and runs them if that can be done. */
static tm_status attend(tm_device *device, const char **refused, tm_error *err)
{
    static char words[300];
    tm_judge    j;
    tm_trial    t;
    tm_judge_open(&j, &tm_op_attention_grad, example_of(8, 0, 0), 0, true);
    tm_trial_open(&t, &j, device, backward(), &tm_precision_bf16, 8, 0);
    const char *why = backward()->refuse(&t.call);
    snprintf(words, sizeof words, "%s", why ? why : "");
    *refused = words;
    tm_status st = why ? TM_UNSUPPORTED : tm_trial_run(&t, 0, -1, err);
    tm_trial_close(&t);
    tm_judge_close(&j);
    return st;
}

/* cuDNN names no kernel where it finds no NVRTC of its CUDA, of whichever that is; it finds one that is loaded (seen on
 * cuDNN 9.10). */
TEST(compilers_are_loaded_before_it_is_asked)
{
    char       *folder = test_tree_make();
    const char *names[] = { "libnvrtc.so.12", "libnvrtc.so.13" };
    char        paths[2][600], command[2000];
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
        snprintf(command, sizeof command, "cp '%s' '%s'", test_built("standins/nvrtc.so"), paths[i]);
        assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
        assert_null(dlopen(paths[i], RTLD_NOW | RTLD_NOLOAD));
    }
    setenv("LD_LIBRARY_PATH", folder, 1);
    tm_error    err = { 0 };
    tm_device  *device = opened(NULL);
    const char *why;
    assert_int_equal(attend(device, &why, &err), TM_OK);
    for (int i = 0; i < 2; i++) assert_non_null(dlopen(paths[i], RTLD_NOW | RTLD_NOLOAD));
    tm_device_close(device);
    test_tree_remove(folder);
}

/* Own kernels do what is refused: with the reason. */
TEST(a_library_that_cannot_is_refused_with_the_reason)
{
    static const struct {
        const char *variable, *value, *library, *why;
    } cases[] = { { "STANDIN_DNN_VERSION", "90701", NULL, "is cuDNN 9.7.1: too old, 9.10.0 is needed" },
                  { "STANDIN_DNN_REFUSES", "backward", NULL, "cuDNN 9.19.0 has no kernel for it, or no NVRTC" },
                  { "STANDIN_DNN_DIFFERS", "2", NULL, "cuDNN 9.19.0 has no kernel for it whose results repeat" },
                  { "STANDIN_DNN_DIFFERS", "1", NULL, NULL }, /* the second one does */
                  { "STANDIN_DNN_WORKSPACE", "1000000", NULL, "cuDNN 9.19.0 wants a workspace of 1000000 bytes, 2" },
                  { "STANDIN_GPU_ARCH", "sm_100", NULL, NULL },
                  { "TM_X", "", "none", "TRAINMARK_CUDNN is 'none'" },
                  { "TM_X", "", "/nowhere/libcudnn.so.9", "no cuDNN was found" },
                  { "TM_X", "", NULL, NULL } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *why;
        tm_error    err = { 0 };
        setenv(cases[i].variable, cases[i].value, 1);
        tm_device *device = opened(cases[i].library);
        tm_status  st = attend(device, &why, &err);
        if (cases[i].why ? st != TM_UNSUPPORTED || !strstr(why, cases[i].why) : st != TM_OK)
            fail_msg("case %zu: %d, '%s', '%s'", i, st, why, err.text);
        tm_device_close(device);
        unsetenv(cases[i].variable);
    }
    assert_int_equal(counted("standin_dnn_differing"), 0);
}

TEST(sums_tell_the_version)
{
    const char *why;
    tm_error    err = { 0 };
    tm_device  *device = opened(NULL);
    assert_null(strstr(tm_device_describe(device)->sums[1], "cuDNN"));
    assert_int_equal(attend(device, &why, &err), TM_OK);
    assert_non_null(strstr(tm_device_describe(device)->sums[1], "+cuDNN-9.19.0"));
    tm_device_close(device);
    assert_int_equal(counted("standin_dnn_held"), 0);
}

/* The last byte of every file is another one. */
static void spoil_files(const char *folder)
{
    DIR *all = opendir(folder);
    int  n = 0;
    for (struct dirent *e; all && (e = readdir(all));) {
        if (e->d_name[0] == '.') continue;
        FILE *f = fopen(test_in_folder(e->d_name), "r+b");
        assert_non_null(f);
        assert_int_equal(fseek(f, -1, SEEK_END), 0);
        int last = fgetc(f);
        assert_int_equal(fseek(f, -1, SEEK_END), 0);
        fputc(last ^ 1, f);
        fclose(f);
        n++;
    }
    closedir(all);
    assert_true(n > 0);
}

/* To make a plan takes the library half a second: it is kept as a text, and taken again. One that is damaged is made
 * anew. */
TEST(plans_are_kept)
{
    const char *why, *folder = test_folder();
    tm_error    err = { 0 };
    for (int k = 0; k < 4; k++) {
        tm_device *device = opened(NULL);
        setenv("TRAINMARK_KERNELS", folder, 1);
        int texts = counted("standin_dnn_texts"), before = counted("standin_dnn_executed");
        if (attend(device, &why, &err) != TM_OK) fail_msg("time %d: '%s', '%s'", k, why, err.text);
        assert_int_equal(counted("standin_dnn_executed") - before, 1);
        assert_int_equal(counted("standin_dnn_texts") - texts, k == 0 || k == 2);
        tm_device_close(device);
        assert_int_equal(counted("standin_dnn_held"), 0);
        if (k == 1) spoil_files(folder);
    }
}

/* Every call that fails is an error of the device, with its name; nothing is left. */
TEST(a_library_that_fails_is_told)
{
    static const struct {
        const char *call;
        int         last; /* of the numbers that are tried */
    } cases[] = { { "cudnnCreate", 1 },
                  { "cudnnSetStream", 1 },
                  { "cudnnBackendCreateDescriptor", 60 },
                  { "cudnnBackendSetAttribute", 60 },
                  { "cudnnBackendFinalize", 60 },
                  { "cudnnBackendGetAttribute", 2 },
                  { "cudnnBackendExecute", 1 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int n = 1; n <= cases[i].last; n += n < 3 ? 1 : 19) {
            char        told[64];
            const char *why;
            tm_error    err = { 0 };
            snprintf(told, sizeof told, "%s@%d=2000", cases[i].call, n);
            setenv("STANDIN_DNN_FAIL", told, 1);
            tm_device *device = opened(NULL);
            setenv("TRAINMARK_KERNELS", "", 1); /* nothing is kept */
            tm_status st = attend(device, &why, &err);
            if (st != TM_DEVICE || !strstr(err.text, cases[i].call) || !strstr(err.text, "a test lets it fail"))
                fail_msg("%s: %d, '%s', '%s'", told, st, why, err.text);
            tm_device_close(device);
            unsetenv("STANDIN_DNN_FAIL");
            if (counted("standin_dnn_held") > 0) fail_msg("%s: %d objects are left", told, counted("standin_dnn_held"));
        }
}
