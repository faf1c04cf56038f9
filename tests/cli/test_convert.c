/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark convert`: every row of its table follows from the rate, the devices and the FLOPs of a token. What a
 * figure is in tokens/s: tests/results/test_convert.c. */
#include "asked.h"

static const struct {
    const char *words, *of; /* of: the figure that was given, whose row is what was asked for; NULL: the rate */
    double      value, devices, seq, peak, tokens, batch;
} rows[] = {
    { "5000 tokens/s --model llama3.1_8B --tokens 15T --devices 8 --peak 1300", NULL, 5000, 8, 8192, 1300, 15e12, 0 },
    { "5000 tokens/s --model llama3.1_8B --all --devices 8 --peak 1300 --tokens 300B", NULL, 625, 8, 8192, 1300, 3e11,
      0 },
    { "400 --from titan --model llama3.1_8B --seq 4096 --window 512", "tflops_titan", 400, 1, 4096, 0, 0, 0 },
    { "2s/step --model llama2_70B --batch 8 --devices 4", NULL, 8 * 4096 / 2. / 4, 4, 4096, 0, 0, 8 },
    { "900 TFLOP/s --from lora --model llama2_70B --lora-parameters 45000000", "tflops_lora", 900, 1, 4096, 0, 0, 0 },
    { "0.5 samples/s --model flux_12b", NULL, 256, 1, 512, 0, 0, 0 },
};

/* A row; each is there once at most. */
static const json_t *row_of(const json_t *j, const char *quantity)
{
    size_t  i;
    json_t *row;
    json_array_foreach((json_t *)member(j, "rows"), i,
                       row) if (strcmp(string(row, "quantity"), quantity) == 0) return row;
    return NULL;
}

static void row_is(const json_t *j, const char *quantity, const char *unit, double each, double all)
{
    const json_t *row = row_of(j, quantity);
    if (!row) fail_msg("no row %s", quantity);
    assert_string_equal(string(row, "unit"), unit);
    if (isnan(each))
        assert_true(json_is_null(member(row, "per_device")));
    else
        is(quantity, number(row, "per_device"), each);
    is(quantity, number(row, "all_devices"), all);
}

TEST(rows_follow)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_text line = { 0 };
        size_t  k, conventions = 0;
        json_t *row;
        double  n = rows[i].devices, none = (double)NAN, days = rows[i].tokens / 86400;
        tm_text_printf(&line, "convert %s", rows[i].words);
        json_t *j = asked_json(line.data, TM_OK);
        double  rate = number(row_of(j, "tokens_per_second"), "per_device");
        is(rows[i].words, rows[i].of ? number(row_of(j, rows[i].of), "per_device") : rate, rows[i].value);
        row_is(j, "tokens_per_second", "tokens/s", rate, rate * n);
        row_is(j, strstr(rows[i].words, "flux") ? "images_per_second" : "samples_per_second", "1/s", rate / rows[i].seq,
               rate * n / rows[i].seq);
        json_array_foreach((json_t *)member(j, "rows"), k, row)
        {
            double flops = strcmp(string(row, "unit"), "TFLOP/s") == 0 ? number(row, "flops_per_token") : 0;
            if (flops <= 0) continue;
            conventions++;
            row_is(j, string(row, "quantity"), "TFLOP/s", rate * flops / 1e12, rate * flops * n / 1e12);
            if (rows[i].peak > 0) is("MFU", number(row, "mfu_percent"), 100 * rate * flops / (rows[i].peak * 1e12));
        }
        assert_int_equal(conventions, row_of(j, "tflops_lora") ? 9 : 7);
        assert_int_equal(row_of(j, "tflops_lora") != NULL, strstr(rows[i].words, "lora") != NULL);
        if (rows[i].batch > 0) row_is(j, "step_seconds", "s", none, rows[i].batch * rows[i].seq / (rate * n));
        if (rows[i].tokens > 0) row_is(j, "tokens", "tokens", none, rows[i].tokens);
        if (rows[i].tokens > 0) row_is(j, "time", "days", days / rate, days / rate / n);
        if (rows[i].tokens > 0) row_is(j, "device_time", "device hours", none, rows[i].tokens / rate / 3600);
        tm_text note = { 0 };
        tm_text_printf(&note,
                       " sequences of %g tokens, %g device%s; FLOP/s are tokens/s x FLOPs of a token by the convention",
                       rows[i].seq, n, n > 1 ? "s" : "");
        assert_non_null(strstr(string(j, "notes/0"), note.data));
        tm_text text = asked(line.data, TM_OK);
        assert_non_null(strstr(text.data, note.data));
        tm_text_fini(&text), tm_text_fini(&note), tm_text_fini(&line);
        json_decref(j);
    }
}

/* Each published figure is converted as the one that is given by hand. */
TEST(published_figures_are_converted_alike)
{
    static const char *const figures[][2] = { { "tflops_titan", "tflops_titan" },
                                              { "tflops_matmul", "tflops_matmul" },
                                              { "tflops_megatron", "tflops_megatron" },
                                              { "tflops_exact_causal", "tflops_exact-causal" } };
    size_t                   k, of_one = 0;
    json_t                  *all = asked_json("convert --published --model llama3.1_8B --tokens 15T", TM_OK), *row;
    json_array_foreach((json_t *)member(all, "rows"), k, row)
    {
        tm_text     line = { 0 };
        const char *convention = json_string_value(member(row, "convention")),
                   *seq = json_string_value(member(row, "seq"));
        tm_text_printf(&line, "convert %.17g %s --model llama3.1_8B%s%s%s%s", number(row, "published"),
                       string(row, "unit"), seq ? " --seq " : "", seq ? seq : "", convention ? " --from " : "",
                       convention ? convention : "");
        json_t *one = asked_json(line.data, TM_OK);
        is(line.data, number(row, "tokens_per_second"), number(row_of(one, "tokens_per_second"), "per_device"));
        for (int i = 0; i < 4; i++)
            is(figures[i][0], number(row, figures[i][0]), number(row_of(one, figures[i][1]), "per_device"));
        assert_true(number(row, "days") > 0);
        of_one += strcmp(string(row, "device"), "MI300X") == 0;
        json_decref(one);
        tm_text_fini(&line);
    }
    assert_true(of_one > 0 && k > of_one);
    json_decref(all);
    all = asked_json("convert --published --model llama3.1_8B --hardware mi300x", TM_OK);
    assert_int_equal(json_array_size(member(all, "rows")), of_one);
    json_decref(all);
    tm_text none = asked("convert --published --model tiny-llama", TM_INVALID);
    assert_non_null(strstr(asked_error.text, "no published speed of 'tiny-llama'"));
    tm_text_fini(&none);
}

TEST_FIXTURE(NULL, test_folder_teardown)
