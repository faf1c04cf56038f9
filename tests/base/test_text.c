/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as text: the shortest decimal that reads back as the same number, in plain notation where readable. */

#include "support/test.h"

#include "base/random.h"
#include "base/text.h"

TEST(known_numbers)
{
    static const struct {
        double      value;
        const char *text;
    } known[] = {
        { 0, "0" },
        { 0.1, "0.1" },
        { -2.5, "-2.5" },
        { 1000, "1000" },
        { 1234567, "1234567" },
        { 3e-4, "0.0003" },
        { 1e-4, "0.0001" },
        { 1e-5, "1e-05" },
        { 9.5e-6, "9.5e-06" },
        { 1e-8, "1e-08" },
        { 1.0 / 3, "0.3333333333333333" },
        { 16876236800.0, "16876236800" },
        { 1e16, "10000000000000000" },
        { 99999999999999984.0, "99999999999999984" },
        { 1e17, "1e+17" },
        { -1e300, "-1e+300" },
        { 5e-324, "5e-324" },
        { (double)INFINITY, "inf" },
        { -(double)INFINITY, "-inf" },
        { (double)NAN, "nan" },
    };
    char text[32];
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        assert_string_equal(tm_format_double(text, known[k].value), known[k].text);
}

TEST(every_number_reads_back)
{
    for (uint64_t i = 0; i < 30000; i++) {
        uint64_t bits = tm_random_u64(1, 1, i);
        double   value, back;
        char     text[32];
        if (i % 2) bits = (bits & ~(0x7ffull << 52)) | (1000 + (bits >> 52) % 85) << 52; /* near the plain range */
        memcpy(&value, &bits, sizeof value);
        back = strtod(tm_format_double(text, value), NULL);
        if (isnan(value))
            assert_true(isnan(back));
        else
            assert_memory_equal(&value, &back, sizeof value);
        assert_true(strlen(text) < sizeof text);
        if (fabs(value) >= 1e-4 && fabs(value) < 1e17) assert_null(strchr(text, 'e'));
    }
}

/* Capitals, and - for _, make no difference; a beginning is another name. */
TEST(names_are_equal)
{
    static const char *const rows[][3] = { { "micro_batch", "Micro-Batch", "=" },
                                           { "", "", "=" },
                                           { "steps", "step", "" },
                                           { "step", "steps", "" },
                                           { "a_b", "a.b", "" },
                                           { "", "a", "" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (tm_names_equal(rows[i][0], rows[i][1]) != (*rows[i][2] == '=')) fail_msg("%s, %s", rows[i][0], rows[i][1]);
}
