/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/convolution.c - the kernel of convolution; formula in op/convolution.c.
 *
 * What the kernel meets at a position of the result is a row of k k C values. Strips of such rows are written to
 * scratch by all threads, then multiplied with the weight by one product of device/cpu/gemm.h, bias and residual
 * added on the way. With a 1 x 1 kernel of stride 1 the rows are those of x. A product's bits depend on neither threads
 * nor strips.
 */
#include "device/cpu/gemm.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

enum {
    STRIP_BYTES = 4 << 20, /* of a strip, for each thread, roughly: what is near a core, and a few more */
    MOST_BYTES = 64 << 20, /* for all threads */
    LEAST_ROWS = 256,      /* the weight is packed again for each strip */
    MOST_ROWS = 1024,      /* for each thread */
    SHARE = 32             /* rows that a thread takes at a time */
};

/* A float32 weight is rounded while it is packed. */
static TM_PLANNED bool is_rounded(const tm_call *call)
{
    return call->rounded == 1u << 1 && call->in[1].dtype == TM_F32;
}
static TM_PLANNED const char *refuse(const tm_call *call)
{
    if (TM_PAIRS && !(call->in[0].dtype == TM_BF16 && (call->in[1].dtype == TM_BF16 || is_rounded(call))))
        return "needs bfloat16 inputs";
    if (!TM_PAIRS && call->rounded) return "does not round weights while packing";
    if (!tm_is_float(&call->in[0]) || !tm_is_float(&call->in[1])) return "needs float32 or bfloat16 inputs";
    if (tm_refuse_format(&call->in[2]) || tm_refuse_format(&call->in[3]))
        return "needs a float32 or bfloat16 bias and residual";
    return tm_is_float(&call->out[0]) ? NULL : "needs a float32 or bfloat16 output";
}

/* Without strips: x is the matrix that is multiplied. */
static TM_PLANNED bool is_plain(const tm_convolution_attr *attr)
{
    return attr->kernel == 1 && attr->stride == 1 && attr->upsample == 1 && attr->pad_before + attr->pad_after == 0;
}

static TM_PLANNED int64_t strip_rows(const tm_call *call)
{
    int64_t bytes = call->in[1].shape.n[1] * (int64_t)tm_dtype_bytes(call->in[0].dtype);
    int64_t rows =
        tm_min(MOST_ROWS * call->threads, tm_min(STRIP_BYTES * call->threads, MOST_BYTES) / tm_max(1, bytes));
    return tm_min(tm_max(LEAST_ROWS, rows), call->out[0].shape.n[0]);
}
static TM_PLANNED size_t strip_bytes(const tm_call *call)
{
    if (is_plain(call->attr)) return 0;
    size_t row = (size_t)call->in[1].shape.n[1] * tm_dtype_bytes(call->in[0].dtype);
    return ((size_t)strip_rows(call) * row + 63) / 64 * 64;
}

static TM_PLANNED void *rows_from(const tm_view *view, int64_t row)
{
    size_t bytes = (size_t)(row * view->shape.n[1]) * tm_dtype_bytes(view->dtype);
    return view->data ? (char *)view->data + bytes : NULL;
}

/* Rows begin .. end - 1 of y, of the matrix `a`, whose first row belongs to row `begin`. */
static TM_PLANNED tm_gemm product(const tm_call *call, const void *a, int64_t begin, int64_t end)
{
    const tm_view *w = &call->in[1], *bias = &call->in[2], *residual = &call->in[3], *y = &call->out[0];
    int64_t        k = w->shape.n[1], m = y->shape.n[1];
    tm_gemm        g = { .m = end - begin,
                         .n = m,
                         .k = k,
                         .a = { a, k, false, call->in[0].dtype },
                         .b = { w->data, k, true, w->dtype },
                         .c = rows_from(y, begin),
                         .ldc = m,
                         .c_dtype = y->dtype,
                         .narrow_b = TM_PAIRS && is_rounded(call),
                         .threads = call->threads,
                         .workspace = call->workspace ? (char *)call->workspace + strip_bytes(call) : NULL };
    if (tm_view_present(bias)) g.bias = bias->data, g.bias_dtype = bias->dtype;
    if (tm_view_present(residual)) {
        g.residual = rows_from(residual, begin);
        g.residual_dtype = residual->dtype;
        g.ld_residual = m;
    }
    return g;
}

static TM_PLANNED size_t workspace(const tm_call *call)
{
    bool    plain = is_plain(call->attr);
    tm_gemm g = product(call, NULL, 0, plain ? call->out[0].shape.n[0] : strip_rows(call));
    return plain ? TM_K(tm_gemm_workspace)(&g) : strip_bytes(call) + TM_K(tm_gemm_workspace_most)(&g);
}

/* What of a picture's line the kernel meets with one of its lines: `kernel` columns of `column` bytes from column
 * `first` on, of the upsampled line; those outside are 0. line NULL: all are. */
TM_INLINE void put_line(char *to, const char *line, const tm_convolution_attr *attr, int64_t first, size_t column)
{
    int64_t up = attr->upsample, k = attr->kernel;
    int64_t begin = tm_min(k, tm_max(0, -first)), end = tm_max(begin, tm_min(k, attr->width * up - first));
    if (!line) begin = end = k;
    memset(to, 0, (size_t)begin * column);
    memset(to + (size_t)end * column, 0, (size_t)(k - end) * column);
    if (up == 1 && end > begin)
        memcpy(to + (size_t)begin * column, line + (size_t)(first + begin) * column, (size_t)(end - begin) * column);
    for (int64_t v = begin; up > 1 && v < end; v++)
        memcpy(to + (size_t)v * column, line + (size_t)((first + v) / up) * column, column);
}

/* Row r of the matrix that is multiplied. */
static void put_row(const tm_call *call, char *to, int64_t r)
{
    const tm_convolution_attr *attr = call->attr;
    size_t                     column = (size_t)call->in[0].shape.n[1] * tm_dtype_bytes(call->in[0].dtype);
    int64_t columns = tm_convolution_extent(attr, attr->width), lines = tm_convolution_extent(attr, attr->height);
    int64_t b = r / columns / lines, i = r / columns % lines, j = r % columns, k = attr->kernel;
    for (int64_t u = 0; u < k; u++) {
        int64_t     at = i * attr->stride + u - attr->pad_before;
        bool        inside = at >= 0 && at < attr->height * attr->upsample;
        int64_t     line = b * attr->height + at / attr->upsample;
        const char *from = inside ? (const char *)call->in[0].data + (size_t)(line * attr->width) * column : NULL;
        put_line(to + (size_t)(u * k) * column, from, attr, j * attr->stride - attr->pad_before, column);
    }
}

static void run(const tm_call *call)
{
    int64_t all = call->out[0].shape.n[0], rows = strip_rows(call), k = call->in[1].shape.n[1];
    size_t  row = (size_t)k * tm_dtype_bytes(call->in[0].dtype);
    if (is_plain(call->attr)) {
        tm_gemm g = product(call, call->in[0].data, 0, all);
        TM_K(tm_gemm_run)(&g);
        return;
    }
    for (int64_t begin = 0; begin < all; begin += rows) {
        int64_t end = tm_min(all, begin + rows);
        char   *strip = call->workspace;
        bool    together = call->threads > 1 && (end - begin) * k >= TM_SERIAL_ELEMENTS;
#pragma omp parallel for schedule(dynamic, SHARE) num_threads(call->threads) if (together)
        for (int64_t r = begin; r < end; r++) put_row(call, strip + (size_t)(r - begin) * row, r);
        tm_gemm g = product(call, strip, begin, end);
        TM_K(tm_gemm_run)(&g);
    }
}

const tm_kernel TM_K(tm_cpu_convolution)[] = {
    { .op = TM_OP_convolution,
      .name = "convolution/own-" TM_ISA_NAME,
      .refuse = refuse,
      .workspace = workspace,
      .run = run,
      .rounds = TM_PAIRS ? 1u << 1 : 0 },
    { .name = NULL },
};
