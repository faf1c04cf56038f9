/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/net.c - what several machines need: network cards, the interface of the collectives, the variables of
 * the launcher. */
#include "apps/check/context.h"

#include "base/root.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 4 };

/* --- RDMA ------------------------------------------------------------------------------------ */

static const char infiniband[] = "/sys/class/infiniband", networks[] = "/sys/class/net";

/* Does "4: ACTIVE" end with "ACTIVE"? */
static bool state_is(const char *text, const char *wanted)
{
    const char *colon = text ? strchr(text, ':') : NULL;
    return colon && strcmp(colon + 1 + strspn(colon + 1, " "), wanted) == 0;
}

/* The network interfaces of a card that are slower than 400 Gb/s. A speed that is not told is no fault. */
static void check_speeds(check *c, const char *nic, tm_text *bad, size_t *count)
{
    static const int64_t wanted = 400000; /* Mb/s */
    size_t               n;
    const char          *folder = check_path(c, "%s/%s/device/net", infiniband, nic);
    const char         **names = check_list(c, folder, "", false, &n);
    for (size_t i = 0; i < n; i++) {
        int64_t speed;
        if (check_number(check_line(c, check_path(c, "%s/%s/speed", folder, names[i])), &speed) && speed > 0 &&
            speed < wanted)
            check_list_add(bad, count, SHOWN, "%.20s %lld Mb/s", names[i], (long long)speed);
    }
}

static void check_port(check *c, const char *nic, const char *port, tm_text *bad, size_t *count)
{
    static const double wanted = 400; /* Gb/s */
    const char         *folder = check_path(c, "%s/%s/ports/%s", infiniband, nic, port);
    const char         *state = check_line_in(c, folder, "state"), *phys = check_line_in(c, folder, "phys_state");
    const char         *rate = check_line_in(c, folder, "rate"), *layer = check_line_in(c, folder, "link_layer");
    if (!state_is(state, "ACTIVE"))
        check_list_add(bad, count, SHOWN, "%.20s/%s is %.20s", nic, port, state ? state : "unreadable");
    else if (!state_is(phys, "LinkUp"))
        check_list_add(bad, count, SHOWN, "%.20s/%s is %.20s", nic, port, phys ? phys : "unreadable");
    else if (!rate || strtod(rate, NULL) < wanted)
        check_list_add(bad, count, SHOWN, "%.20s/%s has %.40s", nic, port, rate ? rate : "no rate");
    if (!layer || strcmp(layer, "Ethernet") != 0) return;
    const char *gid = check_line_in(c, folder, "gids/3"), *type = check_line_in(c, folder, "gid_attrs/types/3");
    if (!type || strcmp(type, "RoCE v2") != 0 || !gid || strspn(gid, "0:") == strlen(gid))
        check_list_add(bad, count, SHOWN, "%.20s/%s has no RoCE v2 GID at index 3", nic, port);
}

void check_nic(check *c)
{
    size_t       n, ports = 0, count = 0;
    tm_text      bad = { 0 };
    int          wanted = c->options->expected_nics;
    const char **names = check_list(c, infiniband, "", false, &n);
    if (n == 0 && wanted <= 0) {
        check_say(c, TM_CHECK_SKIP, "no card in %s", infiniband);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t       m;
        const char **list = check_list(c, check_path(c, "%s/%s/ports", infiniband, names[i]), "", true, &m);
        for (size_t k = 0; k < m; k++) check_port(c, names[i], list[k], &bad, &count);
        check_speeds(c, names[i], &bad, &count);
        ports += m;
    }
    if (wanted >= 0 && n != (size_t)wanted) check_list_add(&bad, &count, SHOWN, "%zu cards, not %d", n, wanted);
    check_list_end(&bad, count, SHOWN);
    if (count > 0)
        check_say(c, TM_CHECK_FAIL, "%s", bad.data);
    else
        check_say(c, TM_CHECK_PASS, "%zu cards, %zu ports, all up at 400 Gb/s or more", n, ports);
    tm_text_fini(&bad);
}

/* --- interface ------------------------------------------------------------------------------- */

/* Is `name` one of NCCL_SOCKET_IFNAME's words: a prefix, with '=' in front the whole name? */
static bool in_list(const char *list, const char *name)
{
    bool exact = *list == '=';
    for (const char *p = list + exact; *p; p += strcspn(p, ",")) {
        p += strspn(p, ", ");
        size_t n = strcspn(p, ",");
        if (n > 0 && strncmp(p, name, n) == 0 && (!exact || name[n] == '\0')) return true;
    }
    return false;
}

static bool is_local(const char *name)
{
    static const char *const prefixes[] = { "docker", "veth", "virbr", "br-", "cni" };
    if (strcmp(name, "lo") == 0) return true;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

/* Word number `index` of a line; its length in *n, 0 if there are fewer. */
static const char *word_of(const char *line, int index, size_t *n)
{
    for (; index >= 0; index--) {
        line += strspn(line, " \t");
        *n = strcspn(line, " \t\n");
        if (index > 0) line += *n;
    }
    return line;
}

/* The interface of the longest matching row of /proc/net/route ("eth0\t0000A8C0\t...\tFFFFFF\t..."), NULL if none. */
static const char *route_to(check *c, in_addr_t address)
{
    enum { NAME, DESTINATION, MASK = 7 };
    const char *text = check_content(c, "/proc/net/route"), *best = NULL;
    uint32_t    best_mask = 0;
    for (const char *line = text ? strchr(text, '\n') : NULL; line && line[1]; line = strchr(line + 1, '\n')) {
        size_t      n, m;
        const char *name = word_of(line + 1, NAME, &n), *last = word_of(line + 1, MASK, &m);
        if (n == 0 || m == 0) continue;
        uint32_t destination = (uint32_t)strtoul(word_of(line + 1, DESTINATION, &m), NULL, 16);
        uint32_t mask = (uint32_t)strtoul(last, NULL, 16);
        if ((address & mask) != destination || (best && ntohl(mask) < best_mask)) continue;
        best_mask = ntohl(mask);
        best = tm_arena_text_n(c->arena, name, n);
    }
    return best;
}

/* What is wrong with the interfaces that the variable names; NULL if nothing. */
static const char *judge_names(check *c, const char *list)
{
    size_t       n, matches = 0;
    const char **names = check_list(c, networks, "", false, &n);
    for (size_t i = 0; i < n; i++) {
        if (!in_list(list, names[i])) continue;
        const char *state = check_line(c, check_path(c, "%s/%s/operstate", networks, names[i]));
        matches++;
        if (is_local(names[i])) return check_path(c, "%.40s does not reach other machines", names[i]);
        if (state && strcmp(state, "up") != 0 && strcmp(state, "unknown") != 0)
            return check_path(c, "%.40s is %.20s", names[i], state);
    }
    return matches ? NULL : check_path(c, "there is no interface '%.100s'", list);
}

void check_ifname(check *c)
{
    const char    *list = check_env(c, "NCCL_SOCKET_IFNAME"), *master = check_env(c, "MASTER_ADDR"), *problem = NULL;
    const char    *route = NULL;
    struct in_addr address;
    if (!list && !master) {
        check_say(c, TM_CHECK_SKIP, "NCCL_SOCKET_IFNAME and MASTER_ADDR are not set");
        return;
    }
    bool known = master && inet_pton(AF_INET, master, &address) == 1;
    bool loopback = known && ntohl(address.s_addr) >> 24 == 127;
    if (known && !loopback) route = route_to(c, address.s_addr);
    if (list && *list != '^') problem = judge_names(c, list);
    if (!problem && known && !loopback && !route) problem = check_path(c, "there is no route to %s", master);
    if (!problem && route && list && (*list == '^' ? in_list(list + 1, route) : !in_list(list, route)))
        problem = check_path(c, "the route to %s goes over %s, not over '%.100s'", master, route, list);
    if (problem)
        check_say(c, TM_CHECK_WARN, "%s", problem);
    else
        check_say(c, TM_CHECK_PASS, "%s%s%s%s%s", list ? list : "not set", route ? ", route over " : "",
                  route ? route : "",
                  master && !known ? ", no route looked up: MASTER_ADDR is not an IPv4 address" : "",
                  loopback ? ", MASTER_ADDR is this machine" : "");
}

/* --- launcher -------------------------------------------------------------------------------- */

/* A variable as a number of lo..hi; *out stays -1 if it is not set. False if it is set to anything else. */
static bool env_number(check *c, const char *name, int64_t lo, int64_t hi, int64_t *out)
{
    const char *text = check_env(c, name);
    *out = -1;
    return !text || (check_number(text, out) && *out >= lo && *out <= hi);
}

static const char *judge_numbers(check *c)
{
    static const struct {
        const char *name;
        int64_t     lo, hi;
    } rows[] = { { "MASTER_PORT", 1, 65535 },        { "RANK", 0, 1 << 24 },
                 { "WORLD_SIZE", 1, 1 << 24 },       { "LOCAL_RANK", 0, 1 << 16 },
                 { "LOCAL_WORLD_SIZE", 1, 1 << 16 }, { "NNODES", 1, 1 << 20 },
                 { "NODE_RANK", 0, 1 << 20 } };
    enum { PORT, RANK, WORLD, LOCAL_RANK, LOCAL_WORLD, NNODES, NODE_RANK, COUNT };
    int64_t v[COUNT];
    for (int i = 0; i < COUNT; i++)
        if (!env_number(c, rows[i].name, rows[i].lo, rows[i].hi, &v[i]))
            return check_path(c, "%s is '%.60s', not a number of %lld to %lld", rows[i].name,
                              check_env(c, rows[i].name), (long long)rows[i].lo, (long long)rows[i].hi);
    if (v[RANK] >= v[WORLD])
        return check_path(c, "RANK %lld is not below WORLD_SIZE %lld", (long long)v[RANK], (long long)v[WORLD]);
    if (v[LOCAL_WORLD] > v[WORLD])
        return check_path(c, "LOCAL_WORLD_SIZE %lld is above WORLD_SIZE %lld", (long long)v[LOCAL_WORLD],
                          (long long)v[WORLD]);
    if (v[LOCAL_RANK] >= 0 && v[LOCAL_WORLD] >= 0 && v[LOCAL_RANK] >= v[LOCAL_WORLD])
        return check_path(c, "LOCAL_RANK %lld is not below LOCAL_WORLD_SIZE %lld", (long long)v[LOCAL_RANK],
                          (long long)v[LOCAL_WORLD]);
    if (v[NNODES] >= 0 && v[NODE_RANK] >= v[NNODES])
        return check_path(c, "NODE_RANK %lld is not below NNODES %lld", (long long)v[NODE_RANK], (long long)v[NNODES]);
    return NULL;
}

/* There are ranks on other hosts, which have to prove that they are of this job. */
static bool lacks_secret(check *c)
{
    int64_t local, all;
    return env_number(c, "LOCAL_WORLD_SIZE", 1, 1 << 16, &local) && env_number(c, "WORLD_SIZE", 1, 1 << 24, &all) &&
           local > 0 && local < all && !check_env(c, "TRAINMARK_SECRET") && !check_env(c, "TRAINMARK_SECRET_FILE");
}

void check_dist_env(check *c)
{
    static const char *const names[] = { "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE" };
    tm_text                  missing = { 0 };
    size_t                   n = sizeof names / sizeof names[0], count = 0;
    for (size_t i = 0; i < n; i++)
        if (!check_env(c, names[i])) check_list_add(&missing, &count, n, "%s", names[i]);
    const char *problem = count == 0 ? judge_numbers(c) : NULL;
    if (count == n)
        check_say(c, TM_CHECK_SKIP, "no distributed-training variables set; assuming a single process");
    else if (count > 0)
        check_say(c, TM_CHECK_FAIL, "missing: %s", missing.data);
    else if (problem)
        check_say(c, TM_CHECK_FAIL, "%s", problem);
    else
        check_say(c, TM_CHECK_PASS, "rank %s of %s, %s:%s%s", check_env(c, "RANK"), check_env(c, "WORLD_SIZE"),
                  check_env(c, "MASTER_ADDR"), check_env(c, "MASTER_PORT"),
                  lacks_secret(c) ? "; ranks of trainmark over TCP lack a secret (export TRAINMARK_SECRET=...)" : "");
    tm_text_fini(&missing);
}
