/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/certificate.c - a certificate as a document; hosts that did not come. What is read again:
 * apps/node/fleet.c. */
#include "apps/node/certificate.h"

#include "base/clock.h"
#include "base/json.h"
#include "results/certificate.h"
#include "system/environment.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Worse ones count more. */
static int weight(tm_node_verdict v)
{
    static const int weights[TM_NODE_VERDICTS] = { 1, 3, 2, 0 };
    return weights[v];
}

tm_node_verdict tm_node_whole_verdict(const tm_node_certificate *c)
{
    size_t          n;
    tm_node_verdict worst = TM_NODE_SKIP;
    tm_node_checks(&n);
    for (size_t i = 0; i < n; i++)
        if (weight(c->outcomes[i].verdict) > weight(worst)) worst = c->outcomes[i].verdict;
    return worst;
}

/* --- hosts that were expected ------------------------------------------------------------------------------------- */

/* Equal, or one is the other without its domain? */
static bool same_host(const char *a, size_t n, const char *b)
{
    const size_t m = strlen(b), least = n < m ? n : m;
    if (strncmp(a, b, least) != 0) return false;
    return n == m || (n < m ? b[n] : a[m]) == '.';
}

static bool came(const tm_node_certificate *c, const char *name, size_t n)
{
    for (int r = 0; r < c->ranks; r++)
        if (same_host(name, n, c->sites[r].host)) return true;
    return false;
}

/* The next name and its length, *expected behind its line; NULL: there is none. */
static const char *next_name(const char **expected, size_t *n)
{
    while (**expected) {
        const char  *line = *expected, *at = line + strspn(line, " \t");
        const size_t length = strcspn(line, "\n");
        *n = at < line + length ? strcspn(at, " \t\r\n#") : 0;
        *expected += length + (line[length] == '\n');
        if (*n > 0) return at;
    }
    return NULL;
}

size_t tm_node_expected(const char *expected)
{
    size_t n, names = 0;
    while (next_name(&expected, &n)) names++;
    return names;
}

void tm_node_expect(tm_node_certificate *c, const char *expected)
{
    size_t               n, length, host = 0;
    const tm_node_check *checks = tm_node_checks(&n);
    while (host + 1 < n && strcmp(checks[host].id, "host") != 0) host++;
    for (const char *name; (name = next_name(&expected, &length));) {
        char place[TM_NODE_PLACE];
        if (came(c, name, length)) continue;
        snprintf(place, sizeof place, "%.*s", (int)length, name);
        tm_node_find(&c->outcomes[host], 0, place,
                     "the host did not come; expected: a rank on it. Look whether it is up, and start the ranks on all "
                     "hosts of --hosts");
    }
}

/* --- the document ------------------------------------------------------------------------------------------------- */

static void print_options(tm_json *json, const tm_node_certificate *c)
{
    const tm_node_options *o = c->options;
    tm_json_open(json, "options", '{');
    tm_json_string(json, "only", o->only);
    tm_json_f64(json, "minutes", o->minutes);
    tm_json_i64(json, "seed", (int64_t)o->seed);
    tm_json_string(json, "devices", o->devices);
    tm_json_string(json, "disk_path", o->folder);
    tm_json_string(json, "sysroot", o->sysroot[0] ? o->sysroot : NULL);
    tm_json_i64(json, "ranks", c->ranks);
    tm_json_close(json, '}');
}

/* Hosts in the order of their first ranks. *name: "a", "a and 3 others". */
static void print_nodes(tm_json *json, const tm_node_certificate *c)
{
    tm_json_open(json, "nodes", '[');
    for (int r = 0; r < c->ranks; r++) {
        bool seen = false;
        for (int k = 0; k < r; k++) seen |= c->sites[k].number == c->sites[r].number;
        if (seen) continue;
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "host", c->sites[r].host);
        tm_json_string(json, "kind", c->sites[r].kind);
        tm_json_open(json, "ranks", '[');
        for (int k = r; k < c->ranks; k++)
            if (c->sites[k].number == c->sites[r].number) tm_json_i64(json, NULL, k);
        tm_json_close(json, ']');
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

static void print_figures(tm_json *json, const tm_node_outcome *o)
{
    static const char *const senses[] = { "told", "speed", "time" };
    tm_json_open(json, "figures", '[');
    for (size_t i = 0; i < o->n_figures; i++) {
        const tm_node_figure *f = &o->figures[i];
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "name", f->name);
        tm_json_string(json, "unit", f->unit);
        tm_json_string(json, "place", f->place);
        tm_json_i64(json, "rank", f->rank);
        tm_json_string(json, "sense", senses[f->sense]);
        tm_json_f64(json, "value", f->value);
        tm_json_f64(json, "low", f->low);
        tm_json_f64(json, "high", f->high);
        tm_json_f64(json, "floor", f->floor);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

static void print_facts(tm_json *json, const tm_node_outcome *o)
{
    tm_json_open(json, "facts", '[');
    for (size_t i = 0; i < o->n_facts; i++) {
        const tm_node_fact *f = &o->facts[i];
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "name", f->name);
        tm_json_string(json, "place", f->place);
        tm_json_i64(json, "rank", f->rank);
        tm_json_bool(json, "kept", f->kept);
        tm_json_string(json, "text", f->text);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

static void print_findings(tm_json *json, const char *key, const tm_node_finding *findings, size_t n)
{
    tm_json_open(json, key, '[');
    for (size_t i = 0; i < n; i++) {
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "place", findings[i].place);
        tm_json_i64(json, "rank", findings[i].rank);
        tm_json_string(json, "text", findings[i].text);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

static void print_check(tm_json *json, const tm_node_check *check, const tm_node_outcome *o)
{
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "id", check->id);
    tm_json_string(json, "title", check->title);
    tm_json_string(json, "verdict", tm_node_verdict_name(o->verdict));
    tm_json_f64(json, "seconds", o->seconds);
    tm_json_string(json, "finds", check->finds);
    tm_json_string(json, "cannot", check->cannot);
    tm_json_string(json, "reach", o->reach);
    tm_json_string(json, "reason", o->reason);
    print_figures(json, o);
    print_facts(json, o);
    print_findings(json, "findings", o->findings, o->n_findings);
    print_findings(json, "told", o->told, o->n_told);
    tm_json_close(json, '}');
}

/* The host, or the first one and how many others. */
static void print_name(tm_json *json, const tm_node_certificate *c)
{
    char name[TM_NODE_PLACE + 40];
    int  hosts = 0;
    for (int r = 0; r < c->ranks; r++)
        if (c->sites[r].number >= hosts) hosts = c->sites[r].number + 1;
    if (hosts > 1)
        snprintf(name, sizeof name, "%s and %d other%s", c->sites[0].host, hosts - 1, hosts > 2 ? "s" : "");
    else
        snprintf(name, sizeof name, "%s", c->sites[0].host);
    tm_json_string(json, "name", name);
}

void tm_node_print(const tm_node_certificate *c, tm_text *out)
{
    size_t               n;
    char                 now[32];
    const tm_node_check *checks = tm_node_checks(&n);
    tm_environment      *environment = tm_environment_read(c->options->sysroot);
    tm_json              json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "format", "trainmark.certificate/1");
    tm_json_string(&json, "finished", tm_wall_text(now));
    tm_json_f64(&json, "seconds", c->seconds);
    print_name(&json, c);
    tm_json_string(&json, "verdict", tm_node_verdict_name(tm_node_whole_verdict(c)));
    print_options(&json, c);
    print_nodes(&json, c);
    tm_json_open(&json, "checks", '[');
    for (size_t i = 0; i < n; i++) print_check(&json, &checks[i], &c->outcomes[i]);
    tm_json_close(&json, ']');
    tm_environment_print_json(environment, &json, "environment");
    tm_environment_destroy(environment);
    tm_results_seal(out);
}
