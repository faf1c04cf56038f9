/* SPDX-License-Identifier: Apache-2.0 */
/* Each planted fault of a device and of the clock does what it says, and nothing else. */
#include "faults.h"

#include "base/clock.h"
#include "device/prepared.h"
#include "apps/node/memory_words.h"
#include "support/test.h"

static void plant(const char *text)
{
    tm_error err = { 0 };
    if (faults_plant(text, &err) != TM_OK) fail_msg("%s", err.text);
}

static void refused(const char *text, const char *why)
{
    tm_error err = { 0 };
    assert_int_equal(faults_plant(text, &err), TM_INVALID);
    if (!strstr(err.text, why)) fail_msg("%s: expected '%s', found '%s'", text, why, err.text);
}

TEST(wrong_descriptions_are_named)
{
    refused("flop,at=3",
            "'flop' is no kind of fault; the kinds are flip, stuck, slow, link, stale, swap, tail, hang, ");
    refused("slow,rate=0.5", "slow has no 'rate='; it takes KEY=VALUE, of rank, core, step, op, shape, percent, after");
    refused("slow,percent=x", "percent=x: expected a number from 0 to 1e+06");
    refused("slow,step=1.5", "step=1.5: expected a whole number");
    refused("flip,at=1,where=disk", "where=disk: expected  result memory message");
    refused("flip,where=memory", "flip: needs at=K");
    refused("swap,at=1,ranks=2-2", "ranks=2-2: expected two ranks");
    plant("slow,rank=1,percent=2.5,op=linear,shape=4x8,after=3;;clock=made,noise=0.5;seed=77");
    assert_int_equal(faults_planted()->n, 1);
    assert_int_equal(faults_planted()->seed, 77);
    assert_true(faults_planted()->made);
    assert_string_equal(faults_planted()->all[0].shape, "4x8");
    plant(NULL);
    assert_int_equal(faults_planted()->n, 0);
    assert_false(faults_planted()->made);
}

/* --- one launch after the other -------------------------------------------------------------------------------------
 */

enum { ROWS = 8, COLUMNS = 16, DEPTH = 4, Y = ROWS * COLUMNS };

typedef struct {
    tm_device   *device;
    tm_prepared *prepared;
    tm_address   memory, in[TM_MAX_IN], out[TM_MAX_OUT];
    size_t       bytes;
    uint32_t     y[Y];
} product;

static product product_open(const char *device)
{
    product  p = { .bytes = 4 * (ROWS * DEPTH + COLUMNS * DEPTH + Y) };
    float    x[ROWS * DEPTH + COLUMNS * DEPTH];
    tm_call  call = { .op = &tm_op_linear };
    tm_error err = { 0 };
    for (int i = 0; i < TM_MAX_IN; i++) call.in[i].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    call.in[0] = (tm_view){ .dtype = TM_F32, .shape = tm_shape_2(ROWS, DEPTH) };
    call.in[1] = (tm_view){ .dtype = TM_F32, .shape = tm_shape_2(COLUMNS, DEPTH) };
    call.out[0] = (tm_view){ .dtype = TM_F32, .shape = tm_shape_2(ROWS, COLUMNS) };
    for (int i = 0; i < ROWS * DEPTH + COLUMNS * DEPTH; i++) x[i] = (float)(i % 7) / 3 - 1;
    assert_int_equal(tm_device_open(device, 1, &p.device, &err), TM_OK);
    assert_int_equal(tm_device_alloc(p.device, p.bytes, &p.memory, &err), TM_OK);
    assert_int_equal(tm_device_write(p.device, p.memory, x, sizeof x, &err), TM_OK);
    p.in[0] = p.memory;
    p.in[1] = tm_address_add(p.memory, 4 * ROWS * DEPTH);
    p.out[0] = tm_address_add(p.memory, sizeof x);
    assert_int_equal(tm_prepared_open(p.device, &call, &p.prepared, &err), TM_OK);
    return p;
}

static void product_close(product *p)
{
    tm_prepared_close(p->prepared);
    tm_device_release(p->device, p->memory, p->bytes);
    tm_device_close(p->device);
}

static void product_run(product *p, uint32_t y[Y])
{
    tm_error err = { 0 };
    assert_int_equal(tm_prepared_run(p->prepared, p->in, p->out, &err), TM_OK);
    assert_int_equal(tm_device_read(p->device, y, p->out[0], 4 * Y, &err), TM_OK);
    assert_int_equal(tm_device_wait(p->device, &err), TM_OK);
}

/* Bits that differ; *mask: of the last element that does. */
static int bits_between(const uint32_t *x, const uint32_t *y, int n, uint32_t *mask)
{
    int bits = 0;
    for (int i = 0; i < n; i++) {
        bits += __builtin_popcount(x[i] ^ y[i]);
        if (x[i] != y[i]) *mask = x[i] ^ y[i];
    }
    return bits;
}

/* How many of so many launches have a wrong result; each wrong one has one wrong bit. */
static int wrong_launches(const char *text, const char *device, int launches, int *first, uint32_t *mask)
{
    uint32_t right[Y], y[Y];
    int      wrong = 0;
    plant(NULL);
    product p = product_open(device);
    product_run(&p, right);
    product_close(&p);
    plant(text);
    p = product_open(device);
    for (int i = 1; i <= launches; i++) {
        product_run(&p, y);
        int bits = bits_between(right, y, Y, mask);
        if (bits > 1) fail_msg("launch %d has %d wrong bits", i, bits);
        wrong += bits;
        if (bits && wrong == 1) *first = i;
    }
    product_close(&p);
    plant(NULL);
    return wrong;
}

TEST(one_bit_of_one_result)
{
    const char *devices[] = { "cpu", "late" };
    for (int d = 0; d < 2; d++) {
        int      first = 0;
        uint32_t mask = 0, again = 0;
        assert_int_equal(wrong_launches("flip,at=3,op=linear;seed=9", devices[d], 6, &first, &mask), 1);
        assert_int_equal(first, 3);
        assert_int_equal(wrong_launches("flip,at=3,op=linear;seed=9", devices[d], 6, &first, &again), 1);
        assert_int_equal(mask, again);
        assert_int_equal(wrong_launches("flip,at=2,bit=30", devices[d], 4, &first, &mask), 1);
        assert_int_equal(first, 2);
        assert_int_equal(mask, 1u << 30);
        assert_int_equal(wrong_launches("flip,at=3,shape=16x4", devices[d], 4, &first, &mask), 1);
    }
    int      first = 0;
    uint32_t mask = 0;
    assert_int_equal(wrong_launches("flip,at=1,op=add", "cpu", 4, &first, &mask), 0);
    assert_int_equal(wrong_launches("flip,at=1,rank=1", "cpu", 4, &first, &mask), 0);
    assert_int_equal(wrong_launches("flip,at=1,step=1", "cpu", 4, &first, &mask), 0); /* no training runs */
    assert_int_equal(wrong_launches("flip,at=1,shape=4x16", "cpu", 4, &first, &mask), 0);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Words that read back otherwise than they were written, of all zeros and all ones. */
TEST(stuck_bits_stay)
{
    enum { WORDS = 4096 };
    static uint64_t words[WORDS];
    tm_device      *device;
    tm_address      memory;
    tm_error        err = { 0 };
    plant("stuck,words=3,bit=7,to=1;seed=2");
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    assert_int_equal(tm_device_alloc(device, sizeof words, &memory, &err), TM_OK);
    for (int turn = 0; turn < 4; turn++) {
        int wrong = 0;
        memset(words, turn % 2 ? 0xff : 0, sizeof words);
        assert_int_equal(tm_device_write(device, memory, words, sizeof words, &err), TM_OK);
        if (turn > 1) assert_int_equal(tm_device_fill(device, memory, turn % 2 ? 0xff : 0, sizeof words, &err), TM_OK);
        assert_int_equal(tm_device_read(device, words, memory, sizeof words, &err), TM_OK);
        for (int i = 0; i < WORDS; i++)
            if (words[i] != (turn % 2 ? UINT64_MAX : 0)) {
                assert_int_equal(words[i], 1u << 7);
                wrong++;
            }
        assert_int_equal(wrong, turn % 2 ? 0 : 3);
    }
    tm_device_release(device, memory, sizeof words);
    tm_device_close(device);
    plant(NULL);
}

/* --- the clock ---------------------------------------------------------------------------------------------------- */

/* What each of some launches takes by the clock that the program reads. */
static void launch_times(const char *text, int n, int64_t *ns)
{
    uint32_t y[Y];
    tm_error err = { 0 };
    plant(text);
    product p = product_open("cpu");
    for (int i = 0; i < n; i++) {
        int64_t begin = tm_now_ns();
        assert_int_equal(tm_prepared_run(p.prepared, p.in, p.out, &err), TM_OK);
        ns[i] = tm_now_ns() - begin;
    }
    product_run(&p, y);
    product_close(&p);
    plant(NULL);
}

/* 8 x 16 x 4 products at 1 GFLOP/s: 1024 ns; latency 2 us; a reading 20 ns. */
TEST(time_is_what_work_takes)
{
    int64_t ns[8], again[8], slow[8], sum = 0;
    launch_times("clock=made,gflops=1,latency_us=2", 8, ns);
    for (int i = 0; i < 8; i++) assert_int_equal(ns[i], 2 * ROWS * COLUMNS * DEPTH + 2000 + 20);
    launch_times("clock=made,gigabytes=0.001,latency_us=0", 1, ns);
    assert_int_equal(ns[0], 1000 * 4 * (ROWS * DEPTH + COLUMNS * DEPTH + Y) + 20);
    launch_times("clock=made,noise=2,latency_us=100;seed=5", 8, ns);
    launch_times("clock=made,noise=2,latency_us=100;seed=5", 8, again);
    assert_memory_equal(ns, again, sizeof ns);
    launch_times("clock=made,noise=2,latency_us=100;seed=6", 8, again);
    assert_memory_not_equal(ns, again, sizeof ns);
    for (int i = 0; i < 8; i++) {
        assert_in_range(ns[i], 88000, 112000); /* 6 standard deviations */
        sum += ns[i] != ns[0];
    }
    assert_int_equal(sum, 7);
    launch_times("clock=made,noise=2,latency_us=100;seed=5;slow,percent=3", 8, slow);
    for (int i = 0; i < 8; i++) assert_in_range(slow[i] - 20 - (ns[i] - 20) * 103 / 100, 0, 1);
}

TEST(slow_as_it_says)
{
    static const struct {
        const char *text;
        int         from; /* the first launch that is slow; 8: none */
    } rows[] = {
        { "slow,percent=4;slow,percent=6", 0 },  { "slow,percent=10,shape=8x16", 0 },
        { "slow,percent=10,shape=8x8", 8 },      { "slow,percent=10,rank=1", 8 },
        { "slow,percent=10,after=0.000035", 4 }, /* the fourth begins after some 30.1 us */
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        char    text[160];
        int64_t ns[8];
        snprintf(text, sizeof text, "clock=made,latency_us=10;%s", rows[r].text);
        launch_times(text, 8, ns);
        for (int i = 0; i < 8; i++)
            if (llabs(ns[i] - (i >= rows[r].from ? 11000 : 10000)) > 100)
                fail_msg("%s: launch %d takes %lld ns", rows[r].text, i, (long long)ns[i]);
    }
}
