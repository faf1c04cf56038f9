/* SPDX-License-Identifier: Apache-2.0 */
#include "train/optimizer/groups.h"
#include "graph/blocks.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATTERNS = 32 }; /* of a group: bits of an unsigned */

/* --- reading ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const tm_config    *config;
    const tm_optimizer *optimizer;
    tm_group           *group;
    const char         *name; /* the member being read */
    char                value[TM_MAX_PATTERNS_TEXT];
    tm_error           *err;
} reader;

static tm_status wrong_value(const reader *r, const char *wanted)
{
    return tm_fail(r->err, TM_INVALID, "'%s' in optimizer.groups (%s) must be %s, found '%s'", r->name, r->group->place,
                   wanted, r->value);
}

static tm_status number(const reader *r, double lo, double hi, const char *wanted, double *out)
{
    char *end;
    *out = strtod(r->value, &end);
    return end == r->value || *end || !(*out >= lo && *out <= hi) ? wrong_value(r, wanted) : TM_OK;
}

static tm_status truth(const reader *r, bool *out)
{
    *out = tm_names_equal(r->value, "true");
    return *out || tm_names_equal(r->value, "false") ? TM_OK : wrong_value(r, "true or false");
}

static tm_status read_params(reader *r)
{
    int patterns = 1;
    snprintf(r->group->patterns, sizeof r->group->patterns, "%s", r->value);
    for (const char *p = r->value; *p; p++) patterns += *p == '|';
    if (patterns > MAX_PATTERNS) return wrong_value(r, "at most 32 patterns");
    return *r->value ? TM_OK : wrong_value(r, "a pattern of parameter names");
}

static tm_status read_lr(reader *r)
{
    double rate, base = tm_config_f64(r->config, "optimizer.lr");
    TM_TRY(number(r, 0, 100, "a number from 0 to 100", &rate));
    if (!(base > 0))
        return tm_fail(r->err, TM_INVALID,
                       "'lr' in optimizer.groups (%s) is relative to optimizer.lr, which is 0; give "
                       "optimizer.lr a value, too",
                       r->group->place);
    r->group->lr_scale = rate / base;
    return TM_OK;
}

static tm_status read_lr_scale(reader *r)
{
    return number(r, 0, 1e6, "a number from 0 to 1e6", &r->group->lr_scale);
}

static tm_status read_weight_decay(reader *r)
{
    r->group->hyper.decay_matrices_only = false; /* who gives it for these parameters means all of them */
    return number(r, 0, 100, "a number from 0 to 100", &r->group->hyper.weight_decay);
}

static tm_status read_beta1(reader *r)
{
    return number(r, 0, 0.9999999, "a number from 0 to 0.9999999", &r->group->hyper.beta1);
}

static tm_status read_beta2(reader *r)
{
    return number(r, 0, 0.9999999, "a number from 0 to 0.9999999", &r->group->hyper.beta2);
}

static tm_status read_eps(reader *r)
{
    return number(r, 0, 1, "a number from 0 to 1", &r->group->hyper.eps);
}

static tm_status read_momentum(reader *r)
{
    return number(r, 0, 0.9999999, "a number from 0 to 0.9999999", &r->group->hyper.momentum);
}

static tm_status read_trained(reader *r)
{
    bool trained;
    TM_TRY(truth(r, &trained));
    r->group->frozen = !trained;
    return TM_OK;
}

static tm_status read_format(reader *r)
{
    for (int d = 0; d < TM_DTYPE_COUNT; d++) {
        if (!tm_names_equal(r->value, tm_dtype_name((tm_dtype)d))) continue;
        if (d == TM_NF4 || d == TM_E2M1 || d == TM_E8M0 || d == TM_E3M2 || d == TM_E2M3 ||
            tm_dtype_blocked((tm_dtype)d))
            return tm_fail(r->err, TM_UNSUPPORTED,
                           "'format' in optimizer.groups (%s): weights in %s need scales, which "
                           "are not supported; use a format of 8 or more bits",
                           r->group->place, r->value);
        r->group->format = (tm_dtype)d;
        if (tm_dtype_floating((tm_dtype)d) && d != TM_F64) return TM_OK;
    }
    return wrong_value(r, "float32, bfloat16, float16, float8_e4m3, float8_e5m2, float8_e4m3fnuz or float8_e5m2fnuz");
}

static const struct {
    const char *name;
    tm_status (*read)(reader *r);
    bool own; /* counts only where the optimizer reads the key of this name */
} members[] = {
    { "params", read_params, false },
    { "lr", read_lr, false },
    { "lr_scale", read_lr_scale, false },
    { "weight_decay", read_weight_decay, false },
    { "beta1", read_beta1, true },
    { "beta2", read_beta2, true },
    { "eps", read_eps, true },
    { "momentum", read_momentum, true },
    { "trained", read_trained, false },
    { "format", read_format, false },
};
enum { MEMBERS = sizeof members / sizeof members[0] };

static tm_status unknown_member(const reader *r, const char *name)
{
    tm_text list = { 0 };
    for (int i = 0; i < MEMBERS; i++)
        if (!members[i].own || tm_optimizer_reads(r->optimizer, members[i].name))
            tm_text_printf(&list, "%s%s", list.length ? ", " : "", members[i].name);
    tm_fail(r->err, TM_INVALID,
            "'%.60s' in optimizer.groups (%s) is not a member of a group with optimizer.name %s; there are: %s", name,
            r->group->place, r->optimizer->name, list.data);
    tm_text_fini(&list);
    return TM_INVALID;
}

/* One "name=value", `n` characters. */
static tm_status read_member(reader *r, const char *text, size_t n)
{
    char        copy[TM_MAX_PATTERNS_TEXT];
    const char *equals = memchr(text, '=', n);
    if (!equals || n >= sizeof copy)
        return tm_fail(r->err, TM_INVALID,
                       "optimizer.groups (%s) must be a list of maps, like {params: \"*.bias\", "
                       "weight_decay: 0}; found '%.*s'",
                       r->group->place, n < 100 ? (int)n : 100, text);
    snprintf(copy, sizeof copy, "%.*s", (int)(equals - text), text);
    snprintf(r->value, sizeof r->value, "%.*s", (int)(n - 1 - (size_t)(equals - text)), equals + 1);
    for (int i = 0; i < MEMBERS; i++) {
        if (!tm_names_equal(copy, members[i].name)) continue;
        if (members[i].own && !tm_optimizer_reads(r->optimizer, members[i].name)) break;
        r->name = members[i].name;
        return members[i].read(r);
    }
    return unknown_member(r, copy);
}

static tm_status read_group(reader *r, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t length = 0;
        while (at + length < n && text[at + length] != ' ') length++;
        if (length) TM_TRY(read_member(r, text + at, length));
        at += length + 1;
    }
    if (!*r->group->patterns)
        return tm_fail(r->err, TM_INVALID,
                       "a group of optimizer.groups (%s) lacks 'params', the pattern of its parameters' "
                       "names: '%.*s'",
                       r->group->place, (int)(n < 100 ? n : 100), text);
    if (r->group->format != TM_DTYPE_COUNT && !r->group->frozen)
        return tm_fail(r->err, TM_UNSUPPORTED,
                       "optimizer.groups (%s): only weights that are not trained can be held in "
                       "another format; give '%s' trained: false or leave its format out",
                       r->group->place, r->group->patterns);
    return TM_OK;
}

tm_status tm_groups_read(const tm_config *config, const tm_optimizer *optimizer, const tm_hyper *hyper,
                         tm_group out[TM_MAX_GROUPS], int *n, tm_error *err)
{
    const char *place = tm_config_place(config, "optimizer.groups"), *text = tm_config_text(config, "optimizer.groups");
    out[0] = (tm_group){ .place = place, .lr_scale = 1, .hyper = *hyper, .format = TM_DTYPE_COUNT };
    for (*n = 1; text && *text;) {
        size_t length = strcspn(text, ",");
        if (*n == TM_MAX_GROUPS)
            return tm_fail(err, TM_INVALID, "optimizer.groups (%s) has more than %d groups; join some", place,
                           TM_MAX_GROUPS - 1);
        reader r = { .config = config, .optimizer = optimizer, .group = &out[*n], .err = err };
        out[*n] = out[0];
        TM_TRY(read_group(&r, text, length));
        ++*n;
        text += length + (text[length] == ',');
    }
    return TM_OK;
}

/* --- assigning ---------------------------------------------------------------------------------------------------- */

/* Does a pattern of the group match? Sets the bits of those that do in *used. */
static bool matches(const tm_group *group, const char *name, unsigned *used)
{
    char     copy[TM_MAX_PATTERNS_TEXT], *rest = copy;
    bool     any = false;
    unsigned bit = 1;
    snprintf(copy, sizeof copy, "%s", group->patterns);
    for (char *pattern; (pattern = strsep(&rest, "|")); bit <<= 1) {
        if (fnmatch(pattern, name, 0) != 0) continue;
        any = true;
        *used |= bit;
    }
    return any;
}

/* The group of a name; the patterns of every group that match it are marked, whoever takes it. */
static int group_of_name(const tm_group *groups, int n, const char *name, unsigned *used)
{
    int first = 0;
    for (int g = 1; g < n; g++)
        if (matches(&groups[g], name, &used[g]) && !first) first = g;
    return first;
}

static tm_status group_of_pieces(const tm_group *groups, int n, const tm_tensor *tensor, unsigned *used, int *out,
                                 tm_error *err)
{
    int whole = group_of_name(groups, n, tensor->name, used);
    *out = whole;
    for (int p = 0; p < tensor->n_pieces; p++) {
        int own = group_of_name(groups, n, tensor->pieces[p].name, used);
        if (whole && (own == 0 || own > whole)) own = whole;
        if (p == 0) *out = own;
        if (own == *out) continue;
        int taker = own ? own : *out;
        return tm_fail(
            err, TM_INVALID,
            "optimizer.groups (%s): '%s' takes '%s' but not '%s', and both are rows of one matrix, '%s'; name "
            "all of its parts or the matrix",
            groups[taker].place, groups[taker].patterns, tensor->pieces[own ? p : 0].name,
            tensor->pieces[own ? 0 : p].name, tensor->name);
    }
    return TM_OK;
}

/* The pattern that matches nothing, and the names nearest to it. */
static tm_status matches_nothing(const tm_graph *graph, const tm_group *group, const char *pattern, tm_error *err)
{
    const char *near = "";
    int         best = 1 << 30;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        for (int p = 0; tensor->role == TM_ROLE_PARAMETER && p < tensor->n_pieces; p++) {
            int distance = tm_edit_distance(pattern, tensor->pieces[p].name);
            if (distance < best) best = distance, near = tensor->pieces[p].name;
        }
    }
    return tm_fail(err, TM_INVALID,
                   "optimizer.groups (%s): no parameter is called '%s'; the nearest name is '%s' "
                   "(`trainmark explain` lists all)",
                   group->place, pattern, near);
}

static tm_status check_used(const tm_graph *graph, const tm_group *groups, int n, const unsigned *used, tm_error *err)
{
    for (int g = 1; g < n; g++) {
        char     copy[TM_MAX_PATTERNS_TEXT], *rest = copy;
        unsigned bit = 1;
        snprintf(copy, sizeof copy, "%s", groups[g].patterns);
        for (char *pattern; (pattern = strsep(&rest, "|")); bit <<= 1)
            if (!(used[g] & bit)) return matches_nothing(graph, &groups[g], pattern, err);
    }
    return TM_OK;
}

tm_status tm_groups_assign(tm_graph *graph, const tm_group *groups, int n, bool whole, int *group_of, tm_error *err)
{
    unsigned used[TM_MAX_GROUPS] = { 0 };
    bool     trains = false;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        tm_tensor *tensor = &graph->tensors[i];
        group_of[i] = 0;
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        TM_TRY(group_of_pieces(groups, n, tensor, used, &group_of[i], err));
        const tm_group *group = &groups[group_of[i]];
        tensor->trained = tensor->trained && !group->frozen;
        trains = trains || tensor->trained;
        if (group->format != TM_DTYPE_COUNT) tensor->dtype = group->format;
    }
    if (!whole) return TM_OK;
    TM_TRY(check_used(graph, groups, n, used, err));
    if (!trains && n > 1)
        return tm_fail(err, TM_INVALID,
                       "optimizer.groups (%s): no parameter is left to be trained; leave some out of the "
                       "groups with trained: false",
                       groups[n - 1].place);
    return TM_OK;
}
