/* SPDX-License-Identifier: Apache-2.0 */
/* data/sft_read.c - rows are read in batches; the threads take the rows of one in turns, and are joined before the
 * next.
 *
 * The first batch has one row: it decides the layout and opens the chat template, which all threads share from then on.
 */
#include "data/sft_read.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "data/rows.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { BATCH = 256, MOST_THREADS = 16 };

typedef struct {
    json_t    *given;
    tm_text    place;
    tm_ids     ids[2];
    tm_sft_row row;
    tm_status  status;
    tm_error   error;
} item;

typedef struct {
    tm_sft_form *form;
    item        *items;
    int          count, threads;
} batch;

typedef struct {
    batch        *all;
    tm_sft_coder *coder;
    int           first;
} worker;

static void encode_item(const batch *all, tm_sft_coder *coder, item *i)
{
    i->error = (tm_error){ 0 };
    i->status = tm_sft_form_read(all->form, i->given, i->place.data, &i->row, &i->error);
    if (i->status == TM_OK && !i->row.nothing)
        i->status = tm_sft_encode(coder, &i->row, i->place.data, i->ids, &i->error);
}

static void *work(void *argument)
{
    worker *w = argument;
    for (int i = w->first; i < w->all->count; i += w->all->threads) encode_item(w->all, w->coder, &w->all->items[i]);
    return NULL;
}

/* Threads that cannot be started leave their share to this one. */
static void encode_batch(batch *all, tm_sft_coder *const *coders)
{
    worker    workers[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    bool      started[MOST_THREADS] = { false };
    sigset_t  every, before; /* signals are the main thread's business */
    sigfillset(&every);
    sigdelset(&every, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    for (int t = 0; t < all->threads; t++) {
        workers[t] = (worker){ .all = all, .coder = coders[t], .first = t };
        started[t] = t > 0 && all->count > all->threads && pthread_create(&threads[t], NULL, work, &workers[t]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int t = 0; t < all->threads; t++)
        if (!started[t]) work(&workers[t]);
    for (int t = 0; t < all->threads; t++)
        if (started[t]) pthread_join(threads[t], NULL);
}

static tm_status read_batch(tm_rows *rows, batch *all, int most, tm_error *err)
{
    tm_status st = TM_OK;
    for (all->count = 0; all->count < most && st == TM_OK;) {
        item *i = &all->items[all->count];
        st = tm_rows_next(rows, &i->given, err);
        if (!i->given) break;
        if (i->place.data) i->place.length = 0;
        tm_text_add(&i->place, tm_rows_place(rows));
        all->count++;
    }
    return st;
}

/* In the order of the rows. */
static tm_status hand_over(batch *all, tm_sft_counts *counts, tm_sft_sink sink, void *context, tm_error *err)
{
    tm_status st = TM_OK;
    for (int k = 0; k < all->count; k++) {
        item *i = &all->items[k];
        json_decref(i->given);
        if (st != TM_OK) continue;
        st = i->status;
        counts->rows++;
        if (st != TM_OK)
            st = tm_fail(err, st, "%s", i->error.text);
        else if (i->row.nothing)
            counts->nothing++;
        else
            st = sink(context, i->ids, i->place.data, err);
    }
    return st;
}

static tm_status read_all(tm_rows *rows, batch *all, tm_sft_coder *coder, tm_sft_counts *counts, tm_sft_sink sink,
                          void *context, tm_error *err)
{
    tm_sft_coder *coders[MOST_THREADS] = { coder };
    tm_status     st = TM_OK;
    for (int most = 1; st == TM_OK; most = BATCH) {
        tm_status end = read_batch(rows, all, most, err); /* rows before a broken one are looked at first */
        if (most > 1 && all->count == BATCH && all->threads == 1) {
            all->threads = tm_cpu_threads_allowed();
            if (all->threads > MOST_THREADS) all->threads = MOST_THREADS;
            for (int t = 1; t < all->threads; t++) coders[t] = tm_sft_coder_share(coder);
        }
        encode_batch(all, coders);
        tm_error own = { 0 };
        st = hand_over(all, counts, sink, context, &own);
        if (st != TM_OK) {
            if (err) *err = own;
        } else {
            st = end;
        }
        if (all->count == 0) break;
    }
    for (int t = 1; t < all->threads; t++) tm_sft_coder_close(coders[t]);
    return st;
}

tm_status tm_sft_read(const char *path, tm_sft_form *form, tm_sft_coder *coder, tm_sft_counts *counts, tm_sft_sink sink,
                      void *context, tm_error *err)
{
    size_t             n;
    const char *const *columns = tm_sft_form_columns(form, &n);
    tm_rows           *rows;
    TM_TRY(tm_rows_open(path, columns, n, &rows, err));
    batch     all = { .form = form, .items = tm_alloc(BATCH * sizeof(item)), .threads = 1 };
    tm_status st = read_all(rows, &all, coder, counts, sink, context, err);
    for (int i = 0; i < BATCH; i++) {
        tm_text_fini(&all.items[i].place);
        tm_sft_row_fini(&all.items[i].row);
        for (int k = 0; k < 2; k++) free(all.items[i].ids[k].data);
    }
    free(all.items);
    tm_rows_close(rows);
    return st;
}
