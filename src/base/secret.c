/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { SHORTEST_SECRET = 6 };

static const char *const marks[] = { "TOKEN", "SECRET", "KEY", "PASS", "CREDENTIAL", "PWD", "AUTH", "DSN" };
/* What has a mark and is none: the folder, people, and files that X11 and ssh name. */
static const char *const harmless[] = { "PWD", "OLDPWD", "GIT_AUTHOR", "XAUTHORITY", "AUTH_SOCK" };

/* Does one of the marks stand in the name, outside of the harmless words? */
bool tm_secret_name(const char *name)
{
    if (strcasecmp(name, harmless[0]) == 0 || strcasecmp(name, harmless[1]) == 0) return false;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const char *at = strcasestr(name, marks[i]);
        bool        word = false;
        for (size_t k = 2; at && k < sizeof harmless / sizeof harmless[0]; k++)
            word = word || (strcasestr(harmless[k], marks[i]) && strcasestr(name, harmless[k]));
        if (at && !word) return true;
    }
    return false;
}

/* --- values that look like secrets -------------------------------------------------------------------------------- */

/* How keys of well-known services begin. */
static const char *const key_starts[] = { "ghp_",  "gho_", "ghs_", "github_pat_", "glpat-", "hf_",   "sk-", "xoxb-",
                                          "xoxp-", "AKIA", "ASIA", "AIza",        "npm_",   "pypi-", "eyJ" };

static int kind_of(char c)
{
    return isdigit((unsigned char)c) ? 1 : islower((unsigned char)c) ? 2 : isupper((unsigned char)c) ? 3 : 0;
}

/* A word of letters and digits: does it change between small letters, capitals and digits as often as random ones do?
 * Words of people change seldom. */
static bool looks_random(const char *word, size_t n)
{
    enum { SHORTEST = 20, SHORTEST_HEX = 32 };
    bool   has[4] = { false };
    size_t changes = 0, hex = 0;
    for (size_t i = 0; i < n; i++) {
        has[kind_of(word[i])] = true;
        hex += isxdigit((unsigned char)word[i]) != 0;
        changes += i > 0 && kind_of(word[i]) != kind_of(word[i - 1]);
    }
    bool letters = has[2] || has[3];
    return n >= (hex == n ? SHORTEST_HEX : SHORTEST) && has[1] && letters && changes >= n / 4;
}

/* A word that may have joins in it. */
static bool begins_like_key(const char *word, size_t n)
{
    enum { SHORTEST = 16 }; /* behind the beginning */
    for (size_t i = 0; i < sizeof key_starts / sizeof key_starts[0]; i++) {
        size_t start = strlen(key_starts[i]), end = start;
        if (n < start || strncmp(word, key_starts[i], start) != 0) continue;
        while (end < n && kind_of(word[end])) end++;
        if (end - start >= SHORTEST) return true;
    }
    return false;
}

/* "scheme://user:password@host" -> "scheme://user:***@host". */
static void mask_urls(tm_text *text)
{
    tm_text     masked = { 0 };
    const char *from = text->data, *scheme;
    if (!from || !strstr(from, "://")) return;
    tm_text_add(&masked, "");
    while ((scheme = strstr(from, "://"))) {
        const char *begin = scheme + 3, *end = begin + strcspn(begin, "/ \t\n\"'<>?#"), *at = NULL;
        for (const char *c = begin; c < end; c++)
            if (*c == '@') at = c;
        const char *colon = at ? memchr(begin, ':', (size_t)(at - begin)) : NULL, *keep = begin;
        if (colon) keep = colon + 1;
        tm_text_add_n(&masked, from, (size_t)(keep - from));
        if (colon) tm_text_add(&masked, "***");
        from = colon ? at : begin;
    }
    tm_text_add(&masked, from);
    tm_text_fini(text);
    *text = masked;
}

void tm_secret_value(tm_text *out, const char *value)
{
    static const char joins[] = "_-"; /* of keys that begin in a known way */
    tm_text           masked = { 0 };
    tm_text_add(&masked, "");
    for (const char *c = value; *c;) {
        size_t n = 0, all = 0;
        while (kind_of(c[n])) n++;
        while (kind_of(c[all]) || (c[all] && strchr(joins, c[all]))) all++;
        bool whole = begins_like_key(c, all), part = n > 0 && looks_random(c, n);
        if (whole || part)
            tm_text_add(&masked, "***");
        else
            tm_text_add_n(&masked, c, n > 0 ? n : 1);
        c += whole ? all : n > 0 ? n : 1;
    }
    tm_secret_mask(&masked);
    tm_text_add(out, masked.data);
    tm_text_fini(&masked);
}

static void replace_all(tm_text *text, const char *secret)
{
    tm_text     masked = { 0 };
    const char *from = text->data, *found;
    if (!from) return;
    for (; (found = strstr(from, secret)); from = found + strlen(secret)) {
        tm_text_add_n(&masked, from, (size_t)(found - from));
        tm_text_add(&masked, "***");
    }
    tm_text_add(&masked, from);
    tm_text_fini(text);
    *text = masked;
}

void tm_secret_mask(tm_text *text)
{
    for (char **variable = environ; variable && *variable; variable++) {
        const char *value = strchr(*variable, '=');
        char        name[256];
        if (!value || (size_t)(value - *variable) >= sizeof name || strlen(value + 1) < SHORTEST_SECRET) continue;
        memcpy(name, *variable, (size_t)(value - *variable));
        name[value - *variable] = '\0';
        if (tm_secret_name(name)) replace_all(text, value + 1);
    }
    mask_urls(text);
}

/* The name of an option, up to '=' or the end: is it one of a secret? Words of training that only look so are not. */
static bool secret_option(const char *argument)
{
    char   name[256];
    size_t n = strcspn(argument, "=");
    if (n >= sizeof name) return false;
    memcpy(name, argument, n);
    name[n] = '\0';
    if (!tm_secret_name(name)) return false;
    for (char *c; (c = strcasestr(name, "tokenize")) || (c = strcasestr(name, "tokens"));)
        memset(c, ' ', strlen("token"));
    return tm_secret_name(name);
}

static void add_argument(tm_text *out, const char *argument)
{
    bool plain = *argument != '\0';
    for (const char *c = argument; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_./=:,+@%*", *c)) plain = false;
    if (plain) {
        tm_text_add(out, argument);
        return;
    }
    tm_text_add(out, "'");
    for (const char *c = argument; *c; c++) tm_text_add_n(out, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
    tm_text_add(out, "'");
}

void tm_secret_command_line(tm_text *out, const char *arguments, size_t bytes)
{
    tm_text line = { 0 };
    bool    value_is_secret = false;
    for (const char *a = arguments; a < arguments + bytes; a += strlen(a) + 1) {
        const char *equals = strchr(a, '=');
        if (a != arguments) tm_text_add(&line, " ");
        if (value_is_secret && strncmp(a, "--", 2) != 0) {
            tm_text_add(&line, "***");
            value_is_secret = false;
            continue;
        }
        value_is_secret = !equals && strncmp(a, "--", 2) == 0 && secret_option(a);
        if (equals && secret_option(a)) {
            tm_text_add_n(&line, a, (size_t)(equals - a) + 1);
            tm_text_add(&line, "***");
        } else {
            tm_text value = { 0 };
            tm_secret_value(&value, a);
            add_argument(&line, value.data);
            tm_text_fini(&value);
        }
    }
    tm_secret_mask(&line);
    tm_text_add(out, line.data ? line.data : "");
    tm_text_fini(&line);
}
