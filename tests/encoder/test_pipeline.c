/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of diffusers as a whole: what stands in front of a FLUX.1 transformer, and what makes pictures of its
 * latents, give what their parts give. The parts are judged in test_text.c and test_vae.c. */
#include "encoder/encoders.h"
#include "encoder/pixels.h"

#include "support/test.h"

static const char folder[] = "tests/encoder/pipeline/model";

enum { SIDE = 32, ROWS = 2, COLUMNS = 3, CHANNELS = 4, LATENT = SIDE / 8 };

static float *numbers(int64_t n)
{
    float *out = malloc((size_t)n * sizeof *out);
    for (int64_t i = 0; i < n; i++) out[i] = (float)sin((double)(i * i % 97 + i));
    return out;
}

TEST(encoders_give_what_their_parts_do)
{
    tm_device       *device;
    tm_encoders     *all;
    tm_texts        *texts;
    tm_frozen       *vae;
    tm_frozen_size   size = { .batch = 1, .height = SIDE, .width = SIDE };
    tm_encoders_form form = { .height = SIDE, .width = SIDE, .text_len = 12, .compute = TM_F32 };
    enum { MOST = 1 << 14, N = CHANNELS * LATENT * LATENT };
    float  *pixels = numbers(SIDE * SIDE * 3), *got = numbers(MOST), *want = numbers(MOST);
    int64_t cut = -1;
    assert_ok(tm_device_open("cpu", 1, &device, err));
    assert_ok(tm_encoders_open(device, folder, &form, &all, err));
    assert_ok(tm_texts_open(device, folder, form.text_len, TM_F32, &texts, err));
    assert_ok(
        tm_frozen_open(device, "tests/encoder/pipeline/model/vae", TM_FROZEN_VAE_ENCODE, &size, TM_F32, &vae, err));
    const tm_encoders_facts *facts = tm_encoders_describe(all);
    assert_int_equal(facts->channels * facts->rows * facts->columns, N);
    assert_int_equal(tm_encoders_bytes(all), tm_texts_bytes(texts) + tm_frozen_bytes(vae));
    assert_ok(tm_encoders_picture(all, pixels, got, got + N, err));
    assert_ok(tm_frozen_encode(vae, pixels, want, want + N, err));
    assert_memory_equal(got, want, 2 * N * sizeof *got);
    int64_t n = form.text_len * facts->text_dim;
    assert_true(n + facts->vector_dim <= MOST);
    assert_ok(tm_encoders_text(all, "a red square", got, got + n, &cut, err));
    assert_ok(tm_texts_encode(texts, "a red square", want, want + n, NULL, err));
    assert_memory_equal(got, want, (size_t)(n + facts->vector_dim) * sizeof *got);
    tm_encoders_close(all);
    tm_texts_close(texts);
    tm_frozen_close(vae);
    tm_device_close(device);
    free(pixels), free(got), free(want);
}

/* A number of the transformer's is 2 x 2 latents of a channel: channels outside, then rows, then columns. The folder
 * scales by 0.6 and shifts by 0.1. */
TEST(pixels_are_those_of_the_decoder)
{
    tm_device     *device;
    tm_pixels     *whole;
    tm_frozen     *decoder;
    tm_frozen_size size = { .batch = 1, .height = 16 * ROWS, .width = 16 * COLUMNS };
    enum { N = ROWS * COLUMNS * 4 * CHANNELS, OUT = 16 * ROWS * 16 * COLUMNS * 3 };
    float *latents = numbers(N), *spread = numbers(N), *got = numbers(OUT), *want = numbers(OUT);
    for (int i = 0; i < N; i++) {
        int at = i % (4 * CHANNELS), token = i / (4 * CHANNELS), c = at / 4;
        int y = token / COLUMNS * 2 + at / 2 % 2, x = token % COLUMNS * 2 + at % 2;
        spread[(c * 2 * ROWS + y) * 2 * COLUMNS + x] = (float)((double)latents[i] / 0.6 + 0.1);
    }
    assert_ok(tm_device_open("cpu", 1, &device, err));
    assert_ok(tm_pixels_open(device, folder, ROWS, COLUMNS, 4 * CHANNELS, TM_F32, &whole, err));
    assert_ok(
        tm_frozen_open(device, "tests/encoder/pipeline/model/vae", TM_FROZEN_VAE_DECODE, &size, TM_F32, &decoder, err));
    assert_int_equal(tm_pixels_bytes(whole), tm_frozen_bytes(decoder));
    assert_ok(tm_pixels_decode(whole, latents, got, err));
    assert_ok(tm_frozen_decode(decoder, spread, want, err));
    assert_memory_equal(got, want, OUT * sizeof *got);
    tm_pixels_close(whole);
    assert_refused(tm_pixels_open(device, folder, ROWS, COLUMNS, 4 * CHANNELS + 4, TM_F32, &whole, err), TM_INVALID,
                   "has 4 channels and 8 pixels to a latent, the model wants 5 and 8");
    tm_frozen_close(decoder);
    tm_device_close(device);
    free(latents), free(spread), free(got), free(want);
}
