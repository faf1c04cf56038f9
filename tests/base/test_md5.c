/* SPDX-License-Identifier: Apache-2.0 */
/* MD5: the vectors of RFC 1321, in one piece and in many. */
#include "base/md5.h"

#include "support/test.h"

static const struct {
    const char *text, *md5;
} vectors[] = {
    { "", "d41d8cd98f00b204e9800998ecf8427e" },
    { "a", "0cc175b9c0f1b6a831c399e269772661" },
    { "abc", "900150983cd24fb0d6963f7d28e17f72" },
    { "message digest", "f96b697d7cb7938d525a2f31aaf161d0" },
    { "abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b" },
    { "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f" },
    { "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
      "57edf4a22be3c955ac49da2e2107b67a" },
};

TEST(the_vectors_of_the_rfc)
{
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        size_t n = strlen(vectors[i].text);
        char   hex[TM_MD5_HEX];
        tm_md5 md5;
        for (size_t cut = 0; cut <= n; cut++) {
            tm_md5_begin(&md5);
            tm_md5_add(&md5, vectors[i].text, cut);
            tm_md5_add(&md5, vectors[i].text + cut, n - cut);
            assert_string_equal(tm_md5_end(&md5, hex), vectors[i].md5);
        }
    }
}

TEST(a_file_has_the_value_of_its_bytes)
{
    char path[] = "/tmp/tm_md5_XXXXXX", hex[TM_MD5_HEX];
    int  fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "abc", 3), 3);
    close(fd);
    assert_ok(tm_md5_file(path, hex, err));
    assert_string_equal(hex, "900150983cd24fb0d6963f7d28e17f72");
    unlink(path);
    assert_refused(tm_md5_file(path, hex, err), TM_INVALID, "cannot open");
    assert_refused(tm_md5_file("/dev/null", hex, err), TM_INVALID, "is not a regular file");
}
