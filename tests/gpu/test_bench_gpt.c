/* SPDX-License-Identifier: Apache-2.0 */
/* `bench gpt` on the devices cuda and hip: the loss is that of the CPU within rounding; the model takes steps, and
 * turns with its slices; what does not fit is skipped, and nothing stays behind. */
#include "gpu/benched.h"
#include "support/folder.h"

/* A model of three layers, as a file: its path. */
static const char *model(void)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/micro.yaml", test_folder());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("model: { family: gpt, name: micro, dim: 32, n_layers: 3, n_heads: 2, ffn_dim: 64, vocab_size: 64, "
          "max_seq_len: 32, tied: true, init: gpt2 }\n"
          "training: { seq_len: 8, local_batch_size: 2 }\n",
          f);
    fclose(f);
    return path;
}

static measured steps_of(const char *device, const char *words)
{
    char all[4400];
    snprintf(all, sizeof all, "sizes=%s %s", model(), words);
    return measure("gpt", device, all);
}

/* By the loss of the first step. Those that follow depend on how many there were: tests/gpu/test_device_runs.sh. */
static void steps_are_those_of_a_cpu(int hip)
{
    static const struct {
        const char *dtype;
        double      bound;
    } cases[] = { { "float32", 1e-4 }, { "bfloat16", 1e-2 }, { "bfloat16-pure", 1e-2 } };
    begin(hip);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[80];
        snprintf(words, sizeof words, "layers=3 dtype=%s", cases[i].dtype);
        measured there = steps_of(devices[hip], words), here = steps_of("cpu", words);
        if (there.status != TM_OK) fail_msg("%s: %s", words, there.err.text);
        assert_int_equal(here.status, TM_OK);
        assert_int_equal(tm_table_n_rows(there.table), 1);
        assert_string_equal(text(&there, 0, "device"), devices[hip]);
        assert_string_equal(text(&there, 0, "row"), "model");
        assert_true(cell(&there, 0, "tokens_per_second")->f64 > 0);
        double found = cell(&there, 0, "loss_first")->f64, wanted = cell(&here, 0, "loss_first")->f64;
        if (!(fabs(found - wanted) <= cases[i].bound * wanted))
            fail_msg("%s on %s: loss %.9g, on the CPU %.9g", cases[i].dtype, devices[hip], found, wanted);
        assert_true(isfinite(cell(&there, 0, "loss_last")->f64) && cell(&there, 0, "loss_last")->f64 != found);
        assert_true(has_note(&there, "no data sheet of 'a stand-in'"));
        tm_table_destroy(there.table);
        tm_table_destroy(here.table);
    }
    check_nothing_is_left(hip, "the steps");
}

TEST_ON(cuda, FULL_TEST, takes_steps, steps_are_those_of_a_cpu(0))
TEST_ON(hip, FULL_TEST, takes_steps, steps_are_those_of_a_cpu(1))

/* Several parts are open on one device, and take turns. */
FULL_TEST(slices_and_the_model_in_turns)
{
    begin(1);
    measured m = steps_of("hip", "layers=1,2 validate=always turn_ms=0 max_rounds=3 budget=60");
    if (m.status != TM_OK && m.status != TM_NUMBERS) fail_msg("%s", m.err.text); /* too noisy for a prediction */
    assert_true(tm_table_n_rows(m.table) >= 3);
    for (size_t row = 0; row < 3; row++) {
        assert_string_equal(text(&m, row, "row"), row < 2 ? "slice" : "model");
        assert_string_equal(text(&m, row, "tag"), "measured");
        assert_int_equal(cell(&m, row, "n")->i64, 3);
    }
    tm_table_destroy(m.table);
    check_nothing_is_left(true, "the slices");
}

FULL_TEST(what_does_not_fit_is_skipped)
{
    begin(0);
    measured m = measure("gpt", "cuda", "sizes=13b batch=64");
    assert_int_equal(m.status, TM_NUMBERS);
    if (!strstr(text(&m, 0, "skipped"), "no slice fits either; 3.50 GiB may be used"))
        fail_msg("%s", text(&m, 0, "skipped"));
    tm_table_destroy(m.table);
    setenv("STANDIN_GPU_FAIL", "cuMemAlloc_v2@1=2", 1);
    m = steps_of("cuda", "layers=3");
    unsetenv("STANDIN_GPU_FAIL");
    assert_int_equal(m.status, TM_NUMBERS);
    if (!strstr(text(&m, 0, "skipped"), "has no memory for ")) fail_msg("%s", text(&m, 0, "skipped"));
    tm_table_destroy(m.table);
    check_nothing_is_left(false, "memory");
}
