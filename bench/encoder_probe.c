/* SPDX-License-Identifier: Apache-2.0 */
/* bench/encoder_probe.c - a frozen encoder of a folder, one call for each line of standard input (bench/encoder.py).
 *
 *   encoder_probe FOLDER clip|t5|encode|decode float32|bfloat16 THREADS BATCH SIZE FROM TO
 *
 * SIZE: tokens, or pixels of an edge. FROM: int32 ids (batch, tokens), float32 pixels (batch, size, size, 3), or
 * latents (batch, channels, size / f, size / f). Prints "ready", the bytes of the plan and the seconds that opening
 * took, then for each call its seconds and the processor's. The result goes to TO: vectors; mean and logvar; pixels.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "encoder/encoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    const char    *name;
    tm_frozen_kind kind;
} row;

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int give_up(const char *why)
{
    fprintf(stderr, "encoder_probe: %s\n", why);
    return 1;
}

/* Elements of the two sides of a call, 4 bytes each. */
static void count(tm_frozen_kind kind, const tm_frozen_facts *facts, const tm_frozen_size *size, size_t *n_in,
                  size_t *n_out)
{
    int64_t edge = facts->factor ? size->height / facts->factor : 0;
    size_t  latents = (size_t)(size->batch * facts->channels * edge * edge);
    size_t  pixels = (size_t)(size->batch * size->height * size->width * 3);
    size_t  ids = (size_t)(size->batch * size->tokens);
    *n_in = kind == TM_FROZEN_VAE_ENCODE ? pixels : kind == TM_FROZEN_VAE_DECODE ? latents : ids;
    *n_out = kind == TM_FROZEN_VAE_ENCODE ? 2 * latents : pixels;
    if (kind == TM_FROZEN_CLIP) *n_out = (size_t)(size->batch * facts->width);
    if (kind == TM_FROZEN_T5) *n_out = ids * (size_t)facts->width;
}

static tm_status call(tm_frozen *model, tm_frozen_kind kind, const void *in, float *out, size_t n_out, tm_error *err)
{
    if (kind == TM_FROZEN_VAE_ENCODE) return tm_frozen_encode(model, in, out, out + n_out / 2, err);
    if (kind == TM_FROZEN_VAE_DECODE) return tm_frozen_decode(model, in, out, err);
    return tm_frozen_text(model, in, out, err);
}

int main(int n, char **words)
{
    static const row rows[] = { { "clip", TM_FROZEN_CLIP },
                                { "t5", TM_FROZEN_T5 },
                                { "encode", TM_FROZEN_VAE_ENCODE },
                                { "decode", TM_FROZEN_VAE_DECODE } };
    const row       *of = NULL;
    for (size_t i = 0; n == 9 && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, words[2]) == 0) of = &rows[i];
    if (!of) return give_up("FOLDER clip|t5|encode|decode float32|bfloat16 THREADS BATCH SIZE FROM TO");
    int64_t        begin = tm_now_ns(), extent = atoll(words[6]);
    tm_dtype       compute = strcmp(words[3], "bfloat16") == 0 ? TM_BF16 : TM_F32;
    tm_frozen_size size = { .batch = atoll(words[5]), .tokens = extent, .height = extent, .width = extent };
    tm_error       err = { 0 };
    tm_device     *device;
    tm_frozen     *model;
    char           line[16];
    size_t         n_in, n_out;
    if (tm_device_open("cpu", atoi(words[4]), &device, &err) != TM_OK) return give_up(err.text);
    if (tm_frozen_open(device, words[1], of->kind, &size, compute, &model, &err) != TM_OK) return give_up(err.text);
    count(of->kind, tm_frozen_facts_of(model), &size, &n_in, &n_out);
    float *in = tm_alloc(n_in * sizeof *in), *out = tm_alloc(n_out * sizeof *out);
    FILE  *from = fopen(words[7], "rb");
    if (!from || fread(in, sizeof *in, n_in, from) != n_in) return give_up("FROM is too short");
    fclose(from);
    printf("ready %zu %.3f\n", tm_frozen_bytes(model), 1e-9 * (double)(tm_now_ns() - begin));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        double cpu = processor_seconds();
        begin = tm_now_ns();
        if (call(model, of->kind, in, out, n_out, &err) != TM_OK) return give_up(err.text);
        printf("%.9f %.9f\n", 1e-9 * (double)(tm_now_ns() - begin), processor_seconds() - cpu);
        fflush(stdout);
    }
    FILE *to = fopen(words[8], "wb");
    if (!to || fwrite(out, sizeof *out, n_out, to) != n_out || fclose(to) != 0) return give_up("TO cannot be written");
    tm_frozen_close(model);
    tm_device_close(device);
    free(in);
    free(out);
    return 0;
}
