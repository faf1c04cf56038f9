/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for cuDNN: what descriptors have, and what is wrong with them. Rules are those of cudnn_graph.h, and
 * what was seen on cuDNN 9.19, but for those that the head of cudnn.c names.
 */
#include "cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const attribute attributes[] = {
#define ATTRIBUTE(name, number, told, kind, ...) { kind, name, __VA_ARGS__ },
#include "cudnn.def"
};
enum { N_ATTRIBUTES = sizeof attributes / sizeof attributes[0] };

size_t dnn_bytes_of_type(int type)
{
    return type == T_BOOL || type == T_CHAR                                                       ? 1
           : type == T_FORMAT || type == T_HEURISTIC || type == T_FUNCTION || type == T_REDUCTION ? 4
                                                                                                  : 8;
}

/* `row`: among those of the kind. NULL: the kind has no such attribute. */
const attribute *dnn_attribute(int kind, int name, int *row)
{
    *row = 0;
    for (int i = 0; i < N_ATTRIBUTES; i++) {
        if (attributes[i].kind != kind) continue;
        if (attributes[i].name == name) return &attributes[i];
        ++*row;
    }
    return NULL;
}

bool dnn_has_attributes(int kind)
{
    for (int i = 0; i < N_ATTRIBUTES; i++)
        if (attributes[i].kind == kind) return true;
    return kind == CONFIG || kind == ENGINE;
}

bool dnn_is(const void *object, int kind)
{
    const descriptor *d = object;
    return d && d->magic == DESCRIPTOR &&
           (kind == AN_OPERATION
                ? d->kind == OF_POINTWISE || d->kind == OF_MATMUL || d->kind == OF_REDUCTION || d->kind == OF_RESHAPE
                : d->kind == kind);
}

/* What was set, and how much of it; NULL: nothing. */
const void *dnn_values(const descriptor *d, int name, int64_t *n)
{
    int row;
    if (!dnn_attribute(d->kind, name, &row)) abort();
    if (n) *n = d->given[row].n;
    return d->given[row].values;
}

static int64_t whole(const descriptor *d, int name, int64_t otherwise)
{
    const int64_t *v = dnn_values(d, name, NULL);
    return v ? *v : otherwise;
}

static int code(const descriptor *d, int name)
{
    return *(const int *)dnn_values(d, name, NULL);
}

static bool yes(const descriptor *d, int name)
{
    const char *v = dnn_values(d, name, NULL);
    return v && *v;
}

static void *pointer(const descriptor *d, int name)
{
    void *const *v = dnn_values(d, name, NULL);
    return v ? *v : NULL;
}

/* --- finished descriptors -------------------------------------------------------------------------------------------
 */

/* Do two elements share a place? Strides by size: each one goes over all of the one before it. */
static bool overlaps(const descriptor *t)
{
    bool    done[DIMS] = { false };
    int64_t reach = 1;
    for (int i = 0; i < DIMS; i++) {
        int least = -1;
        for (int d = 0; d < DIMS; d++)
            if (!done[d] && t->n[d] > 1 && (least < 0 || t->stride[d] < t->stride[least])) least = d;
        if (least < 0) return false;
        if (t->stride[least] < reach) return true;
        done[least] = true;
        reach = t->stride[least] * t->n[least];
    }
    return false;
}

static const char *finish_tensor(descriptor *t)
{
    int64_t        n, n_strides;
    const int64_t *extents = dnn_values(t, EXTENTS, &n), *strides = dnn_values(t, STRIDES, &n_strides);
    if (n != n_strides) return "as many strides as extents are needed";
    if (n != DIMS) return "tensors of four dimensions stand in";
    t->format = code(t, FORMAT);
    t->uid = whole(t, UNIQUE, 0);
    t->align = whole(t, ALIGNMENT, 0);
    t->inner = yes(t, VIRTUAL);
    t->by_value = yes(t, BY_VALUE);
    if (!dnn_bytes_of_format(t->format)) return "no such format stands in";
    if (t->align < 1 || t->align % (int64_t)dnn_bytes_of_format(t->format)) return "an alignment below the element's";
    for (int d = 0; d < DIMS; d++) {
        t->n[d] = extents[d];
        t->stride[d] = strides[d];
        if (extents[d] < 1 || strides[d] < 0) return "an extent or a stride";
    }
    if (overlaps(t)) return "elements that overlap";
    if (t->by_value && (t->inner || dnn_count(t) != 1)) return "by value are single numbers of the host";
    return NULL;
}

/* Tensors of a function; 0: no such function stands in. */
static int arguments_of(int function)
{
    static const int all[][2] = {
#define FUNCTION(name, number, told, tensors, ...) { number, tensors },
#include "cudnn.def"
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i][0] == function) return all[i][1];
    return 0;
}

static const char *finish_pointwise(descriptor *p)
{
    p->function = code(p, HOW);
    p->computed = code(p, COMPUTED);
    p->axis = whole(p, AXIS, -1);
    if (!arguments_of(p->function)) return "no such function stands in";
    if (p->computed != F32 && p->computed != I32 && p->computed != BOOLEAN) return "a format to compute in";
    if (p->function == INDEX && (p->axis < 0 || p->axis >= DIMS)) return "an index is one of an axis";
    return NULL;
}

/* Of one element, or as many as y has. */
static bool spreads(const descriptor *from, const descriptor *y)
{
    for (int d = 0; from && d < DIMS; d++)
        if (from->n[d] != 1 && from->n[d] != y->n[d]) return false;
    return true;
}

static const char *finish_of_pointwise(descriptor *o)
{
    const descriptor *how = pointer(o, P_HOW);
    o->function = how->function, o->computed = how->computed, o->axis = how->axis;
    o->x = pointer(o, P_X), o->b = pointer(o, P_B), o->t = pointer(o, P_T), o->y = pointer(o, P_Y);
    int arguments = arguments_of(o->function);
    if ((arguments >= 2) != (o->b != NULL) || (arguments == 3) != (o->t != NULL))
        return "too few operands of a function, or too many";
    if (!spreads(o->x, o->y) || !spreads(o->b, o->y) || !spreads(o->t, o->y)) return "extents that do not fit";
    for (int d = 0; d < DIMS; d++)
        if (o->x->n[d] != o->y->n[d] && (!o->b || o->b->n[d] != o->y->n[d]) && (!o->t || o->t->n[d] != o->y->n[d]))
            return "extents that do not fit";
    bool logical = o->function == AND || o->function == OR;
    if (((o->function >= GREATER && o->function <= NOT_GREATER) || logical) != (o->y->format == BOOLEAN))
        return "comparisons are boolean, and nothing else is";
    if (logical && (o->x->format != BOOLEAN || o->b->format != BOOLEAN)) return "operands that are not boolean";
    if (o->t && o->t->format != BOOLEAN) return "a choice is by booleans";
    return o->function == INDEX && o->y->format != I32 ? "an index is whole" : NULL;
}

static const char *finish_matmul(descriptor *m)
{
    m->computed = code(m, M_COMPUTED);
    return m->computed != F32 ? "products are computed in float32" : NULL;
}

/* c (.., m, n) = a (.., m, k) b (.., k, n); of the others one is a multiple of the other. */
static const char *finish_of_matmul(descriptor *o)
{
    const descriptor *a = o->x = pointer(o, M_A), *b = o->b = pointer(o, M_B), *c = o->y = pointer(o, M_C);
    if (a->n[3] != b->n[2] || a->n[2] != c->n[2] || b->n[3] != c->n[3]) return "the matrices do not fit together";
    for (int d = 0; d < 2; d++)
        if ((a->n[d] % b->n[d] && b->n[d] % a->n[d]) || c->n[d] != (a->n[d] > b->n[d] ? a->n[d] : b->n[d]))
            return "the matrices do not fit together";
    return NULL;
}

static const char *finish_reduction(descriptor *r)
{
    r->function = code(r, R_HOW);
    r->computed = code(r, R_COMPUTED);
    if (r->function != SUM_OF && r->function != MAX_OF) return "no such reduction stands in";
    return r->computed != F32 ? "reductions are computed in float32" : NULL;
}

static const char *finish_of_reduction(descriptor *o)
{
    o->function = ((const descriptor *)pointer(o, R_OF))->function;
    o->x = pointer(o, R_X), o->y = pointer(o, R_Y);
    for (int d = 0; d < DIMS; d++)
        if (o->x->n[d] % o->y->n[d]) return "extents that do not fit";
    return NULL;
}

/* The same places in another order of dimensions. */
static const char *finish_of_reshape(descriptor *o)
{
    o->x = pointer(o, V_X), o->y = pointer(o, V_Y);
    if (dnn_count(o->x) != dnn_count(o->y)) return "extents that do not fit";
    for (int d = 0; d < DIMS; d++) {
        o->turn[d] = -1;
        if (o->x->n[d] == 1) continue;
        for (int e = 0; e < DIMS; e++)
            if (o->y->n[e] == o->x->n[d] && o->y->stride[e] == o->x->stride[d]) o->turn[d] = e;
        if (o->turn[d] < 0) return "a reshape that is no transposition";
    }
    return NULL;
}

static const char *name_tensor(descriptor *g, const descriptor *t, bool made)
{
    if (!t) return NULL;
    int i = dnn_number(g, t->uid);
    if (i >= 0 && g->tensors[i] != t) return "two tensors with one number";
    if (i >= 0 && made) return "a tensor that is made twice, or read before it is made";
    if (i < 0 && !made && t->inner) return "a virtual tensor that is read before anything makes it";
    if (i < 0 && made && t->by_value) return "a number of the host is no result";
    if (i >= 0) return NULL;
    if (g->n_tensors == MOST_TENSORS) return "so many tensors do not stand in";
    g->tensors[g->n_tensors] = t;
    g->made[g->n_tensors++] = made;
    if (made && !t->inner) g->n_outputs++;
    return NULL;
}

static const char *finish_graph(descriptor *g)
{
    int64_t                  n;
    const descriptor *const *operations = dnn_values(g, OPERATIONS, &n);
    g->handle = pointer(g, GRAPH_HANDLE);
    for (int64_t i = 0; i < n; i++) {
        const descriptor *o = g->operations[g->n_operations++] = operations[i];
        const char       *what = name_tensor(g, o->x, false);
        if (!what) what = name_tensor(g, o->b, false);
        if (!what) what = name_tensor(g, o->t, false);
        if (!what) what = name_tensor(g, o->y, true);
        if (what) return what;
    }
    for (int i = 0; i < g->n_tensors; i++) {
        bool read = false;
        for (int j = 0; j < g->n_operations; j++) {
            const descriptor *o = g->operations[j], *t = g->tensors[i];
            read = read || o->x == t || o->b == t || o->t == t;
        }
        if (g->tensors[i]->inner && !read) return "a virtual tensor that nothing reads";
    }
    return NULL;
}

static const char *finish_heuristics(descriptor *h)
{
    int mode = code(h, MODE);
    h->graph = pointer(h, OF_GRAPH);
    return mode < 0 || mode > 3 ? "no such mode" : NULL;
}

/* Graphs that this process has: a plan as a text is good for it alone. */
static const descriptor *graphs[1000];
static int               n_graphs;
static unsigned long     process;

int dnn_text_of(const descriptor *plan, char text[MOST_TEXT + 1])
{
    int i = 0;
    while (i < n_graphs && graphs[i] != plan->graph) i++;
    if (i == n_graphs && i < (int)(sizeof graphs / sizeof graphs[0])) graphs[n_graphs++] = plan->graph;
    if (process == 0 && getrandom(&process, sizeof process, 0) != sizeof process) abort();
    return snprintf(text, MOST_TEXT + 1, "%lx %d", process, i);
}

const descriptor *dnn_graph_of_text(const descriptor *plan)
{
    int64_t       n = 0;
    const char   *text = dnn_values(plan, PLAN_TEXT, &n);
    char          whole[MOST_TEXT + 1] = "";
    unsigned long of = 0;
    int           i = -1;
    if (text) memcpy(whole, text, (size_t)n);
    if (sscanf(whole, "%lx %d", &of, &i) != 2 || process == 0 || of != process) return NULL;
    return i >= 0 && i < n_graphs ? graphs[i] : NULL;
}

/* Scores' gradients as bfloat16 are what cuDNN 9.19 was seen to store for gradients; else a little. */
static const char *finish_plan(descriptor *p)
{
    const char       *told = getenv("STANDIN_DNN_WORKSPACE");
    const descriptor *config = pointer(p, PLAN_CONFIG);
    p->graph = config ? config->graph : dnn_graph_of_text(p);
    p->differs = config && config->differs;
    if (!p->graph) return "neither a configuration nor the text of a plan of this process";
    p->handle = pointer(p, PLAN_HANDLE);
    if (config && p->handle != p->graph->handle) return "another handle than that of the graph";
    for (int i = 0; p->graph->n_outputs >= 3 && i < p->graph->n_tensors; i++) {
        const descriptor *t = p->graph->tensors[i];
        size_t            bytes = (size_t)dnn_count(t) * dnn_bytes_of_format(t->format);
        if (t->inner && t->format == BF16 && bytes > p->workspace) p->workspace = bytes;
    }
    p->workspace = told ? (size_t)atoll(told) : p->workspace + 256;
    return NULL;
}

static const char *finish_pack(descriptor *p)
{
    int64_t        n, n_addresses;
    const int64_t *numbers = dnn_values(p, NUMBERS, &n);
    (void)dnn_values(p, ADDRESSES, &n_addresses);
    if (n != n_addresses) return "as many addresses as numbers are needed";
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            if (numbers[i] == numbers[j]) return "a number twice";
    return NULL;
}

static const struct {
    int kind;
    const char *(*finish)(descriptor *);
} finishers[] = { { TENSOR, finish_tensor },
                  { POINTWISE, finish_pointwise },
                  { OF_POINTWISE, finish_of_pointwise },
                  { MATMUL, finish_matmul },
                  { OF_MATMUL, finish_of_matmul },
                  { REDUCTION, finish_reduction },
                  { OF_REDUCTION, finish_of_reduction },
                  { OF_RESHAPE, finish_of_reshape },
                  { GRAPH, finish_graph },
                  { HEURISTICS, finish_heuristics },
                  { PLAN, finish_plan },
                  { PACK, finish_pack } };

const char *dnn_finish(descriptor *d)
{
    for (int i = 0; i < N_ATTRIBUTES; i++)
        if (attributes[i].kind == d->kind && attributes[i].needed && !dnn_values(d, attributes[i].name, NULL))
            return "an attribute is missing";
    for (size_t i = 0; i < sizeof finishers / sizeof finishers[0]; i++)
        if (finishers[i].kind == d->kind) return finishers[i].finish(d);
    return "a configuration comes from the heuristics, an engine from a configuration";
}

/* --- kernels
 * ----------------------------------------------------------------------------------------------------------
 */

/* A factor that lies in memory is one of heads; the size of a head is that of the dimension whose elements are
 * neighbors: a multiple of 8, up to 256 (seen on cuDNN 9.19, by properties of an H200). */
static bool is_known_factor(const descriptor *t)
{
    if (t->format != BF16) return false;
    if (t->inner) return true;
    int64_t size = 0;
    for (int d = 2; d < DIMS; d++)
        if (t->stride[d] == 1 && t->n[d] > size) size = t->n[d];
    return size > 0 && size <= 256 && size % 8 == 0;
}

bool dnn_has_kernel(const descriptor *g)
{
    const char *refuses = getenv("STANDIN_DNN_REFUSES");
    if (refuses && strcmp(refuses, g->n_outputs < 3 ? "forward" : "backward") == 0) return false;
    for (int i = 0; i < g->n_operations; i++) {
        const descriptor *o = g->operations[i];
        if (o->kind == OF_MATMUL && (!is_known_factor(o->x) || !is_known_factor(o->b))) return false;
    }
    return true;
}
