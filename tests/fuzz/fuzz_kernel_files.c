/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parsers of the kernel's files: any bytes give finite sums that are not negative, or "unknown". */
#include "fuzz.h"

#include "system/sample.h"

#include <math.h>

static void known_or_unknown(double value)
{
    TM_ASSERT(isnan(value) || value >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* exactly: the sanitizer sees one byte too many */
    TM_ASSERT(text);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    uint8_t bits[SAMPLE_CPUS / 8];
    double  busy, iowait, steal;
    if (!sample_parse_cpus(text, bits)) memset(bits, 0xff, sizeof bits);
    int count = sample_parse_stat(text, bits, &busy, &iowait, &steal);
    TM_ASSERT(count >= 0 && isnan(busy) == (count == 0) && isnan(steal) == (count == 0));
    known_or_unknown(busy);
    known_or_unknown(iowait);
    known_or_unknown(steal);
    known_or_unknown(sample_parse_throttled(text));
    known_or_unknown(sample_parse_pressure(text));
    known_or_unknown(sample_parse_migrations(text));
    free(text);
    return 0;
}
