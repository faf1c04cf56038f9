/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/product.c - rates of matrix products at every place, measured at the same time, with an A/A floor. */
#include "apps/node/checks.h"
#include "apps/node/load.h"
#include "apps/node/rates.h"

#include "base/arena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A sample is about as long; of GPUs longer, so that launches do not count. */
#define CORE_SECONDS 1e-3
#define GPU_SECONDS 5e-3
enum { ROUNDS_OF_A_PLACE = 2 }; /* rounds with the operands at one place in memory */

/* What is measured at a place. */
typedef struct {
    tm_node_load   *load[TM_NODE_PRODUCTS]; /* NULL: no kernel */
    int64_t         calls[TM_NODE_PRODUCTS];
    tm_node_product products[TM_NODE_PRODUCTS];
    int             n;
    char            wrong[TM_NODE_TEXT]; /* the first wrong result */
    size_t          n_wrong;
    double          seconds[TM_NODE_PRODUCTS]; /* of this round */
} site;

typedef struct {
    tm_node_places places;
    site          *sites; /* (places) */
    uint64_t       seed;
    double        *rates; /* (rounds, places, TM_NODE_PRODUCTS) FLOP/s; 0: not measured */
    size_t         rounds, room;
} checker;

static bool is_gpu(const checker *c, size_t place)
{
    return tm_device_describe(c->places.items[place].device)->kind == TM_DEVICE_GPU;
}

/* The CPU as a whole is what its cores do at the same time: nothing runs there. */
static bool is_sum(const checker *c, size_t place)
{
    return c->places.items[place].processor < 0 && !is_gpu(c, place);
}

/* --- one round ---------------------------------------------------------------------------------------------------- */

static tm_status verify(site *s, int product, tm_error *err)
{
    char wrong[TM_NODE_TEXT];
    TM_TRY(tm_node_load_verify(s->load[product], wrong, err));
    if (!wrong[0]) return TM_OK;
    if (s->n_wrong++ == 0) snprintf(s->wrong, sizeof s->wrong, "%.60s: %.180s", s->products[product].name, wrong);
    return TM_OK;
}

/* Opens the loads of a place and finds out how many calls a sample is. */
static tm_status prepare(size_t place, void *context, tm_error *err)
{
    checker     *c = context;
    site        *s = &c->sites[place];
    const double wanted = is_gpu(c, place) ? GPU_SECONDS : CORE_SECONDS;
    s->n = tm_node_products(is_gpu(c, place), s->products);
    for (int i = 0; i < s->n && !is_sum(c, place); i++) {
        tm_error  why = { 0 };
        double    seconds;
        tm_status st = tm_node_load_open(c->places.items[place].device, &s->products[i], c->seed, &s->load[i], &why);
        if (st == TM_UNSUPPORTED) continue;
        if (st != TM_OK) return tm_fail(err, st, "%s", why.text);
        for (int k = 0; k < 2; k++) TM_TRY(tm_node_load_run(s->load[i], 1, &seconds, err)); /* the first one is slow */
        TM_TRY(verify(s, i, err));
        s->calls[i] = seconds > 0 && seconds < wanted ? (int64_t)ceil(wanted / seconds) : 1;
    }
    return TM_OK;
}

static tm_status measure(size_t place, void *context, tm_error *err)
{
    checker *c = context;
    site    *s = &c->sites[place];
    for (int k = 0; k < s->n; k++) {
        const int i = (int)((c->rounds + (size_t)k) % (size_t)s->n); /* each is first, and behind each */
        if (!s->load[i]) continue;
        if (c->rounds % ROUNDS_OF_A_PLACE == 0) {
            TM_TRY(tm_node_load_move(s->load[i], err));
            TM_TRY(tm_node_load_run(s->load[i], 1, &s->seconds[i], err));
        }
        TM_TRY(tm_node_load_run(s->load[i], s->calls[i], &s->seconds[i], err));
        TM_TRY(verify(s, i, err));
    }
    return TM_OK;
}

static double *rates_of(const checker *c, size_t round, size_t place)
{
    return c->rates + (round * c->places.n + place) * TM_NODE_PRODUCTS;
}

static void keep_round(checker *c)
{
    const size_t bytes = c->places.n * TM_NODE_PRODUCTS * sizeof *c->rates;
    c->rates = tm_grow(c->rates, &c->room, c->rounds, bytes);
    memset(rates_of(c, c->rounds, 0), 0, bytes);
    for (size_t p = 0; p < c->places.n; p++)
        for (int i = 0; i < c->sites[p].n; i++) {
            const site *s = &c->sites[p];
            double     *sum = c->places.cores > 0 ? &rates_of(c, c->rounds, c->places.cores)[i] : NULL;
            if (!s->load[i] || s->seconds[i] <= 0) continue;
            const double rate = s->products[i].flops * (double)s->calls[i] / s->seconds[i];
            rates_of(c, c->rounds, p)[i] = rate;
            if (p < c->places.cores) *sum += rate;
        }
    c->rounds++;
}

static tm_status measure_all(checker *c, double seconds, tm_error *err)
{
    double last_s = 0;
    TM_TRY(tm_node_at_places(&c->places, prepare, c, err));
    while (c->rounds < TM_NODE_LEAST_ROUNDS || seconds - c->places.spent_s > last_s) {
        const double before = c->places.spent_s;
        TM_TRY(tm_node_at_places(&c->places, measure, c, err));
        last_s = c->places.spent_s - before;
        keep_round(c);
    }
    return TM_OK;
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

/* Places of one kind, [from, to), have one floor: the largest of all products, as what disturbs one will disturb the
 * others another time. Returns it. */
static double add_figures(const checker *c, tm_node_outcome *out, size_t from, size_t to)
{
    const size_t  n = to - from, first = out->n_figures;
    double       *x = tm_alloc((n * c->rounds + 1) * sizeof *x), most = 0;
    tm_node_rate *rates = tm_alloc((n + 1) * sizeof *rates);
    for (int i = 0; i < c->sites[from].n; i++) {
        bool all = true;
        for (size_t p = 0; p < n; p++)
            for (size_t r = 0; r < c->rounds; r++) {
                x[p * c->rounds + r] = rates_of(c, r, from + p)[i];
                all = all && x[p * c->rounds + r] > 0;
            }
        if (!all) continue; /* no kernel, or a clock that stood */
        most = fmax(most, tm_node_rates(x, n, c->rounds, rates));
        for (size_t p = 0; p < n; p++) {
            tm_node_figure f = { .unit = "GFLOP/s", .sense = TM_NODE_SPEED };
            /* A core and all of them are not alike: figures of one name are compared. */
            static const char all_cores[] = ", all cores";
            snprintf(f.name, sizeof f.name, "%.*s%s", (int)(sizeof f.name - sizeof all_cores),
                     c->sites[from].products[i].name, is_sum(c, from) ? all_cores : "");
            snprintf(f.place, sizeof f.place, "%s", c->places.items[from + p].name);
            f.value = rates[p].value * 1e-9, f.low = rates[p].low * 1e-9, f.high = rates[p].high * 1e-9;
            tm_node_figure_add(out, &f);
        }
    }
    if (c->rounds < TM_NODE_LEAST_ROUNDS) most = (double)NAN;
    for (size_t i = first; i < out->n_figures; i++) out->figures[i].floor = most;
    free(x);
    free(rates);
    return most;
}

static void conclude(const checker *c, tm_node_outcome *out)
{
    const size_t cores = c->places.cores, gpus = cores > 0 ? cores + 1 : 0;
    double       floor = 0;
    if (cores > 0) {
        floor = add_figures(c, out, 0, cores);
        add_figures(c, out, cores, cores + 1);
    }
    if (gpus < c->places.n) floor = fmax(floor, add_figures(c, out, gpus, c->places.n));
    for (size_t p = 0; p < c->places.n; p++)
        if (c->sites[p].n_wrong > 0)
            tm_node_find(out, -1, c->places.items[p].name, "%.200s (%zu wrong)", c->sites[p].wrong,
                         c->sites[p].n_wrong);
    tm_node_reach(out, "%zu rounds; two measurements of a place differ by at most %.2g %% (95 %%)", c->rounds,
                  100 * floor);
}

tm_status node_check_product(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    checker c = { .seed = task->options->seed };
    TM_TRY(tm_node_places_open(task, &c.places, err));
    c.sites = memset(tm_alloc(c.places.n * sizeof *c.sites), 0, c.places.n * sizeof *c.sites);
    tm_status st = measure_all(&c, task->seconds, err);
    if (st == TM_OK) conclude(&c, out);
    for (size_t p = 0; p < c.places.n; p++)
        for (int i = 0; i < TM_NODE_PRODUCTS; i++) tm_node_load_close(c.sites[p].load[i]);
    free(c.sites);
    free(c.rates);
    tm_node_places_close(&c.places);
    return st;
}
