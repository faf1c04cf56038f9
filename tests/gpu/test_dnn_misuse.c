/* SPDX-License-Identifier: Apache-2.0 */
/* Who uses the stand-in for cuDNN wrongly is told why (tests/standins/cudnn.c), and nothing is executed. */
#include "gpu/dnn_raw.h"

#include <string.h>

#include "support/test.h"

TEST_FIXTURE(dnn_raw_begin, dnn_raw_end)

static const shape of_trial = { 1, 17, 17, 3, 3, 16 };

static const layout square = { { 1, 1, 8, 8 }, { 64, 64, 8, 1 } };

static int other_type(void)
{
    int64_t format = F32;
    return dnn_raw.set(dnn_raw_make(TENSOR), 901, T_I64, 1, &format);
}

static int other_count(void)
{
    int formats[] = { F32, F32 };
    return dnn_raw.set(dnn_raw_make(TENSOR), 901, T_FORMAT, 2, formats);
}

static int foreign_attribute(void)
{
    int format = F32;
    return dnn_raw.set(dnn_raw_make(TENSOR), 1500, T_FORMAT, 1, &format);
}

static int late_attribute(void)
{
    int format = BF16;
    return dnn_raw.set(dnn_raw_tensor(1, F32, square, false), 901, T_FORMAT, 1, &format);
}

static int missing_attribute(void)
{
    int   format = F32;
    void *t = dnn_raw_make(TENSOR);
    dnn_raw_set(t, 901, T_FORMAT, 1, &format);
    return dnn_raw.finish(t);
}

static int unfinished_operand(void)
{
    void *t = dnn_raw_unfinished(1, F32, square, false);
    return dnn_raw.set(dnn_raw_make(OF_MATMUL), 1520, T_DESCRIPTOR, 1, &t);
}

static int gone_operand(void)
{
    void *t = dnn_raw_tensor(1, F32, square, false);
    dnn_raw_good(dnn_raw.drop(dnn_raw.all[--dnn_raw.n_all]));
    return dnn_raw.set(dnn_raw_make(OF_MATMUL), 1520, T_DESCRIPTOR, 1, &t);
}

static int narrow_rows(void)
{
    return dnn_raw.finish(dnn_raw_unfinished(1, F32, (layout){ { 1, 2, 8, 8 }, { 64, 8, 8, 1 } }, false));
}

static int misfit(void)
{
    layout tall = { { 1, 1, 16, 8 }, { 128, 128, 8, 1 } };
    return dnn_raw.finish(dnn_raw_matmul(dnn_raw_tensor(1, BF16, square, false), dnn_raw_tensor(2, BF16, tall, false),
                                         dnn_raw_tensor(3, F32, square, false)));
}

static int odd_heads(void)
{
    layout two = { { 1, 2, 8, 8 }, { 128, 64, 8, 1 } }, three = { { 1, 3, 8, 8 }, { 192, 64, 8, 1 } };
    return dnn_raw.finish(dnn_raw_matmul(dnn_raw_tensor(1, BF16, three, false), dnn_raw_tensor(2, BF16, two, false),
                                         dnn_raw_tensor(3, F32, three, false)));
}

static int float_comparison(void)
{
    void *x = dnn_raw_tensor(1, F32, square, false);
    return dnn_raw.finish(dnn_raw_pointwise(NOT_LESS, x, x, NULL, dnn_raw_tensor(2, F32, square, false), -1));
}

static int no_axis(void)
{
    void *x = dnn_raw_tensor(1, F32, square, false), *how = dnn_raw_make(0);
    int   function = INDEX, format = F32;
    (void)x;
    dnn_raw_set(how, 0, T_FUNCTION, 1, &function);
    dnn_raw_set(how, 1, T_FORMAT, 1, &format);
    return dnn_raw.finish(how);
}

static int graph_of(void *first, void *second)
{
    void *graph = dnn_raw_make(GRAPH), *of[] = { first, second };
    dnn_raw_good(dnn_raw.finish(first));
    dnn_raw_good(dnn_raw.finish(second));
    dnn_raw_set(graph, 801, T_DESCRIPTOR, 2, of);
    dnn_raw_set(graph, 800, T_HANDLE, 1, &dnn_raw.handle);
    return dnn_raw.finish(graph);
}

static int made_twice(void)
{
    void *x = dnn_raw_tensor(1, F32, square, false), *y = dnn_raw_tensor(2, F32, square, false);
    return graph_of(dnn_raw_pointwise(EXP, x, NULL, NULL, y, -1), dnn_raw_pointwise(LOG, x, NULL, NULL, y, -1));
}

static int read_too_early(void)
{
    void *x = dnn_raw_tensor(1, F32, square, false), *y = dnn_raw_tensor(2, F32, square, true),
         *z = dnn_raw_tensor(3, F32, square, false);
    return graph_of(dnn_raw_pointwise(EXP, y, NULL, NULL, z, -1), dnn_raw_pointwise(LOG, x, NULL, NULL, y, -1));
}

static int same_number(void)
{
    void *x = dnn_raw_tensor(1, F32, square, false), *y = dnn_raw_tensor(2, F32, square, true),
         *z = dnn_raw_tensor(1, F32, square, false);
    return graph_of(dnn_raw_pointwise(EXP, x, NULL, NULL, y, -1), dnn_raw_pointwise(LOG, y, NULL, NULL, z, -1));
}

static int nobody_reads(void)
{
    void *x = dnn_raw_tensor(1, F32, square, false), *y = dnn_raw_tensor(2, F32, square, true),
         *z = dnn_raw_tensor(3, F32, square, false);
    return graph_of(dnn_raw_pointwise(EXP, x, NULL, NULL, y, -1), dnn_raw_pointwise(LOG, x, NULL, NULL, z, -1));
}

/* o so many bytes further, of a workspace that begins so many bytes before its end; `values`: NULL, all of them. */
static int execute(size_t further, size_t room, void *own_stream, void *values)
{
    trial t;
    dnn_raw_open_trial(&t, &of_trial);
    dnn_raw_good(dnn_raw.set_stream(dnn_raw.handle, own_stream));
    const char *ws = room ? t.ws + dnn_raw.workspace() - room : NULL;
    int status = dnn_raw.execute(dnn_raw.handle, t.plan, values ? values : dnn_raw_pack_of(&t, t.o + further, ws));
    dnn_raw_close_trial(&t);
    return status;
}

static int short_memory(void)
{
    return execute(16, 256, dnn_raw.stream, NULL);
}

static int misaligned(void)
{
    return execute(2, 256, dnn_raw.stream, NULL);
}

static int little_workspace(void)
{
    return execute(0, 16, dnn_raw.stream, NULL);
}

static int no_workspace(void)
{
    return execute(0, 0, dnn_raw.stream, NULL);
}

static int no_stream(void)
{
    return execute(0, 256, NULL, NULL);
}

static int few_operands(void)
{
    void         *pack = dnn_raw_make(PACK), *memory;
    const int64_t uid = Q;
    tm_error      err = { 0 };
    dnn_raw_must(tm_gpu_alloc(dnn_raw.gpu, 8192, &memory, &err), &err);
    dnn_raw_set(pack, 1000, T_I64, 1, &uid);
    dnn_raw_set(pack, 1001, T_ADDRESS, 1, &memory);
    dnn_raw_good(dnn_raw.finish(pack));
    int status = execute(0, 0, dnn_raw.stream, pack);
    tm_gpu_free(dnn_raw.gpu, memory);
    return status;
}

static const struct {
    int (*use)(void);
    int         status;
    const char *words;
} wrong_uses[] = { { other_type, 2010, "an attribute of another type" },
                   { other_count, 2000, "a count of elements" },
                   { foreign_attribute, 2000, "an attribute that the descriptor does not have" },
                   { late_attribute, 2000, "the descriptor is finalized" },
                   { missing_attribute, 2000, "an attribute is missing" },
                   { unfinished_operand, 2004, "a descriptor that is not finalized" },
                   { gone_operand, 2000, "or is gone" },
                   { narrow_rows, 2000, "elements that overlap" },
                   { misfit, 2000, "the matrices do not fit together" },
                   { odd_heads, 2000, "the matrices do not fit together" },
                   { float_comparison, 2000, "comparisons are boolean" },
                   { no_axis, 2000, "an index is one of an axis" },
                   { made_twice, 2000, "a tensor that is made twice" },
                   { read_too_early, 2000, "before anything makes it" },
                   { same_number, 2000, "two tensors with one number" },
                   { nobody_reads, 2000, "a virtual tensor that nothing reads" },
                   { short_memory, 2000, "not all of it" },
                   { misaligned, 2003, "an address that is not aligned as its tensor" },
                   { little_workspace, 2000, "or too little" },
                   { no_workspace, 2000, "no workspace in the memory of the GPU" },
                   { no_stream, 2000, "no stream" },
                   { few_operands, 2000, "a tensor without an address" } };

TEST(wrong_uses_are_told)
{
    for (size_t i = 0; i < sizeof wrong_uses / sizeof wrong_uses[0]; i++) {
        char words[200];
        int  before = dnn_raw.executed(), status = wrong_uses[i].use();
        dnn_raw.last_words(words, sizeof words);
        if (status != wrong_uses[i].status || !strstr(words, wrong_uses[i].words))
            fail_msg("status %d: %s; not %d: %s", status, words, wrong_uses[i].status, wrong_uses[i].words);
        assert_int_equal(dnn_raw.executed(), before);
        while (dnn_raw.n_all > 0) dnn_raw_good(dnn_raw.drop(dnn_raw.all[--dnn_raw.n_all]));
    }
}
