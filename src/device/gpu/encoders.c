/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/encoders.c - ops of frozen encoders (source/encoders.cu). A convolution is a product of what its kernel
 * meets, which is gathered into the workspace in strips; the product is the maker's library's, or by own kernels. */
#include "device/gpu/encoders.h"

enum { THREADS = 256, CHUNK = 64, MOST = 65535, PIECE = 64 << 20 };

tm_gpu_product_of tm_gpu_own_product(const tm_call *call, tm_gpu_product_of p)
{
    p.how = tm_gpu_by_matrix(call->device, p.a, p.b) ? TM_GPU_BY_TILES : TM_GPU_BY_MATRIX;
    return p;
}

tm_gpu_product_of tm_gpu_library_product(const tm_call *call, tm_gpu_product_of p)
{
    (void)call;
    p.how = TM_GPU_BY_LIBRARY;
    return p;
}

void tm_gpu_note_encoders(const void *device, tm_dtype x, tm_dtype w, int unit, const char *kernel, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "X", x);
    tm_gpu_define_format(&d, "W", w);
    tm_gpu_define(&d, "UNIT", unit);
    tm_gpu_note(device, "encoders", tm_gpu_text_encoders, &d, kernel, state);
}

/* --- convolution
 * --------------------------------------------------------------------------------------------------------- */

enum { PRODUCT, GATHER };

/* x is the matrix that is multiplied. */
static bool is_plain(const tm_convolution_attr *attr)
{
    return attr->kernel == 1 && attr->stride == 1 && attr->upsample == 1 && attr->pad_before + attr->pad_after == 0;
}

/* Of a row of the matrix that is multiplied. */
static int64_t row_bytes(const tm_call *call)
{
    return call->in[1].shape.n[1] * (int64_t)tm_dtype_bytes(call->in[0].dtype);
}

static int64_t strip_of(const tm_call *call)
{
    int64_t rows = call->out[0].shape.n[0], fit = PIECE / row_bytes(call) / CHUNK * CHUNK;
    return is_plain(call->attr) ? rows : tm_gpu_least(rows, fit > CHUNK ? fit : CHUNK);
}

static size_t strip_bytes(const tm_call *call)
{
    return is_plain(call->attr) ? 0 : tm_gpu_rounded(strip_of(call) * row_bytes(call));
}

/* Rows first .. first + n - 1 of y. */
static tm_gpu_product_of strip_product(const tm_call *call, int64_t first, int64_t n, tm_gpu_chooser *by)
{
    const tm_view    *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    int64_t           columns = w->shape.n[0], depth = w->shape.n[1];
    tm_gpu_product_of p = { .c = y->dtype,
                            .a = x->dtype,
                            .b = w->dtype,
                            .rows = n,
                            .columns = columns,
                            .depth = depth,
                            .ld_a = depth,
                            .ld_b = depth,
                            .ld_c = columns,
                            .to = tm_gpu_element(y, first * columns),
                            .from_a = is_plain(call->attr) ? x->data : call->workspace,
                            .from_b = w->data,
                            .bias = call->in[2].data,
                            .residual = tm_gpu_element(&call->in[3], first * columns),
                            .has_bias = tm_view_present(&call->in[2]),
                            .has_residual = tm_view_present(&call->in[3]) };
    if (call->workspace) p.workspace = tm_gpu_behind(call->workspace, (int64_t)strip_bytes(call));
    return by(call, p);
}

static const char *refuse_convolution(const tm_call *call)
{
    const char *why = NULL;
    for (int k = 0; k < 2 && !why; k++) why = tm_gpu_refuse_view(&call->in[k]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why) why = tm_gpu_refuse_other(&call->in[2], call->in[1].dtype);
    if (!why) why = tm_gpu_refuse_other(&call->in[3], call->out[0].dtype);
    if (!why && call->out[0].shape.n[0] > INT32_MAX) why = "takes fewer than 2^31 positions";
    if (!why && call->in[1].shape.n[1] > INT32_MAX) why = "takes fewer than 2^31 places and channels of a kernel";
    return !why && call->accumulate ? "does not add to what is there" : why;
}

static const char *refuse_convolution_own(const tm_call *call)
{
    const char *why = refuse_convolution(call);
    return !why && tm_gpu_over(strip_of(call), CHUNK) > MOST ? "more rows than a grid takes" : why;
}

static const char *refuse_convolution_library(const tm_call *call)
{
    const char *why = refuse_convolution(call);
    int64_t     sizes[] = { strip_of(call), call->out[0].shape.n[0] % strip_of(call) };
    for (int k = 0; k < 2 && !why && (k == 0 || sizes[k] > 0); k++) {
        tm_gpu_product_of p = strip_product(call, 0, sizes[k], tm_gpu_library_product);
        why = tm_gpu_by_library(call->device, &p);
    }
    return why;
}

static size_t convolution_workspace_own(const tm_call *call)
{
    return strip_bytes(call);
}

static size_t convolution_workspace_library(const tm_call *call)
{
    tm_gpu_product_of p = strip_product(call, 0, strip_of(call), tm_gpu_library_product);
    return strip_bytes(call) + tm_gpu_library_bytes(call->device, &p);
}

/* Bytes of the units that channels are copied by. */
static int unit_of(const tm_call *call)
{
    int64_t bytes = call->in[0].shape.n[1] * (int64_t)tm_dtype_bytes(call->in[0].dtype);
    return bytes % 16 == 0 ? 16 : (int)tm_dtype_bytes(call->in[0].dtype);
}

static tm_status prepare_convolution(const void *device, const tm_call *call, tm_gpu_chooser *by, void **state,
                                     tm_error *err)
{
    tm_gpu_product_of p = strip_product(call, 0, strip_of(call), by);
    int64_t           rest = call->out[0].shape.n[0] % strip_of(call);
    TM_TRY(tm_gpu_note_product(device, &p, state, err));
    if (p.how == TM_GPU_BY_LIBRARY && rest > 0) {
        p = strip_product(call, 0, rest, by);
        TM_TRY(tm_gpu_library_prepare(device, &p, err));
    }
    if (!is_plain(call->attr))
        tm_gpu_note_encoders(device, call->in[0].dtype, call->in[1].dtype, unit_of(call), "gather", state);
    return TM_OK;
}

static tm_status start_gather(const tm_call *call, int64_t first, int64_t n, tm_error *err)
{
    const tm_convolution_attr *t = call->attr;
    int64_t          units = call->in[0].shape.n[1] * (int64_t)tm_dtype_bytes(call->in[0].dtype) / unit_of(call);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_i64(&a, first);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_int(&a, (int)units);
    tm_gpu_pass_int(&a, (int)tm_convolution_extent(t, t->height));
    tm_gpu_pass_int(&a, (int)tm_convolution_extent(t, t->width));
    tm_gpu_pass_int(&a, (int)t->height);
    tm_gpu_pass_int(&a, (int)t->width);
    tm_gpu_pass_int(&a, (int)t->kernel);
    tm_gpu_pass_int(&a, (int)t->stride);
    tm_gpu_pass_int(&a, (int)t->pad_before);
    tm_gpu_pass_int(&a, (int)t->upsample);
    return tm_gpu_start_rows(call, GATHER, n, t->kernel * t->kernel * units, &a, err);
}

static tm_status launch_convolution(const tm_call *call, tm_gpu_chooser *by, tm_error *err)
{
    int64_t rows = call->out[0].shape.n[0], strip = strip_of(call);
    for (int64_t first = 0; first < rows; first += strip) {
        int64_t           n = tm_gpu_least(strip, rows - first);
        tm_gpu_product_of p = strip_product(call, first, n, by);
        if (!is_plain(call->attr)) TM_TRY(start_gather(call, first, n, err));
        TM_TRY(tm_gpu_start_product(call, PRODUCT, &p, err));
    }
    return TM_OK;
}

/* --- group_norm
 * ---------------------------------------------------------------------------------------------------------- */

enum { GROUP_PARTS, GROUP_FACTORS, GROUP_NORM };

static int64_t sample_rows(const tm_call *call)
{
    return call->in[0].shape.n[0] / ((const tm_group_norm_attr *)call->attr)->samples;
}

static const char *refuse_group_norm(const tm_call *call)
{
    const tm_group_norm_attr *attr = call->attr;
    const char               *why = NULL;
    for (int k = 0; k < 3 && !why; k++) why = tm_gpu_refuse_view(&call->in[k]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why) why = tm_gpu_refuse_other(&call->in[2], call->in[1].dtype);
    if (!why && call->in[0].shape.n[0] > INT32_MAX) why = "takes fewer than 2^31 rows";
    bool fits = attr->samples <= MOST && tm_gpu_over(sample_rows(call), CHUNK) <= MOST;
    return why || fits ? why : "more samples or rows of one than a grid takes";
}

/* Means and squares of the chunks; behind them the factors. */
static size_t group_parts_bytes(const tm_call *call)
{
    const tm_group_norm_attr *attr = call->attr;
    return tm_gpu_rounded(attr->samples * tm_gpu_over(sample_rows(call), CHUNK) * 2 * call->in[0].shape.n[1] * 4);
}

static size_t group_norm_workspace(const tm_call *call)
{
    const tm_group_norm_attr *attr = call->attr;
    return group_parts_bytes(call) + (size_t)(attr->samples * attr->groups * 2) * sizeof(float);
}

static tm_status prepare_group_norm(const void *device, const tm_call *call, void **state, tm_error *err)
{
    static const char *const kernels[] = { "group_parts", "group_factors", "group_norm" };
    tm_dtype                 x = call->in[0].dtype;
    (void)err;
    for (int k = 0; k < 3; k++)
        tm_gpu_note_encoders(device, x, call->in[1].dtype, (int)tm_dtype_bytes(x), kernels[k], state);
    return TM_OK;
}

static tm_status launch_group_norm(const tm_call *call, tm_error *err)
{
    const tm_group_norm_attr *attr = call->attr;
    int64_t                   rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1], own = sample_rows(call);
    int64_t                   chunks = tm_gpu_over(own, CHUNK), width = columns / attr->groups;
    void                     *factors = tm_gpu_behind(call->workspace, (int64_t)group_parts_bytes(call));
    tm_gpu_arguments          a = { .bytes = 0 }, b = { .bytes = 0 }, c = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, (int)own);
    tm_gpu_pass_int(&a, CHUNK);
    TM_TRY(tm_gpu_start(call, GROUP_PARTS, tm_gpu_over(columns, THREADS), chunks, attr->samples, THREADS, &a, err));
    tm_gpu_pass(&b, factors);
    tm_gpu_pass(&b, call->workspace);
    tm_gpu_pass_int(&b, (int)columns);
    tm_gpu_pass_int(&b, (int)width);
    tm_gpu_pass_int(&b, (int)own);
    tm_gpu_pass_int(&b, CHUNK);
    tm_gpu_pass_int(&b, (int)chunks);
    tm_gpu_pass_double(&b, attr->eps);
    TM_TRY(tm_gpu_start(call, GROUP_FACTORS, attr->groups, attr->samples, 1, THREADS, &b, err));
    tm_gpu_pass(&c, call->out[0].data);
    for (int k = 0; k < 3; k++) tm_gpu_pass(&c, call->in[k].data);
    tm_gpu_pass(&c, factors);
    tm_gpu_pass_i64(&c, rows);
    tm_gpu_pass_int(&c, (int)columns);
    tm_gpu_pass_int(&c, (int)own);
    tm_gpu_pass_int(&c, (int)width);
    tm_gpu_pass_int(&c, attr->silu != 0);
    return tm_gpu_start_rows(call, GROUP_NORM, rows, columns, &c, err);
}

/* Both ways to multiply. */
#define BY(way)                                                                                                        \
    static tm_status prepare_convolution_##way(const void *device, const tm_call *call, void **state, tm_error *err)   \
    {                                                                                                                  \
        return prepare_convolution(device, call, tm_gpu_##way##_product, state, err);                                  \
    }                                                                                                                  \
    static tm_status launch_convolution_##way(const tm_call *call, tm_error *err)                                      \
    {                                                                                                                  \
        return launch_convolution(call, tm_gpu_##way##_product, err);                                                  \
    }
BY(library)
BY(own)

#define CONVOLUTION(way, ...)                                                                                          \
    {                                                                                                                  \
        .op = TM_OP_convolution, .name = "convolution/" #way, .refuse = refuse_convolution_##way,                      \
        .workspace = convolution_workspace_##way, .launch = launch_convolution_##way,                                  \
        .prepare = prepare_convolution_##way, .release = tm_gpu_forget, __VA_ARGS__                                    \
    }
const tm_kernel tm_gpu_encoders[] = { CONVOLUTION(library, .library = true),
                                      CONVOLUTION(own, ),
                                      { .op = TM_OP_group_norm,
                                        .name = "group_norm/gpu",
                                        .refuse = refuse_group_norm,
                                        .workspace = group_norm_workspace,
                                        .launch = launch_group_norm,
                                        .prepare = prepare_group_norm,
                                        .release = tm_gpu_forget },
                                      { .name = NULL } };
