/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of packets from one rank to another, to the byte: where each packet goes, when the rest of the ring is left
 * out, and when there is no room. Both ranks are this thread's. */
#include "support/test.h"
#include "world.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* HEAD: of a packet with a name of up to 8 bytes, before its data. A packet takes whole lines of 64 bytes, and there is
 * room for one more behind it. TAG, OTHER: of the channels 0 and 1. */
enum { HEAD = 64, RING = 65536, MOST = 8192, TAG = 1, OTHER = 129 };

typedef struct {
    tm_comm      *comm[2];
    tm_comm_ring *ring;
    uint64_t      sent[2], received[2]; /* packets of a channel */
    unsigned char data[MOST];
} ring;

static void open_ring(ring *r)
{
    tm_error err = { 0 };
    memset(r, 0, sizeof *r);
    assert_int_equal(tm_comm_open_threads(2, 20, r->comm, &err), TM_OK);
    r->ring = &r->comm[0]->world->segment[0]->ring[1];
}

static void close_ring(ring *r)
{
    tm_error err = { 0 };
    assert_int_equal(tm_comm_fail(r->comm[0], TM_IO, &err, "the end"), TM_IO);
    for (int i = 0; i < 2; i++) tm_comm_close(r->comm[i]);
}

static tm_collective letter_of(ring *r, bool sends, size_t bytes, int channel)
{
    return (tm_collective){ .kind = sends ? TM_COMM_SEND : TM_COMM_RECEIVE,
                            .format = TM_COMM_BYTES,
                            .send = r->data,
                            .receive = r->data,
                            .count = bytes,
                            .peer = sends,
                            .channel = channel,
                            .what = "letter",
                            .step = -1 };
}

static unsigned char byte_of(uint64_t packet, int channel, size_t i)
{
    return (unsigned char)(mix(packet * 7919 + (uint64_t)channel * 104729 + i) >> 24);
}

/* Is there room for a packet with so many bytes of data? And what has been put in then, since the beginning. */
static void put_to(ring *r, int channel, size_t bytes, bool fits, uint64_t put)
{
    tm_collective  call = letter_of(r, true, bytes, channel);
    tm_comm_header header;
    tm_comm_header_fill(&call, &header);
    for (size_t i = 0; i < bytes; i++) r->data[i] = byte_of(r->sent[channel], channel, i);
    uint64_t end = put + 1;
    int      tag = channel ? OTHER : TAG;
    assert_int_equal(tm_comm_ring_put(r->comm[0]->world, 1, tag, &header, TM_COMM_EAGER, r->data, bytes, &end), fits);
    r->sent[channel] += fits;
    assert_int_equal(end, fits ? put : put + 1);
    if (!fits) return;
    assert_false(tm_comm_ring_taken(r->comm[0]->world, 1, end));
}

static void put(ring *r, size_t bytes, uint64_t end)
{
    put_to(r, 0, bytes, true, end);
}

static void take_from(ring *r, int channel, size_t bytes, uint64_t taken)
{
    tm_collective call = letter_of(r, false, bytes, channel);
    tm_error      err = { 0 };
    memset(r->data, 0, sizeof r->data);
    assert_int_equal(tm_comm_run(r->comm[1], &call, &err), TM_OK);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(r->data[i], byte_of(r->received[channel], channel, i));
    r->received[channel]++;
    assert_int_equal(r->ring->taken, taken);
    assert_true(tm_comm_ring_taken(r->comm[0]->world, 1, taken));
}

static void take(ring *r, size_t bytes, uint64_t taken)
{
    take_from(r, 0, bytes, taken);
}

/* A packet is the head, the data and what fills the line. */
TEST(letters_take_whole_lines)
{
    static const struct {
        size_t   bytes;
        uint64_t whole;
    } rows[] = { { 0, 64 },    { 1, 128 },     { 64, 128 },    { 65, 192 },    { 128, 192 },
                 { 129, 256 }, { 5056, 5120 }, { 5057, 5184 }, { 8128, 8192 }, { 8129, 8256 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ring r;
        open_ring(&r);
        put(&r, rows[i].bytes, rows[i].whole);
        assert_int_equal(r.ring->taken, 0);
        take(&r, rows[i].bytes, rows[i].whole);
        close_ring(&r);
    }
}

/* As many as the ring holds, and no more before one was taken. */
TEST(a_full_ring)
{
    ring r;
    open_ring(&r);
    for (uint64_t i = 1; i <= 7; i++) put(&r, 8192 - HEAD, i * 8192);
    put_to(&r, 0, 8192 - HEAD, false, RING - 8192);
    put(&r, 8128 - HEAD, RING - 64); /* one line is left */
    put_to(&r, 0, 0, false, RING - 64);
    take(&r, 8192 - HEAD, 8192);
    put_to(&r, 0, 8128 - HEAD + 1, false, RING - 64);
    put(&r, 8128 - HEAD, RING + 8128);
    put_to(&r, 0, 0, false, RING + 8128);
    for (uint64_t i = 2; i <= 7; i++) take(&r, 8192 - HEAD, i * 8192);
    take(&r, 8128 - HEAD, RING - 64), take(&r, 8128 - HEAD, RING + 8128);
    close_ring(&r);
}

/* One of 8,256 bytes and six of 8,192. */
static void fill_most(ring *r)
{
    put(r, 8192, 8256);
    for (uint64_t i = 1; i <= 6; i++) put(r, 8128, 8256 + i * 8192);
}

/* A long packet that does not fit behind the others leaves the rest out if there is room at the beginning. */
TEST(the_rest_is_left_out)
{
    ring r;
    open_ring(&r);
    fill_most(&r);
    put_to(&r, 0, 8192, false, 57408);
    take(&r, 8192, 8256);
    put_to(&r, 0, 8192, false, 57408); /* a line more than was taken */
    put(&r, 8128, RING + 8192);
    put_to(&r, 0, 0, false, RING + 8192);
    for (uint64_t i = 1; i <= 6; i++) take(&r, 8128, 8256 + i * 8192);
    take(&r, 8128, RING + 8192); /* and what was left out */
    close_ring(&r);
    open_ring(&r);
    fill_most(&r);
    take(&r, 8192, 8256);
    put_to(&r, 0, 8192, false, 57408);
    put(&r, 8000, RING - 64);
    take(&r, 8128, 16448);
    put(&r, 8192, RING + 8256);
    close_ring(&r);
}

/* Who asks for a later packet puts those before it aside, and has taken them. */
TEST(letters_aside)
{
    ring r;
    open_ring(&r);
    for (uint64_t i = 1; i <= 8; i++) { /* so that heads lie where data was */
        put(&r, 8192 - HEAD, i * 8192);
        take(&r, 8192 - HEAD, i * 8192);
    }
    for (uint64_t i = 0; i < 3; i++) put_to(&r, 1, 1 + i, true, RING + 128 * (i + 1));
    put_to(&r, 0, 300, true, RING + 768);
    put_to(&r, 1, 5000, true, RING + 768 + 5120);
    put_to(&r, 1, 0, true, RING + 5888 + 64);
    take_from(&r, 0, 300, RING + 768);
    take_from(&r, 1, 1, RING + 768), take_from(&r, 1, 2, RING + 768);
    put_to(&r, 0, 0, true, RING + 6016);
    take_from(&r, 0, 0, RING + 6016);
    take_from(&r, 1, 3, RING + 6016), take_from(&r, 1, 5000, RING + 6016), take_from(&r, 1, 0, RING + 6016);
    /* Two that nobody asks for any more go with the world. */
    put_to(&r, 1, 7, true, RING + 6144), put_to(&r, 1, 8, true, RING + 6272);
    put_to(&r, 0, 9, true, RING + 6400);
    take_from(&r, 0, 9, RING + 6400);
    close_ring(&r);
}

/* What several threads call at once, each in a group of its own, comes in one piece, and in each thread's order. */
typedef struct {
    ring *r;
    int   channel, count;
    bool  sends;
} caller;

static void *call_often(void *context)
{
    const caller  *c = context;
    tm_comm_header headers[2];
    tm_comm        group = *c->r->comm[c->sends ? 0 : 1];
    group.headers = headers;
    for (int i = 0; i < c->count; i++) {
        unsigned char data[300], expected[300];
        tm_error      err = { 0 };
        size_t        bytes = 200 + (size_t)c->channel * 100;
        for (size_t k = 0; k < bytes; k++) expected[k] = byte_of((uint64_t)i, c->channel, k);
        memcpy(data, expected, bytes);
        tm_collective call = letter_of(c->r, c->sends, bytes, c->channel);
        call.send = call.receive = data;
        if (!c->sends) memset(data, 0, bytes);
        if (tm_comm_run(&group, &call, &err) != TM_OK || memcmp(data, expected, bytes) != 0) return "lost";
    }
    return NULL;
}

TEST(two_threads_of_each_rank)
{
    ring      r;
    pthread_t threads[4];
    caller    callers[4];
    open_ring(&r);
    for (int i = 0; i < 4; i++) {
        callers[i] = (caller){ &r, i % 2, 3000, i < 2 };
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    close_ring(&r);
}
