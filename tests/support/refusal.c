/* SPDX-License-Identifier: Apache-2.0 */
#include "support/refusal.h"

#include "support/test.h"

#include <ctype.h>

void refusal_is_sound(const tm_error *err)
{
    static const char *const leftovers[] = { "(null)", "%s", "%d", "%l", "%z", " ,", " ;", ";;", ", ," };
    const char              *text = err->text, *why = NULL;
    size_t                   n = strlen(text);
    if (err->status == TM_OK) return;
    if (n < 12) why = "it is too short";
    if (n >= sizeof err->text - 1) why = "it is cut off";
    if (n > 1 && isupper((unsigned char)text[0]) && islower((unsigned char)text[1])) why = "it begins a sentence";
    if (n > 0 && strchr(". \n", text[n - 1])) why = "it ends with a full stop, a blank or a line feed";
    for (size_t i = 0; i < sizeof leftovers / sizeof leftovers[0] && !why; i++)
        if (strstr(text, leftovers[i])) why = leftovers[i];
    if (why) fail_msg("not a sound message: %s: %s", why, text);
}

void test_status(tm_status is, tm_status wanted, const char *words, const tm_error *err, const char *file, int line)
{
    if (is != wanted || !strstr(err->text, words)) {
        print_error("%s (%s), wanted %s and '%s'\n", err->text, tm_status_text(is), tm_status_text(wanted), words);
        _fail(file, line);
    }
    refusal_is_sound(err);
}
