/* SPDX-License-Identifier: Apache-2.0 */
/* Which lines the innermost tile of a product asks for ahead: every byte of the runs, in order, nothing else. */
#define TM_ISA base
#include "device/cpu/simd/gemm_fetch.h"

#include "support/test.h"

/* Every line that a run of so many bytes can touch, wherever it begins; then the last one's end again and again. */
TEST(test_runs)
{
    static char memory[4096];
    static const struct {
        int64_t bytes, lines;
    } cases[] = { { 1, 1 }, { 2, 2 }, { 64, 2 }, { 65, 2 }, { 66, 3 }, { 512, 9 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fetch f = fetch_rows(memory + 32, 3, cases[i].bytes, 1000);
        for (int64_t row = 0; row < 3; row++)
            for (int64_t line = 0; line < cases[i].lines; line++) {
                assert_ptr_equal(f.at, memory + 32 + row * 1000 + line * 64);
                fetch_line(&f);
            }
        const char *end = f.at;
        assert_ptr_equal(end, memory + 32 + 2000 + cases[i].lines * 64);
        for (int more = 0; more < 100; more++) fetch_line(&f);
        assert_ptr_equal(f.at, end);
    }
}

TEST(test_nothing)
{
    static char near[64];
    fetch       f[] = { fetch_nothing(near), fetch_rows(near, 0, 100, 100), fetch_rows(near, 10, 0, 100) };
    for (size_t i = 0; i < sizeof f / sizeof *f; i++)
        for (int k = 0; k < 100; k++) {
            assert_ptr_equal(f[i].at, near);
            fetch_line(&f[i]);
        }
}
