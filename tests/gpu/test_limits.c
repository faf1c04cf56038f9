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

/* --- formats */

/* Statistics and counts, which have one format, messages, which are bytes, and an input that is not read. */
static const char anything_goes[] =
    "rmsnorm_grad/gpu 3,layernorm_grad/gpu 3,layernorm_grad/gpu 4,vocabulary_loss/gpu 0,vocabulary_loss/gpu 13,"
    "scale_history/gpu 0,quantize/gpu 1,quantize_largest/gpu 1,receive/gpu 12,balance_loss_grad/gpu 0,";
/* Taken in bfloat16, too, although it is float32 in every precision. */
static const char narrower_goes[] =
    "linear_token_losses_grad/tiles 3,linear_token_losses_grad/tiles 14,linear_token_losses/tiles 13,"
    "linear_token_losses/library 13,linear_cross_entropy_grad/tiles 15,linear_cross_entropy/tiles 13,"
    "linear_cross_entropy/library 13,preference_loss_grad/gpu 12,preference_loss_grad/gpu 3,preference_loss/gpu 3,"
    "square_error_grad/gpu 1,square_error/gpu 1,cross_entropy/gpu 0,route_grad/gpu 1,route_grad/gpu 3,route_grad/gpu "
    "12,"
    "balance_loss_grad/gpu 12,combine_weights_grad/gpu 12,time_embedding/gpu 0,route/gpu 1,";

/* Is the operand in another format refused? */
static void refuses_format(const tm_kernel *kernel, tm_call *call, int at, tm_dtype other)
{
    tm_view       *view = at < TM_MAX_IN ? &call->in[at] : &call->out[at - TM_MAX_IN];
    const tm_dtype taken = view->dtype;
    char           place[80];
    snprintf(place, sizeof place, "%s %d,", kernel->name, at);
    bool goes = strstr(anything_goes, place) || (other == TM_BF16 && strstr(narrower_goes, place));
    view->dtype = other;
    if (!kernel->refuse(call) && !goes)
        fail_msg("%s takes %s in the place of %s as operand %d", kernel->name, tm_dtype_name(other),
                 tm_dtype_name(taken), at);
    view->dtype = taken;
}

/* Of a call that is taken: nothing may be float16, nothing else float64, and what is kept in float64 nothing else; nor
 * bfloat16 what is float32 in the narrowest precision. */
static int other_formats_are_refused(const tm_kernel *kernel, tm_call *call, bool narrowest)
{
    int tried = 0;
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        const tm_view *view = i < TM_MAX_IN ? &call->in[i] : &call->out[i - TM_MAX_IN];
        if (!tm_view_present(view) || (view->dtype != TM_F32 && view->dtype != TM_BF16 && view->dtype != TM_F64))
            continue;
        refuses_format(kernel, call, i, TM_F16);
        refuses_format(kernel, call, i, view->dtype == TM_F64 ? TM_F32 : TM_F64);
        if (view->dtype == TM_F32 && narrowest) refuses_format(kernel, call, i, TM_BF16);
        tried++;
    }
    return tried;
}

TEST(formats_that_no_kernel_computes_in_are_refused)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    int                              tried = 0;
    if (!emulated_device("hip")) skip();
    for (int hip = 0; hip < 2; hip++) {
        tm_device *device;
        tm_error   err = { 0 };
        if (tm_device_open_planning(hip ? "hip" : "cuda", 1, &device, &err) != TM_OK) fail_msg("%s", err.text);
        for (const tm_kernel *const *family = tm_gpu_kernels; *family; family++)
            for (const tm_kernel *k = *family; k->name; k++)
                for (int n = 0;; n++) {
                    tm_example e;
                    if (!tm_op_get(k->op)->example(n / 3, &e)) break;
                    tm_call call = tm_example_call(tm_op_get(k->op), &e, precisions[n % 3]);
                    call.attr = e.attr, call.device = device;
                    if (!k->refuse(&call)) tried += other_formats_are_refused(k, &call, n % 3 == 2);
                }
        tm_device_close(device);
    }
    assert_true(tried > 5000);
}
