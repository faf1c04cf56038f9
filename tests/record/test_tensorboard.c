/* SPDX-License-Identifier: Apache-2.0 */
/* The event file for TensorBoard, decoded here: frames with their sums, events with steps and values. The format was
 * held against TensorBoard's own reader by tools/check_tensorboard.py. */
#include "support/fake_clock.h"
#include "support/fake_run.h"
#include "support/folder.h"
#include "support/full_config.h"

#include "support/test.h"

#include "base/file.h"
#include "record/record.h"
#include "record/sink_kind.h"

#include <dirent.h>
#include <fcntl.h>

/* CRC-32C bit by bit from the highest: the mirrored form of what the sink does. */
static uint32_t crc_of(const unsigned char *data, size_t n)
{
    uint32_t crc = 0xffffffffu, out = 0;
    for (size_t i = 0; i < 8 * n; i++) {
        uint32_t bit = data[i / 8] >> i % 8 & 1, top = crc >> 31;
        crc = crc << 1 ^ (top ^ bit ? 0x1edc6f41u : 0);
    }
    for (int i = 0; i < 32; i++) out |= (crc >> i & 1) << (31 - i);
    return ~out;
}

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static void expect_crc(const unsigned char *data, size_t n, const unsigned char *at)
{
    uint32_t crc = crc_of(data, n);
    assert_int_equal(little(at, 4), (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u));
}

/* Of the test's clock, in seconds. */
static void expect_time(const unsigned char *event)
{
    double   time = FAKE_BEGIN_S + (double)FAKE_WALL_S + 1.5;
    uint64_t bits;
    memcpy(&bits, &time, sizeof bits);
    assert_int_equal(event[0], 9);
    assert_int_equal(little(event + 1, 8), bits);
}

/* The last value of a tag, and how many there are; steps below 128 are one byte. */
static int find(const unsigned char *file, size_t n, const char *tag, int *step, float *value)
{
    int count = 0;
    for (size_t at = 0; at < n;) {
        size_t               length = (size_t)little(file + at, 8);
        const unsigned char *event = file + at + 12;
        expect_crc(file + at, 8, file + at + 8);
        expect_crc(event, length, event + length);
        expect_time(event);
        assert_int_equal(event[9], 16); /* step */
        const unsigned char *text = event + 11;
        if (text[0] == 42 && text[2] == 10 && text[4] == 10 && text[5] == strlen(tag) &&
            memcmp(text + 6, tag, strlen(tag)) == 0) {
            uint32_t bits = (uint32_t)little(text + 6 + strlen(tag) + 1, 4);
            assert_int_equal(text[6 + strlen(tag)], 21); /* simple_value */
            memcpy(value, &bits, sizeof *value);
            *step = event[10];
            count++;
        }
        at += 12 + length + 4;
    }
    return count;
}

/* The one event file of a folder; the caller frees. */
static unsigned char *event_file(const char *in, size_t *n)
{
    char           path[900] = "";
    unsigned char *bytes = malloc(1 << 20);
    DIR           *folder = opendir(in);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') snprintf(path, sizeof path, "%s/%.255s", in, entry->d_name);
    closedir(folder);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *n = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

TEST(the_file_holds_every_step)
{
    assert_int_equal(crc_of((const unsigned char *)"123456789", 9), 0xe3069283u); /* the check value of CRC-32C */
    tm_config        *config = test_full_config();
    tm_arena         *arena = tm_arena_create();
    char             *words[] = { (char *)"--metrics.enable_tensorboard", (char *)"true" };
    tm_output_options o = { .folder = test_folder(), .config = config };
    tm_sink          *sink;
    tm_error          err = { 0 };
    assert_false(record_tensorboard_kind.wanted(&o));
    assert_int_equal(tm_config_apply_arguments(config, 2, words, &err), TM_OK);
    assert_true(record_tensorboard_kind.wanted(&o));
    assert_int_equal(record_tensorboard_kind.open(&o, NULL, arena, &sink, &err), TM_OK);
    fake_clock_start(0, 0);
    fake_clock_pass(1500000000);
    fake_run(sink, TM_VERDICT_VALID, "");
    fake_emit(sink, fake_step(16384)); /* of three bytes, seven bits in each, the lowest first */
    fake_close(sink);
    fake_clock_stop();
    size_t         n;
    unsigned char *bytes = event_file(test_in_folder("tb"), &n);
    int            step;
    float          value;
    assert_non_null(memmem(bytes, n, "\x10\x80\x80\x01*", 5));
    assert_int_equal(find(bytes, n, "loss_metrics/global_avg_loss", &step, &value), FAKE_STEPS);
    assert_int_equal(step, FAKE_STEPS);
    assert_true(value == (float)fake_step(FAKE_STEPS).step_done.loss);
    const tm_step_done  last = fake_step(FAKE_STEPS).step_done;
    const tm_named_f64 *flops = fake_started().run_started.flops_per_token;
    const struct {
        const char *tag;
        double      value;
    } tags[] = { { "lr", last.learning_rate },
                 { "grad_norm", last.grad_norm },
                 { "throughput(tps)", (double)last.tokens / last.seconds },
                 { "tflops", (double)last.tokens / last.seconds * flops[0].value / 1e12 },
                 { "time_metrics/end_to_end(s)", last.seconds } };
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        assert_int_equal(find(bytes, n, tags[i].tag, &step, &value), FAKE_STEPS);
        assert_int_equal(step, FAKE_STEPS);
        assert_true(value == (float)tags[i].value);
    }
    /* The first record tells the version, step 0, and no byte more. */
    assert_int_equal(little(bytes, 8), 26);
    assert_memory_equal(bytes + 12 + 9, "\x10\0\x1a\rbrain.Event:2", 17);
    assert_int_equal(find(bytes, n, "validation_metrics/loss", &step, &value), 1);
    assert_int_equal(find(bytes, n, "nothing", &step, &value), 0);
    free(bytes);
    tm_config_destroy(config);
    tm_arena_destroy(arena);
}

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
