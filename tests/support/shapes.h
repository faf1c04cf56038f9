/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/shapes.h - which colour and shape a picture of tools/flux_shapes.py shows, without anything learnt.
 *
 * The background is the median of the border. The foreground differs from it by more than half of its mean difference.
 * The colour is the nearest to the mean of the foreground. The shape is that which, with the same area and centroid,
 * covers the foreground best: by the largest intersection over union.
 */
#ifndef TM_TESTS_SHAPES_H
#define TM_TESTS_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *colour; /* red, green, blue, yellow, purple, orange; NULL: there is no foreground */
    const char
        *shape; /* circle, square, triangle, star, cross; NULL: none fits by 0.75, or the foreground is over half */
    const char *background; /* white, black */
    double      fit;        /* intersection over union, 0 to 1 */
} shapes_verdict;

/* `pixels`: rows x columns x 3 bytes, red first; at most 256 x 256. */
shapes_verdict shapes_judge(const uint8_t *pixels, int rows, int columns);
/* Are its colour and shape words of the caption? */
bool shapes_match(shapes_verdict verdict, const char *caption);

#endif
