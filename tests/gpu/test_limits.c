/* SPDX-License-Identifier: Apache-2.0 */
/* How far the kernels of GPUs count: each takes the largest size that its words allow, and with one more it says so. A
 * size is a dimension of an input ("0.1": of the first input the second one), of an output ("y0.1"), or the attribute
 * that begins at a byte ("@8"). "*3": there are three of it. */
#include "device/gpu/gpu.h"
#include "gpu/emulated.h"
#include "op/describe.h"

#include "support/test.h"

enum { GRID = 65535, IN_32_BITS = INT32_MAX };

static const struct {
    int64_t     most;
    const char *why, *where;
} limits[] = {
    { IN_32_BITS, "fewer than 2^31 rows",
      "rope/gpu 0.0,rope_grad/gpu 0.0,modulate/gpu 0.0,modulate_grad/gpu 0.0,gated_add/gpu 0.0,gated_add_grad/gpu 0.0,"
      "join/gpu y0.0,split/gpu 0.0,exchange_counts/gpu @112,sequence_order/gpu 0.0,merge_attention/gpu 0.0,"
      "adafactor/gpu 0.0,adafactor/gpu 0.1,dropout/gpu 0.0,dropout/gpu @64*3" },
    { IN_32_BITS, "fewer than 2^31 tokens", "dropout/gpu @24,dropout/gpu @40,dropout/gpu @48" },
    { IN_32_BITS, "fewer than 2^31 heads",
      "head_norm/gpu y0.0*3,head_norm_grad/gpu 0.0*3,head_rope/gpu y0.0*4,head_rope_grad/gpu 0.0*4" },
    { (int64_t)(IN_32_BITS / 3 - 3) * 64 + 63, "fewer than 2^31 heads", "head_norm/gpu 0.1,head_norm_grad/gpu 1.1" },
    { IN_32_BITS / 2, "fewer than 2^30 rows", "embedding_grad/gpu 0.0" },
    { IN_32_BITS, "places and channels", "convolution/library 1.1,convolution/own 1.1" },
    { IN_32_BITS, "2^31 positions", "convolution/own y0.0" },
    { IN_32_BITS, "in 32 bits",
      "quantize/gpu 0.0,quantize/gpu 0.1,quantize_largest/gpu 0.0,quantize_largest/gpu 0.1,quantize_both/gpu 0.0,"
      "quantize_both/gpu 0.1,grouped_scaled_mm/matrix 0.1,grouped_scaled_wgrad/matrix 0.1,relative_attention/own @24" },
    { IN_32_BITS, "more than 2^31 - 1",
      "dispatch/gpu 0.0*2,dispatch/gpu 0.1*7,route/gpu y1.0*2,route/gpu y1.1*9,route_grad/gpu 2.0*2,"
      "route_grad/gpu 2.1*9,gather_rows/gpu 1.0,combine/gpu 1.0,combine_weights_grad/gpu 1.0,grouped_bias_grad/gpu 0.0,"
      "grouped_linear_wgrad/matrix 0.0,grouped_linear_wgrad/tiles 0.0" },
    { IN_32_BITS / 2, "columns than 32 bits",
      "gather_rows/gpu 0.1,combine/gpu 0.1,combine_weights_grad/gpu 1.1,put_rows/gpu 1.1,grouped_bias_grad/gpu 0.1" },
    { UINT32_MAX, "columns than 32 bits", "put_rows/gpu 1.0" },
    { GRID, "than a grid takes",
      "attention/tiles @24,modulate_grad/gpu 2.0,"
      "gated_add_grad/gpu 2.0,group_norm/gpu @8,relative_attention/own @8" },
    { IN_32_BITS / 2, "than a grid takes", "relative_attention/own @0" },
    { GRID * 32, "than a grid takes",
      "rmsnorm_grad/gpu 1.0,layernorm_grad/gpu 1.0,bias_grad/gpu 0.0,gelu_bias_grad/gpu 0.0" },
    { GRID * 64, "than a grid takes",
      "linear/matrix y0.0,linear/tiles y0.0,linear_dgrad/tiles y0.0,linear_wgrad/tiles y0.0,rescale_wgrad/gpu 0.0,"
      "grouped_linear_wgrad/tiles 0.1,muon/tiles @56,muon/tiles @64,low_rank/library 1.0,low_rank/matrix 1.0,"
      "low_rank/tiles 1.0,low_rank_dgrad/tiles 0.0,low_rank_wgrad/tiles @32,low_rank_wgrad/tiles @48,"
      "modulate_grad/gpu @8,gated_add_grad/gpu @0" },
    { GRID * 128, "than a grid takes", "scaled_mm/matrix y0.0,grouped_scaled_wgrad/matrix 0.0" },
    { GRID * 64 - 4 * 63, "than a grid takes", "grouped_linear/tiles 0.0,grouped_linear_dgrad/matrix 0.0" },
    { GRID * 128 - 3 * 127, "than a grid takes", "grouped_scaled_mm/matrix 0.0" },
    { 3 * (GRID + 1) - 1, "than a grid takes", "attention/tiles 0.0,attention_grad/tiles 1.0" },
    { IN_32_BITS, "than a grid takes", "muon/tiles 0.1" },
    { 256, "heads of up to 256", "attention/tiles @40,attention/tiles @48,attention_grad/tiles @40" },
    { 1024, "1,024 elements", "head_norm/gpu @16,head_norm_grad/gpu @16,head_rope/gpu @16,head_rope_grad/gpu @16" },
    { 1024, "1024 experts", "expert_bias/gpu 0.0,send_rows/gpu 1.1,return_rows/gpu 1.1" },
    { 133, "classes of distances", "relative_attention/own 3.0" },
};

static const tm_kernel *kernel_of(const char *name, size_t n)
{
    for (const tm_kernel *const *family = tm_gpu_kernels; *family; family++)
        for (const tm_kernel *k = *family; k->name; k++)
            if (strlen(k->name) == n && memcmp(k->name, name, n) == 0) return k;
    fail_msg("no kernel '%.*s'", (int)n, name);
    return NULL;
}

/* Is the size one that its kernel refuses by these words? */
static bool is_refused(const tm_device *device, const char *where, int64_t size, const char *words)
{
    const size_t     name = strcspn(where, " ");
    const tm_kernel *kernel = kernel_of(where, name);
    tm_example       e;
    char            *at = NULL, *end = NULL;
    tm_call          call;
    const char      *why = "";
    bool             output = where[name + 1] == 'y', attribute = where[name + 1] == '@';
    assert_true(tm_op_get(kernel->op)->example(1, &e));
    for (int p = 0; p < 2 && why; p++) { /* those of matrix units take bfloat16 */
        call = tm_example_call(tm_op_get(kernel->op), &e, p ? &tm_precision_bf16_pure : &tm_precision_f32);
        call.attr = e.attr, call.device = device;
        why = kernel->refuse(&call);
    }
    if (why) fail_msg("%.*s takes no format: %s", (int)name, where, why);
    long first = strtol(where + name + 1 + (output || attribute), &at, 10);
    long dimension = *at == '.' ? strtol(at + 1, &end, 10) : 0;
    if (attribute)
        memcpy(e.attr + first, &size, sizeof size);
    else
        (output ? call.out : call.in)[first].shape.n[dimension] = size;
    why = kernel->refuse(&call);
    return why && strstr(why, words);
}

/* "*3" behind the place. */
static int64_t times_of(const char *where)
{
    const char *star = where + strcspn(where, ",*");
    return *star == '*' ? strtol(star + 1, NULL, 10) : 1;
}

TEST(kernels_count_as_far_as_they_say)
{
    tm_device *device;
    tm_error   err = { 0 };
    if (!emulated_device("hip")) skip();
    if (tm_device_open_planning("hip", 1, &device, &err) != TM_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        for (const char *where = limits[i].where; *where; where += strcspn(where, ","), where += *where == ',') {
            int64_t most = limits[i].most / times_of(where);
            if (is_refused(device, where, most, limits[i].why)) fail_msg("%s: %lld refused", where, (long long)most);
            if (!is_refused(device, where, most + 1, limits[i].why))
                fail_msg("%s: %lld taken", where, (long long)most + 1);
        }
    tm_device_close(device);
}
