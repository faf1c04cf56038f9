/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix instructions: where each number of A, B and D lies, stated here number by number as the documents' tables have
 * it ("Matrix Arithmetic Instructions"), and products of small integers, which are exact in every format. */
#include "support/test.h"

#include "machine/texts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number's place: lane, and bits of that lane's registers, counted from the first one's lowest. */
typedef struct place {
    int lane, bit;
} place;

typedef struct layout {
    const char *arch, *instruction;
    int         side, depth, bits; /* D is side x side, A side x depth; bits of a number of A and B */
    int         registers;         /* of A and of B */
    place (*a)(int i, int k);      /* B's [k][j] lies where A's [j][k] does */
    place (*d)(int i, int j);
    uint32_t (*encode)(int x), (*encode_b)(int x); /* small integers; of B, if it is another one */
} layout;

/* 32 x 32: D's rows come in fours, which the two halves of a wave have in turn. */
static place d_32(int i, int j)
{
    int block = i / 4;
    return (place){ j + 32 * (block % 2), 32 * (4 * (block / 2) + i % 4) };
}
static place d_16(int i, int j)
{
    return (place){ j + 16 * (i / 4), 32 * (i % 4) };
}
static place a_32_2(int i, int k)
{
    return (place){ i + 32 * k, 0 };
}
static place a_32_8(int i, int k)
{
    return (place){ i + 32 * (k / 4), 16 * (k % 4) };
}
static place a_32_16(int i, int k)
{
    return (place){ i + 32 * (k / 8), 16 * (k % 8) };
}
static place a_16_32(int i, int k)
{
    return (place){ i + 16 * (k / 8), 8 * (k % 8) };
}
static place a_32_16_bytes(int i, int k)
{
    return (place){ i + 32 * (k / 8), 8 * (k % 8) };
}

static uint32_t float_bits(int x)
{
    float    f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}
static uint32_t bf16_bits(int x)
{
    return float_bits(x) >> 16;
}
/* A float with fewer bits: mantissa, bias. */
static uint32_t small_bits(int x, int mantissa, int bias, int sign_bit)
{
    uint32_t bits = float_bits(x), sign = bits >> 31;
    if (x == 0) return 0;
    int exponent = (int)(bits >> 23 & 255) - 127 + bias;
    return sign << sign_bit | (uint32_t)exponent << mantissa | (bits >> (23 - mantissa) & ((1u << mantissa) - 1));
}
static uint32_t f16_bits(int x)
{
    return small_bits(x, 10, 15, 15);
}
static uint32_t fnuz_bits(int x)
{
    return small_bits(x, 3, 8, 7);
}
static uint32_t ocp_bits(int x)
{
    return small_bits(x, 3, 7, 7);
}
static uint32_t fnuz_bf8(int x)
{
    return small_bits(x, 2, 16, 7);
}
static uint32_t ocp_bf8(int x)
{
    return small_bits(x, 2, 15, 7);
}

static const layout layouts[] = {
    { "gfx942", "v_mfma_f32_32x32x2_f32", 32, 2, 32, 1, a_32_2, d_32, float_bits, NULL },
    { "gfx942", "v_mfma_f32_32x32x8_f16", 32, 8, 16, 2, a_32_8, d_32, f16_bits, NULL },
    { "gfx942", "v_mfma_f32_32x32x8_bf16", 32, 8, 16, 2, a_32_8, d_32, bf16_bits, NULL },
    { "gfx950", "v_mfma_f32_32x32x16_bf16", 32, 16, 16, 4, a_32_16, d_32, bf16_bits, NULL },
    { "gfx942", "v_mfma_f32_16x16x32_fp8_fp8", 16, 32, 8, 2, a_16_32, d_16, fnuz_bits, NULL },
    { "gfx950", "v_mfma_f32_16x16x32_fp8_fp8", 16, 32, 8, 2, a_16_32, d_16, ocp_bits, NULL },
    { "gfx942", "v_mfma_f32_16x16x32_bf8_bf8", 16, 32, 8, 2, a_16_32, d_16, fnuz_bf8, NULL },
    { "gfx950", "v_mfma_f32_16x16x32_bf8_bf8", 16, 32, 8, 2, a_16_32, d_16, ocp_bf8, NULL },
    { "gfx942", "v_mfma_f32_16x16x32_fp8_bf8", 16, 32, 8, 2, a_16_32, d_16, fnuz_bits, fnuz_bf8 },
    { "gfx950", "v_mfma_f32_16x16x32_bf8_fp8", 16, 32, 8, 2, a_16_32, d_16, ocp_bf8, ocp_bits },
    { "gfx942", "v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 8, 2, a_32_16_bytes, d_32, fnuz_bits, NULL },
    { "gfx950", "v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 8, 2, a_32_16_bytes, d_32, ocp_bits, NULL },
    { "gfx942", "v_mfma_f32_32x32x16_bf8_bf8", 32, 16, 8, 2, a_32_16_bytes, d_32, fnuz_bf8, NULL },
    { "gfx942", "v_mfma_f32_32x32x16_fp8_bf8", 32, 16, 8, 2, a_32_16_bytes, d_32, fnuz_bits, fnuz_bf8 },
    { "gfx942", "v_mfma_f32_32x32x16_bf8_fp8", 32, 16, 8, 2, a_32_16_bytes, d_32, fnuz_bf8, fnuz_bits },
    { "gfx950", "v_mfma_f32_32x32x16_bf8_bf8", 32, 16, 8, 2, a_32_16_bytes, d_32, ocp_bf8, NULL },
    { "gfx950", "v_mfma_f32_32x32x16_fp8_bf8", 32, 16, 8, 2, a_32_16_bytes, d_32, ocp_bits, ocp_bf8 },
    { "gfx950", "v_mfma_f32_32x32x16_bf8_fp8", 32, 16, 8, 2, a_32_16_bytes, d_32, ocp_bf8, ocp_bits },
};

static uint64_t state_of_random = 3;
static int      small_integer(void)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (int)(state_of_random >> 60) - 8;
}

/* Registers 0 to 3 of each lane, 16 bytes, in memory. */
static void put(uint32_t *registers, place p, uint32_t bits)
{
    registers[4 * p.lane + p.bit / 32] |= bits << p.bit % 32;
}

static char *range(char *room, int first, int count)
{
    if (count == 1)
        sprintf(room, "v%d", first);
    else
        sprintf(room, "v[%d:%d]", first, first + count - 1);
    return room;
}

/* D = A B + C with C in other registers, then A B + 0 on top of it by the second instruction's own D. */
static void body_of(const layout *l, char *body, size_t room, bool with_c)
{
    int  n = l->side * l->side / 64, used = 0;
    char a[20], b[20], d[20], c[20];
    used += snprintf(body, room,
                     "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_lshlrev_b32_e32 v1, 4, v0\nv_lshlrev_b32_e32 v2, 6, v0\n"
                     "s_waitcnt lgkmcnt(0)\nglobal_load_dwordx4 v[4:7], v1, s[4:5]\nglobal_load_dwordx4 v[8:11], v1, "
                     "s[4:5] offset:1024\n"
                     "s_waitcnt vmcnt(0)\n");
    for (int i = 0; i < n; i++)
        used += snprintf(body + used, room - (size_t)used, "v_cvt_f32_i32_e32 v%d, %d\n", 40 + i, i);
    used += snprintf(body + used, room - (size_t)used, "%s %s, %s, %s, %s\n", l->instruction, range(d, 16, n),
                     range(a, 4, l->registers), range(b, 8, l->registers), with_c ? range(c, 40, n) : "0");
    for (int i = 0; i < n; i += 2)
        used += snprintf(body + used, room - (size_t)used, "global_store_dwordx2 v2, v[%d:%d], s[6:7] offset:%d\n",
                         16 + i, 17 + i, 4 * i);
    snprintf(body + used, room - (size_t)used, "s_endpgm\n");
}

static void one_layout(const layout *l, bool with_c)
{
    char     body[3000];
    int      a[32 * 32], b[32 * 32], wrong = 0;
    uint32_t in[512] = { 0 }, out[1024] = { 0 };
    for (int i = 0; i < l->side; i++) {
        for (int k = 0; k < l->depth; k++) {
            put(in, l->a(i, k), l->encode(a[i * l->depth + k] = small_integer()));
            int x = b[i * l->depth + k] = small_integer();
            put(in + 256, l->a(i, k), l->encode_b ? l->encode_b(x) : l->encode(x));
        }
    }
    body_of(l, body, sizeof body, with_c);
    gcn_text    text = { .arch = l->arch, .body = body, .pointers = 2 };
    gcn_trial   trial = { .buffers = { in, out }, .count = { 512, 1024 } };
    const char *error = gcn_try(&text, &trial);
    if (*error) fail_msg("%s", error);
    for (int i = 0; i < l->side; i++) {
        for (int j = 0; j < l->side; j++) {
            place p = l->d(i, j);
            int   sum = with_c ? p.bit / 32 : 0;
            for (int k = 0; k < l->depth; k++) sum += a[i * l->depth + k] * b[j * l->depth + k];
            wrong += out[16 * p.lane + p.bit / 32] != float_bits(sum);
        }
    }
    if (wrong) fail_msg("%s on %s: %d of %d results are wrong", l->instruction, l->arch, wrong, l->side * l->side);
    assert_int_equal(trial.counts.matrix_flops, 2 * l->side * l->side * l->depth);
}

TEST(layouts_are_those_of_the_documents)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        one_layout(&layouts[i], false);
        one_layout(&layouts[i], true);
    }
}

/* Every number of 8 bits by a product with 1, 256 of them in A, of E4M3 and E5M2, of both kinds. */
static double fp8_value(int byte, int mantissa, bool ocp)
{
    int ones = 1 << mantissa, exponent = (byte & 127) >> mantissa, fraction = byte & (ones - 1);
    int bias = (mantissa == 3 ? 7 : 15) + (ocp ? 0 : 1), rest = byte & 127;
    if (!ocp && byte == 128) return (double)NAN;
    if (ocp && (mantissa == 3 ? rest == 127 : rest > 124)) return (double)NAN;
    double size =
        exponent ? (ones + fraction) * pow(2, exponent - bias - mantissa) : fraction * pow(2, 1 - bias - mantissa);
    if (ocp && mantissa == 2 && rest == 124) size = (double)INFINITY;
    return byte & 128 ? -size : size;
}

static void every_number_is_read(const layout *l)
{
    char body[3000];
    bool ocp = strcmp(l->arch, "gfx950") == 0;
    int  mantissa = strstr(l->instruction, "_bf8") ? 2 : 3;
    body_of(l, body, sizeof body, false);
    for (int first = 0; first < 256; first += 16) {
        uint32_t in[512] = { 0 }, out[1024] = { 0 };
        for (int i = 0; i < 16; i++) {
            put(in, l->a(i, 5), (uint32_t)(first + i));
            put(in + 256, l->a(i, 5), l->encode(1));
        }
        gcn_text  text = { .arch = l->arch, .body = body, .pointers = 2 };
        gcn_trial trial = { .buffers = { in, out }, .count = { 512, 1024 } };
        assert_string_equal(gcn_try(&text, &trial), "");
        for (int i = 0; i < 16; i++) {
            float  got;
            place  p = l->d(i, 3);
            double wanted = fp8_value(first + i, mantissa, ocp);
            memcpy(&got, &out[16 * p.lane + p.bit / 32], 4);
            if (isnan(wanted) ? !isnan(got) : (double)got != wanted)
                fail_msg("%s on %s: %02x is %g", l->instruction, l->arch, first + i, (double)got);
        }
    }
}

TEST(every_fp8_number_is_read)
{
    int read = 0;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].bits == 8 && layouts[i].side == 16 && !layouts[i].encode_b)
            every_number_is_read(&layouts[i]), read++;
    assert_int_equal(read, 4);
}

/* --- `all layouts INSTRUCTION MATRIX`: the statement above in the form of AMD's calculator (compare_layouts.sh) --- */

static void print_place(place p, int bits)
{
    printf(",v%d{%d}", p.bit / 32, p.lane);
    if (bits < 32) printf(".[%d:%d]", p.bit % 32 + bits - 1, p.bit % 32);
}

static int print_layout(int argc, char **argv)
{
    const layout *l = layouts;
    while (argc > 3 && l < layouts + sizeof layouts / sizeof *layouts && strcmp(l->instruction, argv[2])) l++;
    if (argc < 4 || l == layouts + sizeof layouts / sizeof *layouts) return 2;
    char matrix = argv[3][0];
    int  rows = matrix == 'B' ? l->depth : l->side, columns = matrix == 'A' ? l->depth : l->side;
    for (int i = 0; i < rows; i++) {
        printf("%d", i);
        for (int j = 0; j < columns; j++)
            print_place(matrix == 'A'   ? l->a(i, j)
                        : matrix == 'B' ? l->a(j, i)
                                        : l->d(i, j),
                        matrix == 'D' ? 32 : l->bits);
        printf("\n");
    }
    return 0;
}

TM_TEST_ROLE("layouts", print_layout)
