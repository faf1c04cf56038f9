/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/product.h"

#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The products of Llama 70B by which accelerators have been compared (SemiAnalysis, December 2024). */
static const int64_t llama70b[][3] = {
    { 8192, 8192, 8192 },  { 16384, 8192, 7168 }, { 16384, 16384, 16384 }, { 16384, 1024, 8192 },
    { 16384, 3584, 8192 }, { 4096, 4096, 4096 },  { 16384, 8192, 1280 },
};

static void add(tm_product_list *list, const tm_product *like, const char *name, int64_t m, int64_t n, int64_t k,
                bool trans_a, bool trans_b)
{
    TM_ASSERT(list->count < TM_PRODUCTS);
    tm_product *p = &list->items[list->count++];
    *p = *like;
    snprintf(p->name, sizeof p->name, "%s", name);
    p->m = m, p->n = n, p->k = k;
    p->trans_a = trans_a, p->trans_b = trans_b;
}

/* "512" and the letter or end behind it; false if it is no size. */
static bool take_size(const char **at, int64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9') return false;
    *out = strtoll(*at, &end, 10);
    *at = end;
    return *out >= 1 && *out <= 1 << 24;
}

/* "512x768x64" or "512x768x64:nt", up to a comma or the end. */
static bool take_shape(const char **at, tm_product *out)
{
    if (!take_size(at, &out->m) || *(*at)++ != 'x') return false;
    if (!take_size(at, &out->n) || *(*at)++ != 'x') return false;
    if (!take_size(at, &out->k)) return false;
    if (**at == ':') {
        const char *letters = *at + 1;
        for (int i = 0; i < 2; i++)
            if (letters[i] != 'n' && letters[i] != 't') return false;
        out->trans_a = letters[0] == 't';
        out->trans_b = letters[1] == 't';
        *at += 3;
    }
    return **at == ',' || **at == '\0';
}

tm_status tm_products_parse(const char *text, const tm_product *like, tm_product_list *list, tm_error *err)
{
    if (tm_names_equal(text, "llama70b")) {
        for (size_t i = 0; i < sizeof llama70b / sizeof llama70b[0]; i++) {
            char name[32];
            snprintf(name, sizeof name, "llama70b %zu", i + 1);
            add(list, like, name, llama70b[i][0], llama70b[i][1], llama70b[i][2], like->trans_a, like->trans_b);
        }
        return TM_OK;
    }
    for (const char *at = text;; at++) {
        tm_product  p = *like;
        const char *start = at;
        if (!take_shape(&at, &p))
            return tm_fail(
                err, TM_INVALID,
                "'%.100s' (--shapes) is not a list of shapes; wanted llama70b, or MxNxK separated by commas, "
                "each from 1 to 16777216, optionally followed by :nn, :nt, :tn or :tt",
                start);
        if (list->count == TM_PRODUCTS)
            return tm_fail(err, TM_INVALID, "--shapes has more than %d shapes; measure them in several calls",
                           TM_PRODUCTS);
        add(list, like, "", p.m, p.n, p.k, p.trans_a, p.trans_b);
        if (!*at) return TM_OK;
    }
}

/* The three products of a linear layer with weight (out, in) over `rows` rows. */
static void add_linear(tm_product_list *list, const tm_product *like, const char *layer, int64_t rows, int64_t out,
                       int64_t in)
{
    char name[64];
    snprintf(name, sizeof name, "%s forward", layer);
    add(list, like, name, rows, out, in, false, true);
    snprintf(name, sizeof name, "%s dgrad", layer);
    add(list, like, name, rows, in, out, false, false);
    snprintf(name, sizeof name, "%s wgrad", layer);
    add(list, like, name, out, in, rows, true, false);
}

void tm_products_of_model(const tm_model_shape *s, int64_t batch, int64_t seq, const tm_product *like,
                          tm_product_list *list)
{
    tm_model_product products[TM_MAX_PRODUCTS];
    int              n = tm_model_products(s, products);
    for (int i = 0; i < n; i++) add_linear(list, like, products[i].name, batch * seq, products[i].out, products[i].in);
}

static int64_t scaled(int64_t n, double scale)
{
    int64_t sixteenths = (int64_t)llround((double)n / scale / 16);
    return sixteenths < 1 ? 16 : sixteenths * 16;
}

tm_product tm_product_scaled(const tm_product *product, double scale)
{
    tm_product p = *product;
    char       factor[32], plain[64];
    p.m = scaled(p.m, scale), p.n = scaled(p.n, scale), p.k = scaled(p.k, scale);
    tm_format_double(factor, scale);
    snprintf(plain, sizeof plain, "%lldx%lldx%lld", (long long)product->m, (long long)product->n,
             (long long)product->k);
    snprintf(p.name, sizeof p.name, "%.56s, each side / %.16s", *product->name ? product->name : plain, factor);
    return p;
}
