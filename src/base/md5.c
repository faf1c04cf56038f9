/* SPDX-License-Identifier: Apache-2.0 */
#include "base/md5.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 64, PART = 1 << 16 };

static uint32_t rotate(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

/* RFC 1321, 3.4: four rounds of sixteen steps; step i adds the i-th constant floor(2^32 |sin i|). */
static void add_block(uint32_t state[4], const uint8_t *block)
{
    static const int      turns[4][4] = { { 7, 12, 17, 22 }, { 5, 9, 14, 20 }, { 4, 11, 16, 23 }, { 6, 10, 15, 21 } };
    static const uint32_t sines[64] = {
        0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
        0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
        0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
        0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
        0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
        0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
        0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
        0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391
    };
    uint32_t words[16], a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < 16; i++, block += 4)
        words[i] = (uint32_t)block[0] | (uint32_t)block[1] << 8 | (uint32_t)block[2] << 16 | (uint32_t)block[3] << 24;
#define ROUND(round, mixed, at)                                                                                        \
    for (int i = 0; i < 16; i++) {                                                                                     \
        uint32_t next = b + rotate(a + (mixed) + words[(at) % 16] + sines[16 * (round) + i], turns[round][i % 4]);     \
        a = d;                                                                                                         \
        d = c;                                                                                                         \
        c = b;                                                                                                         \
        b = next;                                                                                                      \
    }
    ROUND(0, (b & c) | (~b & d), i)
    ROUND(1, (b & d) | (c & ~d), 5 * i + 1)
    ROUND(2, b ^ c ^ d, 3 * i + 5)
    ROUND(3, c ^ (b | ~d), 7 * i)
#undef ROUND
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

void tm_md5_begin(tm_md5 *md5)
{
    *md5 = (tm_md5){ .state = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476 } };
}

void tm_md5_add(tm_md5 *md5, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    while (bytes > 0) {
        size_t used = md5->bytes % BLOCK, n = bytes < BLOCK - used ? bytes : BLOCK - used;
        memcpy(md5->block + used, p, n);
        md5->bytes += n;
        p += n;
        bytes -= n;
        if (used + n == BLOCK) add_block(md5->state, md5->block);
    }
}

char *tm_md5_end(tm_md5 *md5, char out[TM_MD5_HEX])
{
    static const uint8_t padding[BLOCK] = { 0x80 };
    uint64_t             bits = 8 * md5->bytes;
    uint8_t              length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> 8 * i);
    tm_md5_add(md5, padding, (BLOCK + 55 - md5->bytes % BLOCK) % BLOCK + 1); /* to 56 modulo 64 */
    tm_md5_add(md5, length, sizeof length);
    for (int i = 0; i < 32; i++) {
        uint32_t byte = md5->state[i / 8] >> 8 * (i / 2 % 4) & 0xFF;
        out[i] = "0123456789abcdef"[i % 2 ? byte & 15 : byte >> 4];
    }
    out[32] = '\0';
    return out;
}

tm_status tm_md5_file(const char *path, char out[TM_MD5_HEX], tm_error *err)
{
    struct stat info;
    tm_md5      md5;
    uint8_t     part[PART];
    ssize_t     n = 1;
    int         fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return tm_fail(err, TM_INVALID, "cannot open '%s': %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return tm_fail(err, TM_INVALID, "'%s' is not a regular file", path);
    }
    tm_md5_begin(&md5);
    while (n > 0 || (n < 0 && errno == EINTR)) {
        n = read(fd, part, sizeof part);
        if (n > 0) tm_md5_add(&md5, part, (size_t)n);
    }
    int cause = errno;
    close(fd);
    if (n < 0) return tm_fail(err, TM_INVALID, "cannot read '%s': %s", path, strerror(cause));
    tm_md5_end(&md5, out);
    return TM_OK;
}
