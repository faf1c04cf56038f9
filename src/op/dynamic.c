/* SPDX-License-Identifier: Apache-2.0 */
#include "op/dynamic.h"

#include <math.h>

enum { DECADES = 7 };

/* The i-th of n + 1 evenly spaced numbers from 0.1 to 1. */
static double boundary(int i, int n)
{
    return 0.1 + 0.9 * i / n;
}

void tm_dynamic_map(bool is_signed, float map[TM_DYNAMIC_CODES])
{
    int zero = is_signed ? TM_DYNAMIC_CODES / 2 - 1 : 0, k = 0;
    for (int i = 0; i < DECADES; i++) {
        int    cells = is_signed ? 1 << i : 2 << i;
        double size = pow(10, i - (DECADES - 1));
        for (int c = 0; c < cells; c++) {
            float value = (float)(size * (boundary(c, cells) + boundary(c + 1, cells)) / 2);
            k++;
            map[zero + k] = value;
            if (is_signed) map[zero - k] = -value;
        }
    }
    map[zero] = 0;
    map[TM_DYNAMIC_CODES - 1] = 1;
}

/* Whether x, which is not below `low`, is coded as `high`, the next value, or one above. */
static bool goes_up(float x, float low, float high, bool ties_up)
{
    return ties_up ? x - low >= (high - low) * 0.5f : fabsf(x - high) < fabsf(x - low);
}

void tm_dynamic_bounds(const float map[TM_DYNAMIC_CODES], bool ties_up, float least[TM_DYNAMIC_CODES - 1])
{
    for (int c = 0; c + 1 < TM_DYNAMIC_CODES; c++) {
        float x = (float)(((double)map[c] + (double)map[c + 1]) / 2);
        while (goes_up(x, map[c], map[c + 1], ties_up)) x = nextafterf(x, -2.f);
        while (!goes_up(x, map[c], map[c + 1], ties_up)) x = nextafterf(x, 2.f);
        least[c] = x;
    }
}
