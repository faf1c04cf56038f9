/* SPDX-License-Identifier: Apache-2.0 */
/* data/tar.c - a member is a header of 512 bytes, and its bytes up to a multiple of 512; two headers of zeros end it.
 *
 * Header   0 name (100), 124 size (12, octal, or binary where the first bit is set), 148 sum of all bytes with eight
 *          blanks here (8, octal), 156 kind, 257 "ustar", 345 what stands before the name (155)
 * L        its bytes are the name of the next member
 * x        its bytes are lines "LENGTH KEY=VALUE\n" about the next member
 */
#include "data/tar.h"

#include <stdbool.h>
#include <string.h>

enum { BLOCK = 512, NAME = 100, SIZE = 124, SUM = 148, KIND = 156, MAGIC = 257, PREFIX = 345, PREFIX_BYTES = 155 };
enum { MAX_NAME = 4096 };

static tm_status damaged(const tm_tar *tar, int64_t at, const char *what, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%s' is a damaged tar archive, or none: %s at byte %lld of %lld", tar->file, what,
                   (long long)at, (long long)tar->size);
}

/* Octal digits behind blanks, up to a blank or zero. -1: something else. */
static int64_t octal(const uint8_t *at, int n)
{
    int64_t value = 0;
    int     i = 0;
    while (i < n && at[i] == ' ') i++;
    if (i == n || !at[i]) return -1;
    for (; i < n && at[i] != ' ' && at[i]; i++) {
        if (at[i] < '0' || at[i] > '7') return -1;
        value = value << 3 | (at[i] - '0'); /* at most 12 digits */
    }
    return value;
}

static int64_t size_of(const uint8_t *header)
{
    int64_t value = 0;
    if (!(header[SIZE] & 0x80)) return octal(header + SIZE, 12);
    for (int i = 1; i < 12; i++) {
        if (value >> 54) return -1;
        value = value << 8 | header[SIZE + i];
    }
    return header[SIZE] == 0x80 ? value : -1;
}

static bool sum_is_right(const uint8_t *header)
{
    int64_t sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += i >= SUM && i < SUM + 8 ? ' ' : header[i];
    return octal(header + SUM, 8) == sum;
}

static bool is_zero(const uint8_t *header)
{
    for (int i = 0; i < BLOCK; i++)
        if (header[i]) return false;
    return true;
}

static void own_name(tm_tar *tar, const uint8_t *header)
{
    tar->name.length = 0;
    tm_text_add(&tar->name, "");
    if (memcmp(header + MAGIC, "ustar\0", 6) == 0 && header[PREFIX])
        tm_text_printf(&tar->name, "%.*s/", PREFIX_BYTES, (const char *)header + PREFIX);
    tm_text_printf(&tar->name, "%.*s", NAME, (const char *)header);
}

/* A decimal number that ends at `stop`; -1: none. */
static int64_t decimal(const char *at, const char *stop)
{
    int64_t value = 0;
    if (at == stop || stop - at > 18) return -1;
    for (; at < stop; at++) {
        if (*at < '0' || *at > '9') return -1;
        value = 10 * value + (*at - '0');
    }
    return value;
}

/* Name and size in the lines of pax; *size stays where there is none. */
static bool read_pax(const char *at, const char *end, tm_text *name, int64_t *size)
{
    while (at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        int64_t     n = blank ? decimal(at, blank) : -1;
        if (n < 0 || n < blank - at + 3 || n > end - at || at[n - 1] != '\n') return false;
        const char *key = blank + 1, *stop = at + n - 1, *is = memchr(key, '=', (size_t)(stop - key));
        if (!is) return false;
        if (is - key == 4 && memcmp(key, "path", 4) == 0) {
            name->length = 0;
            tm_text_add_n(name, is + 1, (size_t)(stop - is - 1));
        }
        if (is - key == 4 && memcmp(key, "size", 4) == 0 && (*size = decimal(is + 1, stop)) < 0) return false;
        at += n;
    }
    return true;
}

/* What stands before a member about it. */
typedef struct {
    tm_text name;
    int64_t size; /* -1: what its header says */
} about;

static tm_status read_about(const tm_tar *tar, char kind, int64_t at, int64_t size, about *out, tm_error *err)
{
    const char *text = (const char *)tar->bytes + at;
    if (kind == 'x')
        return read_pax(text, text + size, &out->name, &out->size) ? TM_OK
                                                                   : damaged(tar, at, "a wrong line of pax", err);
    if (size > MAX_NAME) return damaged(tar, at, "a name that is too long", err);
    out->name.length = 0;
    tm_text_add_n(&out->name, text, strnlen(text, (size_t)size));
    return TM_OK;
}

static tm_status read_header(const tm_tar *tar, const uint8_t *header, const about *known, int64_t *size, tm_error *err)
{
    const int64_t left = tar->size - tar->at - BLOCK;
    if (tar->at == 0 && (memcmp(header, "\x1f\x8b", 2) == 0 || memcmp(header, "\x28\xb5\x2f\xfd", 4) == 0))
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is compressed; unpack it, pictures are read where they lie in it",
                       tar->file);
    if (!sum_is_right(header)) return damaged(tar, tar->at, "a header with a wrong sum", err);
    *size = known->size >= 0 && header[KIND] != 'x' && header[KIND] != 'L' ? known->size : size_of(header);
    if (*size < 0) return damaged(tar, tar->at, "a wrong size", err);
    if (*size <= left && (*size + BLOCK - 1) / BLOCK * BLOCK <= left) return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%s' is cut short: its member at byte %lld has %lld bytes, %lld are there",
                   tar->file, (long long)tar->at, (long long)*size, (long long)left);
}

static tm_status next(tm_tar *tar, about *known, int64_t *at, int64_t *size, tm_error *err)
{
    *at = 0;
    while (tar->at < tar->size) {
        const uint8_t *header = tar->bytes + tar->at;
        if (tar->size - tar->at < BLOCK) return damaged(tar, tar->at, "less than a header", err);
        if (is_zero(header)) break;
        TM_TRY(read_header(tar, header, known, size, err));
        const char    kind = (char)header[KIND];
        const int64_t from = tar->at + BLOCK;
        tar->at = from + (*size + BLOCK - 1) / BLOCK * BLOCK;
        if (kind == 'x' || kind == 'L') {
            TM_TRY(read_about(tar, kind, from, *size, known, err));
            continue;
        }
        if (kind == '0' || kind == '\0' || kind == '7') {
            own_name(tar, header);
            if (known->name.length > 0) {
                tar->name.length = 0;
                tm_text_add_n(&tar->name, known->name.data, known->name.length);
            }
            *at = from;
            return TM_OK;
        }
        if (kind != 'g') {
            known->size = -1;
            known->name.length = 0;
        }
    }
    return TM_OK;
}

tm_status tm_tar_next(tm_tar *tar, int64_t *at, int64_t *size, tm_error *err)
{
    about     known = { .size = -1 };
    tm_status st = next(tar, &known, at, size, err);
    tm_text_fini(&known.name);
    return st;
}
