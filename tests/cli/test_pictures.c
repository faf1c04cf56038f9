/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures drawn with a folder of FLUX.1 are those that diffusers draws from it (tools/flux_pipeline.py). */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "data/safetensors.h"
#include "image/image.h"

#include <signal.h>

#include "support/folder.h"
#include "support/test.h"

#define PIPELINE "tests/encoder/pipeline/"

static void command(const char *const *words)
{
    char    *argv[40] = { (char *)"trainmark", (char *)"generate" };
    int      argc = 2;
    tm_error err = { 0 };
    for (; *words; words++) argv[argc++] = (char *)*words;
    if (tm_cli_dispatch(argc, argv, &err) != TM_OK) fail_msg("%s", err.text);
}

static void read_picture(const char *path, tm_image *out)
{
    tm_text   bytes = { 0 };
    tm_error  err = { 0 };
    tm_status st = tm_file_read(path, 1 << 20, &bytes, &err);
    if (st == TM_OK) st = tm_image_decode(path, bytes.data, bytes.length, out, &err);
    tm_text_fini(&bytes);
    if (st == TM_OK) return;
    if (st != TM_UNSUPPORTED) fail_msg("%s", err.text);
    print_message("left out: %s\n", err.text);
    skip();
}

/* Every pixel is within 1/255 of the tensor (height, width, 3) in [0, 1]. */
static void compare(const char *path, const char *name, double bound)
{
    tm_safetensors *set;
    tm_image        picture;
    tm_error        err = { 0 };
    read_picture(path, &picture);
    assert_int_equal(tm_safetensors_open(PIPELINE "drawn.safetensors", &set, &err), TM_OK);
    const tm_stored_tensor *wanted = tm_safetensors_find(set, name);
    assert_true(wanted && wanted->dtype == TM_F32 && wanted->n[0] == picture.height && wanted->n[1] == picture.width);
    for (size_t i = 0; i < wanted->bytes / 4; i++) {
        float value;
        memcpy(&value, wanted->data + 4 * i, sizeof value);
        double off = fabs(255 * (double)value - picture.pixels[i]);
        if (off > bound)
            fail_msg("%s: pixel %zu is %d, diffusers has %g", name, i, picture.pixels[i], 255 * (double)value);
    }
    tm_image_fini(&picture);
    tm_safetensors_close(set);
}

#define FORM "--size", "32", "--steps", "4", "--text-tokens", "12", "--guidance", "3.5", "--threads", "2", "-q"

TEST(a_picture_is_that_of_diffusers)
{
    const char *out = test_in_folder("a.png");
    command((const char *const[]){ PIPELINE "model", "--prompt", "a photo of a cat", "-o", out, "--seed", "7", FORM,
                                   NULL });
    compare(out, "plain", 1);
    command((const char *const[]){ PIPELINE "model/transformer", "--encoders", PIPELINE "model", "--latents",
                                   PIPELINE "noise.safetensors", "--prompt", "a photo of a cat", "-o", out, FORM,
                                   NULL });
    compare(out, "plain", 1);
}

TEST(a_negative_prompt_is_guidance_against_it)
{
    const char *out = test_in_folder("b.png");
    command((const char *const[]){ PIPELINE "model", "--prompt", "a photo of a cat", "--negative-prompt", "a dog",
                                   "--true-cfg", "2.5", "-o", out, "--seed", "7", FORM, NULL });
    compare(out, "against", 1);
}

/* What bfloat16 rounds off is seen, and is not much: the same picture, not the same bits. */
TEST(bfloat16_draws_nearly_the_same)
{
    const char *out = test_in_folder("c.png");
    command((const char *const[]){ PIPELINE "model", "--prompt", "a photo of a cat", "-o", out, "--seed", "7",
                                   "--dtype", "bfloat16", FORM, NULL });
    compare(out, "plain", 24);
}

TEST_FIXTURE(NULL, test_folder_teardown)
