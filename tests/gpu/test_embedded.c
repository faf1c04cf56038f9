/* SPDX-License-Identifier: Apache-2.0 */
/* The set of judged kernels inside a program: what a GPU takes of it, that code never belongs to another source, and
 * that a damaged set is found. Sets are made here, as tools/embed_kernels.py makes them; the code is what it is for. */
#include "base/hash.h"
#include "gpu/embedded.h"

#include <zstd.h>

#include "support/test.h"

enum { ROOM = 1 << 16 };

static unsigned char set[ROOM];
static size_t        set_bytes;

/* In the place of the program's own. */
const void *tm_gpu_embedded_set(size_t *bytes)
{
    *bytes = set_bytes;
    return set_bytes ? set : NULL;
}

typedef struct {
    const char *arch, *define, *text, *kernels, *code;
    int         runtime;
} module;

static const module modules[] = {
    { "gfx942", "X=f32", "text", " one two ", "code of gfx942", 0 },
    { "gfx942", "X=bf16", "text", " one ", "another of gfx942", 0 },
    { "gfx950", "X=f32", "text", " one two ", "code of gfx950", 0 },
    { "sm_100", "X=f32", "text", " one two ", "code of sm_100", 13000 },
    { "sm_80", "X=f32", "text", " one two ", "code of sm_80", 12000 },
    { "sm_90a", "X=bf16", "text", " one ", "code of sm_90a", 12000 },
};
enum { MODULES = sizeof modules / sizeof modules[0] };

static uint64_t key_of(const module *m)
{
    char whole[100];
    int  n = snprintf(whole, sizeof whole, "%s%c%s%c%s", m->arch, 0, m->define, 0, m->text);
    return tm_hash(whole, (size_t)n);
}

/* Bytes of the content before it is compressed; `cut`: so many are missing at its end. */
static void make_set(size_t cut)
{
    enum { ENTRY = 168, CODE = 32 };
    static unsigned char content[8 + MODULES * (ENTRY + CODE)];
    memset(content, 0, sizeof content);
    content[0] = MODULES;
    for (size_t i = 0; i < MODULES; i++) {
        unsigned char *e = content + 8 + i * ENTRY;
        uint64_t       words[3] = { key_of(&modules[i]), 8 + MODULES * ENTRY + i * CODE, CODE };
        int32_t        runtime = modules[i].runtime;
        memcpy(e, words, sizeof words);
        memcpy(e + 24, &runtime, 4);
        memcpy(e + 28, modules[i].arch, strlen(modules[i].arch));
        memcpy(e + 40, modules[i].kernels, strlen(modules[i].kernels));
        memcpy(content + words[1], modules[i].code, strlen(modules[i].code));
    }
    uint64_t bytes = sizeof content - cut;
    size_t   packed = ZSTD_compress(set + 24, ROOM - 24, content, bytes, 3);
    assert_false(ZSTD_isError(packed));
    set_bytes = 24 + packed;
    memcpy(set, "TMKSET1", 8);
    memcpy(set + 16, &bytes, 8);
    uint64_t hash = tm_hash(set + 16, set_bytes - 16);
    memcpy(set + 8, &hash, 8);
}

static tm_gpu_embedded *opened(const char *arch, int version)
{
    tm_gpu_facts     facts = { .version = version };
    tm_gpu_embedded *e = NULL;
    tm_error         err = { 0 };
    snprintf(facts.arch, sizeof facts.arch, "%s", arch);
    if (tm_gpu_embedded_open(&facts, &e, &err) != TM_OK) fail_msg("%s", err.text);
    return e;
}

/* NULL: nothing. */
static void takes(const char *arch, int version, const char *wanted, int count)
{
    tm_gpu_embedded *e = opened(arch, version);
    tm_gpu_source    source = { .name = "k", .source = "text", .defines = { "X=f32" }, .arch = arch };
    assert_int_equal(tm_gpu_embedded_count(e), count);
    if (!wanted) {
        assert_null(e);
    } else {
        char        code[40];
        const char *found = tm_gpu_embedded_find(e, &source, "two");
        snprintf(code, sizeof code, "code of %s", wanted);
        assert_string_equal(tm_gpu_embedded_arch(e), wanted);
        assert_non_null(found);
        assert_string_equal(found, code);
    }
    tm_gpu_embedded_close(e);
}

TEST(a_gpu_takes_what_it_may_load)
{
    make_set(0);
    takes("gfx942", 60300000, "gfx942", 2);
    takes("gfx950", 70000000, "gfx950", 1);
    takes("gfx90a", 60300000, NULL, 0);
    takes("gfx94", 60300000, NULL, 0);
    takes("sm_80", 12000, "sm_80", 1);
    takes("sm_90", 12040, "sm_80", 2);
    takes("sm_90", 11080, NULL, 0); /* its driver does not know the PTX */
    takes("sm_75", 13000, NULL, 0);
    takes("sm_89", 13000, "sm_80", 1);
    takes("sm_120", 13000, "sm_100", 1);
    takes("sm_120", 12080, "sm_80", 1);
    set_bytes = 0;
    takes("gfx942", 60300000, NULL, 0);
}

TEST(code_belongs_to_one_source)
{
    static const struct {
        tm_gpu_source source;
        const char   *kernel, *code;
    } cases[] = {
        { { .source = "text", .defines = { "X=f32" } }, "one", "code of gfx942" },
        { { .source = "text", .defines = { "X=bf16" } }, "one", "another of gfx942" },
        { { .source = "text", .defines = { "X=bf16" } }, "two", NULL }, /* was not judged */
        { { .source = "text", .defines = { "X=f32" } }, "on", NULL },
        { { .source = "text", .defines = { "X=f32" } }, "ne", NULL },
        { { .source = "text", .defines = { "X=f32", "Y=1" } }, "one", NULL },
        { { .source = "text" }, "one", NULL },
        { { .source = "text ", .defines = { "X=f32" } }, "one", NULL },
        { { .source = "32text", .defines = { "X=f" } }, "one", NULL },
    };
    make_set(0);
    tm_gpu_embedded *e = opened("gfx942", 60300000);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *found = tm_gpu_embedded_find(e, &cases[i].source, cases[i].kernel);
        if ((found != NULL) != (cases[i].code != NULL) || (found && strcmp(found, cases[i].code) != 0))
            fail_msg("case %zu: %s", i, found ? found : "nothing");
        assert_null(tm_gpu_embedded_find(NULL, &cases[i].source, cases[i].kernel));
    }
    tm_gpu_embedded_close(e);
}

/* Instructions that one architecture has alone: its GPUs take that code beside the others', no others do. */
TEST(code_for_one_architecture)
{
    static const char *const archs[] = { "sm_80", "sm_89", "sm_90", "sm_100", "sm_120" };
    tm_gpu_source            source = { .source = "text", .defines = { "X=bf16" } };
    make_set(0);
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        tm_gpu_embedded *e = opened(archs[i], 13000);
        const char      *found = tm_gpu_embedded_find(e, &source, "one");
        if (strcmp(archs[i], "sm_90") == 0)
            assert_string_equal(found, "code of sm_90a");
        else
            assert_null(found);
        tm_gpu_embedded_close(e);
    }
    assert_null(opened("sm_90", 11080));
}

static void is_damaged(const char *what, size_t at)
{
    tm_gpu_facts     facts = { .arch = "gfx942", .version = 60300000 };
    tm_gpu_embedded *e = NULL;
    tm_error         err = { 0 };
    if (tm_gpu_embedded_open(&facts, &e, &err) != TM_INTERNAL || e || !strstr(err.text, "are damaged"))
        fail_msg("%s %zu: '%s'", what, at, err.text);
}

/* Any byte that is another one, any end that is missing; and a content that does not hold what it says. */
TEST(a_damaged_set_is_found)
{
    make_set(0);
    for (size_t i = 0; i < set_bytes; i++) {
        set[i] ^= 0x10;
        is_damaged("byte", i);
        set[i] ^= 0x10;
    }
    for (size_t whole = set_bytes; set_bytes > 1;) {
        set_bytes--;
        is_damaged("cut", whole - set_bytes);
    }
    for (size_t cut = 1; cut < 1208; cut++) { /* of 8 + 6 * 200 bytes */
        make_set(cut);
        is_damaged("content", cut);
    }
}

TESTS_ALONE
