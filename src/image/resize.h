/* SPDX-License-Identifier: Apache-2.0 */
/* image/resize.h - pictures made as large as a model wants them: resized, cropped, as numbers (docs/pictures.md). */
#ifndef TM_IMAGE_RESIZE_H
#define TM_IMAGE_RESIZE_H

#include "image/image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { TM_IMAGE_LANCZOS, TM_IMAGE_BILINEAR } tm_image_filter;

typedef struct {
    int width, height;
} tm_image_size;

/* The picture at another size, bit for bit as Image.resize of Pillow 13: the filter's support grows with the scale
 * where the picture gets smaller; one direction, then the other, with coefficients of 22 bits and rounded to 8 bits.
 * *out is the caller's. TM_UNSUPPORTED: more than TM_IMAGE_MAX_PIXELS. */
TM_MUST_USE tm_status tm_image_resize(const tm_image *in, tm_image_size size, tm_image_filter filter, tm_image *out,
                                      tm_error *err);

/* How pictures of any size become pictures of one. */
typedef struct {
    tm_image_size   size;
    tm_image_filter filter;
    bool            random_crop; /* else from the middle */
    bool            flip;        /* every second one is mirrored, at random */
    uint64_t        seed;        /* of both */
} tm_image_fit;

/* What the rule does with one picture. */
typedef struct {
    tm_image_size scaled;    /* after resizing; at least fit.size in both directions, and in one of them equal to it */
    int           left, top; /* of the part that is kept */
    bool          flipped;   /* after cropping */
} tm_image_placing;

/* The scaled size and the crop from the middle are those of torchvision's Resize(size) and CenterCrop(size) where the
 * size is a square: the shorter side becomes `size`, the longer one floor(size longer / shorter), and what is left over
 * is halved, a half rounded to even. `index` is the use of a picture: random parts are f(seed, index). `name` is for
 * messages. TM_UNSUPPORTED: a picture so long that its scaled side is above 2^30. */
TM_MUST_USE tm_status tm_image_place(const char *name, const tm_image_fit *fit, tm_image_size picture, uint64_t index,
                                     tm_image_placing *out, tm_error *err);

/* Resizes, crops and mirrors, computing only what is kept: *out has fit->size pixels and is the caller's. */
void tm_image_apply(const tm_image *in, const tm_image_fit *fit, const tm_image_placing *placing, tm_image *out);

/* (height, width, 3) numbers from -1 to 1 of a picture, (p / 255 - 0.5) / 0.5 in float32, as torchvision's ToTensor and
 * Normalize(0.5, 0.5) give them. */
void tm_image_to_values(const tm_image *image, float *out);
/* A picture of (height, width, 3) numbers: round(255 (x / 2 + 0.5)) within 0 to 255, a half to even, as diffusers'
 * VaeImageProcessor; what is not a number is 0. *out is the caller's. */
void tm_image_of_values(const float *values, tm_image_size size, tm_image *out);

/* Sizes for pictures of different shapes, by their ratio of width to height, narrow ones first: multiples of `step`
 * whose area is as near size^2 as the step permits, none longer than max_ratio (at least 1) times its other side. Each
 * w x h has an h x w; size x size is one of them, size rounded to the step. Returns how many; `out` has room for
 * 2 size / step + 1. */
size_t tm_image_buckets(int size, int step, double max_ratio, tm_image_size *out);
/* The bucket whose ratio is nearest that of a picture, by the quotient of the two; of equally near ones the first. */
size_t tm_image_bucket(const tm_image_size *buckets, size_t n, tm_image_size picture);

#endif
