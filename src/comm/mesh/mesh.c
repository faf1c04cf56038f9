/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/mesh/mesh.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *key;
} axes_of[TM_AXES] = {
#define X(id, name, key) [TM_AXIS_##id] = { name, key },
    TM_AXIS_LIST(X)
#undef X
};

/* The axes whose degrees multiply to the number of ranks, slowest first; and those of experts. */
static const tm_axis dense[] = { TM_AXIS_PP, TM_AXIS_REPLICATE, TM_AXIS_SHARD, TM_AXIS_CP, TM_AXIS_TP };
static const tm_axis expert[] = { TM_AXIS_PP, TM_AXIS_REPLICATE, TM_AXIS_EFSDP, TM_AXIS_EP };
enum { DENSE = sizeof dense / sizeof dense[0], EXPERT = sizeof expert / sizeof expert[0] };

const char *tm_axis_name(tm_axis axis)
{
    return axes_of[axis].name;
}

tm_mesh tm_mesh_one(void)
{
    tm_mesh mesh;
    for (int a = 0; a < TM_AXES; a++) mesh.degree[a] = 1;
    return mesh;
}

int tm_mesh_ranks(const tm_mesh *mesh)
{
    int ranks = 1;
    for (int i = 0; i < DENSE; i++) ranks *= mesh->degree[dense[i]];
    return ranks;
}

/* The view of the mesh in which a set of axes lies. */
static int view_of(unsigned axes, const tm_axis **view)
{
    const unsigned experts = 1U << TM_AXIS_EFSDP | 1U << TM_AXIS_EP;
    bool           of_experts = (axes & experts) != 0;
    TM_ASSERT(!of_experts || !(axes & (1U << TM_AXIS_SHARD | 1U << TM_AXIS_CP | 1U << TM_AXIS_TP)));
    *view = of_experts ? expert : dense;
    return of_experts ? EXPERT : DENSE;
}

int tm_mesh_at(const tm_mesh *mesh, int rank, tm_axis axis)
{
    const tm_axis *view;
    int            n = view_of(1U << axis, &view);
    TM_ASSERT(rank >= 0 && rank < tm_mesh_ranks(mesh));
    for (int i = n - 1; view[i] != axis; i--) rank /= mesh->degree[view[i]];
    return rank % mesh->degree[axis];
}

int tm_mesh_rank(const tm_mesh *mesh, const int at[TM_AXES])
{
    int rank = 0;
    for (int i = 0; i < DENSE; i++) {
        TM_ASSERT(at[dense[i]] >= 0 && at[dense[i]] < mesh->degree[dense[i]]);
        rank = rank * mesh->degree[dense[i]] + at[dense[i]];
    }
    return rank;
}

int tm_mesh_group_size(const tm_mesh *mesh, unsigned axes)
{
    const tm_axis *view;
    int            n = view_of(axes, &view), size = 1;
    for (int i = 0; i < n; i++)
        if (axes & 1U << view[i]) size *= mesh->degree[view[i]];
    return size;
}

/* The rank's places on the axes that are in the set (or, `others`, that are not), as one number. */
static int number_along(const tm_mesh *mesh, int rank, unsigned axes, bool others)
{
    const tm_axis *view;
    int            n = view_of(axes, &view), number = 0;
    for (int i = 0; i < n; i++)
        if (((axes & 1U << view[i]) != 0) != others)
            number = number * mesh->degree[view[i]] + tm_mesh_at(mesh, rank, view[i]);
    return number;
}

int tm_mesh_group_rank(const tm_mesh *mesh, int rank, unsigned axes)
{
    return number_along(mesh, rank, axes, false);
}

int tm_mesh_group_color(const tm_mesh *mesh, int rank, unsigned axes)
{
    return number_along(mesh, rank, axes, true);
}

char *tm_mesh_text(char out[160], const tm_mesh *mesh)
{
    size_t used = 0;
    for (int a = 0; a < TM_AXES; a++) {
        if (mesh->degree[a] == 1 || a == TM_AXIS_EFSDP) continue;
        used +=
            (size_t)snprintf(out + used, 160 - used, "%s%s %d", used ? " x " : "", axes_of[a].name, mesh->degree[a]);
    }
    if (used == 0) snprintf(out, 160, "one rank");
    return out;
}

/* --- wanted degrees ----------------------------------------------------------------------------------------------- */

/* The nearest divisors of n below and above `value`; 0: there is none. */
static void nearest_divisors(int64_t n, int64_t value, int64_t *below, int64_t *above)
{
    *below = *above = 0;
    for (int64_t d = 1; d <= n; d++) {
        if (n % d != 0 || d == value) continue;
        if (d < value) *below = d;
        if (d > value && *above == 0) *above = d;
    }
}

/* "2 or 4", of numbers that may be 0: absent. */
static const char *either(char out[64], int64_t a, int64_t b)
{
    if (a > 0 && b > 0)
        snprintf(out, 64, "%lld or %lld", (long long)a, (long long)b);
    else
        snprintf(out, 64, "%lld", (long long)(a > 0 ? a : b));
    return out;
}

/* The product is not the number of ranks: which numbers of ranks, and which degrees of the axis that can best give way,
 * would do. */
static tm_status wrong_product(const tm_mesh *wanted, int64_t product, int filled, int64_t ranks, tm_error *err)
{
    char    text[160], some[64];
    tm_mesh shown = *wanted;
    if (filled >= 0) {
        shown.degree[filled] = 1;
        int64_t below = ranks / product * product;
        return tm_fail(err, TM_INVALID,
                       "%s multiply to %lld, which does not divide the %lld ranks that %s -1 shall fill; start %s "
                       "ranks, or change one",
                       tm_mesh_text(text, &shown), (long long)product, (long long)ranks, axes_of[filled].key,
                       either(some, below, below + product));
    }
    tm_axis gives =
        shown.degree[TM_AXIS_SHARD] > 1 || shown.degree[TM_AXIS_REPLICATE] == 1 ? TM_AXIS_SHARD : TM_AXIS_REPLICATE;
    int64_t rest = product / shown.degree[gives];
    if (ranks % rest == 0)
        return tm_fail(err, TM_INVALID,
                       "%s multiply to %lld, and there are %lld ranks; set %s to %lld (or -1: what is left), or start "
                       "%lld ranks (--ranks)",
                       tm_mesh_text(text, &shown), (long long)product, (long long)ranks, axes_of[gives].key,
                       (long long)(ranks / rest), (long long)product);
    int64_t below = ranks / rest * rest;
    return tm_fail(err, TM_INVALID,
                   "%s multiply to %lld, and there are %lld ranks; start %lld ranks (--ranks), or %s with %s -1",
                   tm_mesh_text(text, &shown), (long long)product, (long long)ranks, (long long)product,
                   either(some, below, below + rest), axes_of[gives].key);
}

static tm_status fill_experts(tm_mesh *mesh, tm_error *err)
{
    int64_t shared = (int64_t)mesh->degree[TM_AXIS_SHARD] * mesh->degree[TM_AXIS_CP] * mesh->degree[TM_AXIS_TP];
    int64_t ep = mesh->degree[TM_AXIS_EP], below, above;
    char    some[64];
    if (ep < 1 || shared % ep != 0) {
        nearest_divisors(shared, ep, &below, &above);
        return tm_fail(err, TM_INVALID, "%s is %lld, and must divide dp_shard x cp x tp, which is %lld; %s would do",
                       axes_of[TM_AXIS_EP].key, (long long)ep, (long long)shared, either(some, below, above));
    }
    mesh->degree[TM_AXIS_EFSDP] = (int)(shared / ep);
    return TM_OK;
}

tm_status tm_mesh_fill(tm_mesh *mesh, int64_t ranks, tm_error *err)
{
    tm_mesh wanted = *mesh;
    int64_t product = 1;
    int     filled = -1;
    if (ranks < 1 || ranks > 1 << 20)
        return tm_fail(err, TM_INVALID, "there can be 1 to %d ranks, found %lld", 1 << 20, (long long)ranks);
    for (int i = 0; i < DENSE; i++) {
        tm_axis a = dense[i];
        if (wanted.degree[a] == -1 && filled >= 0)
            return tm_fail(err, TM_INVALID, "%s and %s are -1; only one of them can be what is left",
                           axes_of[filled].key, axes_of[a].key);
        if (wanted.degree[a] == -1) {
            filled = (int)a;
            continue;
        }
        if (wanted.degree[a] < 1)
            return tm_fail(err, TM_INVALID, "%s must be -1 or at least 1, found %d", axes_of[a].key, wanted.degree[a]);
        if (__builtin_mul_overflow(product, (int64_t)wanted.degree[a], &product)) product = INT64_MAX / 2;
    }
    if (filled >= 0 ? ranks % product != 0 : ranks != product)
        return wrong_product(&wanted, product, filled, ranks, err);
    if (filled >= 0) wanted.degree[filled] = (int)(ranks / product);
    TM_TRY(fill_experts(&wanted, err));
    *mesh = wanted;
    return TM_OK;
}

/* --- groups of a running world ------------------------------------------------------------------------------------ */

tm_status tm_mesh_split(const tm_mesh *mesh, tm_comm *world, tm_mesh_groups *out, tm_error *err)
{
    static const struct {
        unsigned    axes;
        const char *name;
    } wanted[TM_MESH_GROUPS] = {
        { TM_AXES_BATCH, "batch" },
        { TM_AXES_FSDP, "shards" },
        { 1U << TM_AXIS_REPLICATE, "copies" },
        { TM_AXES_LOSS, "loss" },
        { TM_AXES_WORLD, "world" },
        { 1U << TM_AXIS_TP, "matrices" },
        { 1U << TM_AXIS_CP, "sequences" },
        { 1U << TM_AXIS_PP, "stages" },
        { 1U << TM_AXIS_EP, "experts" },
        { 1U << TM_AXIS_EFSDP, "shards of experts" },
        { 1U << TM_AXIS_EFSDP | 1U << TM_AXIS_REPLICATE, "copies of experts" },
    };
    *out = (tm_mesh_groups){ .world = world };
    int ranks = tm_mesh_ranks(mesh), rank = tm_comm_rank(world);
    if (tm_comm_size(world) != ranks)
        return tm_fail(err, TM_INVALID, "the world has %d ranks, the mesh %d", tm_comm_size(world), ranks);
    for (int i = 0; i < TM_MESH_GROUPS; i++) {
        unsigned axes = wanted[i].axes;
        tm_comm *comm = NULL;
        bool     idle = mesh->degree[TM_AXIS_EP] == 1 && (axes & 1U << TM_AXIS_EFSDP) != 0;
        if (idle || tm_mesh_group_size(mesh, axes) == 1) continue;
        for (int j = 0; j < out->n && !comm; j++) /* the same ranks by another name */
            if (tm_mesh_group_size(mesh, axes & out->axes[j]) == tm_mesh_group_size(mesh, axes) &&
                tm_mesh_group_size(mesh, axes) == tm_mesh_group_size(mesh, out->axes[j]))
                comm = out->comm[j];
        if (!comm && tm_mesh_group_size(mesh, axes) == ranks) comm = world;
        if (!comm) {
            tm_status st =
                tm_comm_split(world, tm_mesh_group_color(mesh, rank, axes), rank, wanted[i].name, &comm, err);
            if (st != TM_OK) {
                tm_mesh_join(out);
                return st;
            }
        }
        out->axes[out->n] = axes;
        out->comm[out->n++] = comm;
    }
    return TM_OK;
}

void tm_mesh_join(tm_mesh_groups *groups)
{
    for (int i = groups->n; i-- > 0;) {
        bool own = groups->comm[i] != groups->world;
        for (int j = 0; j < i; j++) own = own && groups->comm[j] != groups->comm[i];
        if (own) tm_comm_close(groups->comm[i]);
    }
    *groups = (tm_mesh_groups){ 0 };
}

tm_comm *tm_mesh_find(const tm_mesh_groups *groups, unsigned axes)
{
    for (int i = 0; i < groups->n; i++)
        if (groups->axes[i] == axes) return groups->comm[i];
    return NULL;
}
