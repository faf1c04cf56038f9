/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of steps in both styles, to the letter, with figures of every size and without. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/record/test_step_line; git diff tests/record/whole-step-lines.txt
 */
#include "support/whole.h"

#include "record/step_line.h"

#include <math.h>

#include "support/test.h"

static const line_figures rows[] = {
    { 1, 10, 8.25, 0.5, 3e-4, 5000000000, 8000000000, 12345.5, 11111.25, 6e9, 4e13, 0.125, 0.25, 16, 0,
      "2026-01-31 12:00:00", 0 },
    { 123, 4567890, 1234.5, 98765.4321, 1, 0, 0, 0.5, 0.25, 0, 0, 1000, 2000.5, 100000, 12, "", 0 },
    { 12345678, 12345678, 0, 0, 0, 1, 1, 999.4, 999.6, 99.5e12, 1e3, 1e-7, 0, 1, 1, "x", 0 },
    { 0, 0, -1.5, -2, -3, 1 << 30, 3ll << 30, 1e9, 2e9, 1e3, 1e12, 0, 0, 0, 0, "y", 0 },
    { 7, 8, (double)NAN, (double)INFINITY, 1e-12, 1, 0, (double)NAN, (double)INFINITY, 1e9, 1e12, (double)NAN,
      (double)NAN, 3, 1, "z", 0 },
    { 7, 8, 1, 1, 1, 1, 1, 0.995, 0.994, 1e13, 1e13, 1, 1, 1, 1, "z", 0 },
    { 7, 8, 1, 1, 1, 1, 1, 1, 9.95, 1e11, 1e13, 1, 1, 1, 1, "z", 0 },
    { 7, 8, 1, 1, 1, 1, 1, 1e-4, 1e-9, 1e6, 1e13, 1, 1, 1, 1, "z", 0 },
};

TEST(lines_are_as_recorded)
{
    static const double speeds[] = { 0, 0.123456789, 9.99995, 123.456, 999.94, 999.99, 1000, 1000.04, 1234567.89 };
    tm_text             out = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        line_figures f = rows[i];
        f.samples = f.step * f.sequences;
        tm_text_printf(&out, "-- %zu\n", i);
        for (int colour = 0; colour < 2; colour++) {
            line_torchtitan(&out, &rows[i], colour);
            line_validation(&out, &rows[i], colour);
        }
        line_megatron(&out, &f);
        line_peak(&out, rows[i].peak_flops);
    }
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) line_performance(&out, speeds[i], "things_per_second");
    whole_is("tests/record/whole-step-lines.txt", &out);
}
