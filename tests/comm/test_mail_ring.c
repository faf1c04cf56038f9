/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of letters from one rank to another, to the byte: where each letter goes, when the rest of the ring is left
 * out, when there is no room, and what is told of a world that fails meanwhile. Both ranks are this thread's. */
#include "world.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* HEAD: of a letter, before its data. A letter takes whole lines of 64 bytes. TAG, OTHER: of the channels 0 and 1. */
enum { HEAD = 144, RING = 32768, MOST = 8192, TAG = 1, OTHER = 129 };

typedef struct {
    tm_comm      *comm[2];
    tm_comm_mail *mail;
    uint64_t      sent[2], received[2]; /* letters of a channel */
    unsigned char data[MOST];
} ring;

static void open_ring(ring *r)
{
    tm_error err = { 0 };
    memset(r, 0, sizeof *r);
    assert_int_equal(tm_comm_open_threads(2, 20, r->comm, &err), TM_OK);
    r->mail = &r->comm[0]->world->desk[0]->mail[1];
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

static unsigned char byte_of(uint64_t letter, int channel, size_t i)
{
    return (unsigned char)(mix(letter * 7919 + (uint64_t)channel * 104729 + i) >> 24);
}

/* Is there room for a letter with so many bytes of data? And what has been put in then, since the beginning. */
static void put_to(ring *r, int channel, size_t bytes, bool fits, uint64_t put)
{
    tm_collective  call = letter_of(r, true, bytes, channel);
    tm_comm_notice notice;
    tm_comm_notice_fill(&call, &notice);
    for (size_t i = 0; i < bytes; i++) r->data[i] = byte_of(r->sent[channel], channel, i);
    uint64_t end = put + 1;
    int      tag = channel ? OTHER : TAG;
    assert_int_equal(tm_comm_mail_put(r->comm[0]->world, 1, tag, &notice, TM_COMM_INSIDE, r->data, bytes, &end), fits);
    r->sent[channel] += fits;
    assert_int_equal(r->mail->put, put);
    if (!fits) return;
    assert_int_equal(end, put);
    assert_false(tm_comm_mail_taken(r->comm[0]->world, 1, end));
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
    assert_int_equal(r->mail->taken, taken);
    assert_true(tm_comm_mail_taken(r->comm[0]->world, 1, taken));
}

static void take(ring *r, size_t bytes, uint64_t taken)
{
    take_from(r, 0, bytes, taken);
}

/* A letter is the head, the data and what fills the line. */
static void letters_take_whole_lines(void **state)
{
    static const struct {
        size_t   bytes;
        uint64_t whole;
    } rows[] = { { 0, 192 },   { 1, 192 },     { 48, 192 },    { 49, 256 },    { 112, 256 },
                 { 113, 320 }, { 4976, 5120 }, { 4977, 5184 }, { 8176, 8320 }, { 8177, 8384 } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ring r;
        open_ring(&r);
        put(&r, rows[i].bytes, rows[i].whole);
        assert_int_equal(r.mail->taken, 0);
        take(&r, rows[i].bytes, rows[i].whole);
        close_ring(&r);
    }
}

/* Taken one by one, short letters stay in the first 5120 bytes. */
static void short_letters_go_back(void **state)
{
    ring r;
    (void)state;
    open_ring(&r);
    for (uint64_t round = 0; round < 3; round++)
        for (uint64_t i = 1; i <= 26; i++) { /* one more would end at 5184 */
            put(&r, 1, round * RING + i * 192);
            take(&r, 1, round * RING + i * 192);
        }
    close_ring(&r);
    open_ring(&r);
    for (uint64_t round = 0; round < 3; round++)
        for (uint64_t i = 1; i <= 20; i++) { /* the last one ends at 5120 */
            put(&r, 112, round * RING + i * 256);
            take(&r, 112, round * RING + i * 256);
        }
    close_ring(&r);
    /* The longest that is short, and the next one, which goes on to the end of the ring. */
    open_ring(&r);
    for (uint64_t round = 0; round < 3; round++) {
        put(&r, 4976, round * RING + 5120);
        take(&r, 4976, round * RING + 5120);
    }
    close_ring(&r);
    open_ring(&r);
    for (uint64_t round = 0; round < 3; round++)
        for (uint64_t i = 1; i <= 6; i++) {
            put(&r, 4977, round * RING + i * 5184);
            take(&r, 4977, round * RING + i * 5184);
        }
    /* A short one behind long ones goes back as well. */
    put(&r, 0, 3 * RING + 192);
    close_ring(&r);
}

/* Its beginning is free again when all bytes of the letter are: until then short letters go on. */
static void short_letters_go_on(void **state)
{
    ring r;
    (void)state;
    open_ring(&r);
    for (uint64_t i = 1; i <= 27; i++) put(&r, 1, i * 192); /* nobody has taken one */
    take(&r, 1, 192);
    put(&r, 49, 5184 + 256); /* it would reach into the second one */
    put(&r, 1, RING + 192);
    for (uint64_t i = 2; i <= 27; i++) take(&r, 1, i * 192);
    take(&r, 49, 5184 + 256);
    take(&r, 1, RING + 192); /* and what was left out */
    close_ring(&r);
    /* What is left out begins where a letter was. */
    open_ring(&r);
    for (uint64_t i = 1; i <= 27; i++) put(&r, 1, i * 192);
    for (uint64_t i = 1; i <= 27; i++) take(&r, 1, i * 192);
    for (uint64_t i = 1; i <= 26; i++) {
        put(&r, 1, RING + i * 192);
        take(&r, 1, RING + i * 192);
    }
    put(&r, 1, 2 * RING + 192);
    take(&r, 1, 2 * RING + 192);
    close_ring(&r);
}

/* As many as the ring holds, and no more before one was taken. */
static void a_full_ring(void **state)
{
    ring r;
    (void)state;
    open_ring(&r);
    for (uint64_t i = 1; i <= 4; i++) put(&r, 8192 - HEAD, i * 8192); /* the last one ends with the ring */
    put_to(&r, 0, 8192 - HEAD, false, RING);
    put_to(&r, 0, 0, false, RING);
    take(&r, 8192 - HEAD, 8192);
    put_to(&r, 0, 8192 - HEAD + 1, false, RING);
    put(&r, 8192 - HEAD, RING + 8192);
    put_to(&r, 0, 0, false, RING + 8192);
    for (uint64_t i = 2; i <= 5; i++) take(&r, 8192 - HEAD, i * 8192);
    close_ring(&r);
}

/* A long letter that does not fit behind the others leaves the rest out if there is room at the beginning. */
static void the_rest_is_left_out(void **state)
{
    ring r;
    (void)state;
    open_ring(&r);
    put(&r, 8192, 8384);
    put(&r, 8048, 16576), put(&r, 8048, 24768);
    put_to(&r, 0, 8192, false, 24768);
    take(&r, 8192, 8384);
    put(&r, 8192, RING + 8384); /* as much as was taken */
    put_to(&r, 0, 0, false, RING + 8384);
    take(&r, 8048, 16576), take(&r, 8048, 24768), take(&r, 8192, RING + 8384);
    close_ring(&r);
    open_ring(&r);
    put(&r, 8176, 8320);
    put(&r, 8048, 16512), put(&r, 8048, 24704);
    take(&r, 8176, 8320);
    put_to(&r, 0, 8192, false, 24704); /* a line more than was taken */
    put(&r, 7856, 24704 + 8000);
    take(&r, 8048, 16512);
    put(&r, 8192, RING + 8384);
    close_ring(&r);
}

/* Who asks for a later letter puts those before it aside, and has taken them. */
static void letters_aside(void **state)
{
    ring r;
    (void)state;
    open_ring(&r);
    for (uint64_t i = 1; i <= 4; i++) { /* so that heads lie where data was */
        put(&r, 8192 - HEAD, i * 8192);
        take(&r, 8192 - HEAD, i * 8192);
    }
    for (uint64_t i = 0; i < 3; i++) put_to(&r, 1, 1 + i, true, RING + 192 * (i + 1));
    put_to(&r, 0, 300, true, RING + 576 + 448);
    put_to(&r, 1, 5000, true, RING + 1024 + 5184);
    put_to(&r, 1, 0, true, RING + 6208 + 192); /* the beginning is not free */
    take_from(&r, 0, 300, RING + 1024);
    take_from(&r, 1, 1, RING + 1024), take_from(&r, 1, 2, RING + 1024);
    put_to(&r, 0, 0, true, 2 * RING + 192);
    take_from(&r, 0, 0, 2 * RING + 192);
    take_from(&r, 1, 3, 2 * RING + 192), take_from(&r, 1, 5000, 2 * RING + 192), take_from(&r, 1, 0, 2 * RING + 192);
    /* Two that nobody asks for any more go with the world. */
    put_to(&r, 1, 7, true, 2 * RING + 384), put_to(&r, 1, 8, true, 2 * RING + 576),
        put_to(&r, 0, 9, true, 2 * RING + 768);
    take_from(&r, 0, 9, 2 * RING + 768);
    close_ring(&r);
}

/* Inside, up to 8192 bytes; above them reached, unless it is posted or out of reach. */
static void ways(void **state)
{
    static const size_t sizes[] = { 0, 8191, 8192, 8193 };
    (void)state;
    for (int32_t window = -1; window < 2; window++)
        for (int posted = 0; posted < 2; posted++)
            for (int i = 0; i < 4; i++) {
                tm_comm_notice notice = { .send_window = window, .receive_window = -1 - window };
                assert_int_equal(tm_comm_mail_way(&notice, sizes[i], posted), i < 3 ? TM_COMM_INSIDE
                                                                              : window >= 0 && !posted
                                                                                  ? TM_COMM_REACHED
                                                                                  : TM_COMM_CARRIED);
            }
}

/* --- a world that fails ------------------------------------------------------------------------ */

typedef struct {
    bool   sends;
    size_t bytes;
} wait_case;

static void wait_for_failure(tm_comm *world, void *context)
{
    const wait_case *w = context;
    tm_error         failure = { 0 };
    tm_status        st = TM_OK;
    void            *data;
    CHECK_OK(tm_comm_alloc(world, 65536, &data, err));
    if (tm_comm_rank(world) == 1) {
        usleep(50000);
        CHECK(tm_comm_fail(world, TM_NUMBERS, &failure, "no number") == TM_NUMBERS);
        return;
    }
    tm_collective call = { .kind = w->sends ? TM_COMM_SEND : TM_COMM_RECEIVE,
                           .format = TM_COMM_BYTES,
                           .send = data,
                           .receive = data,
                           .count = w->bytes,
                           .peer = 1,
                           .step = -1 };
    int64_t       begin = tm_now_ns();
    for (int i = 0; i < 6 && st == TM_OK; i++) st = tm_comm_run(world, &call, &failure);
    CHECK(st == TM_NUMBERS && strcmp(failure.text, "no number") == 0);
    CHECK((double)(tm_now_ns() - begin) * 1e-9 < 5);
}

/* Whoever waits for a letter, for room or for the other to have copied hears of it long before the deadline. */
static void waits_end_with_the_world(void **state)
{
    static const wait_case cases[] = { { false, 10 }, { true, 8000 }, { true, 65536 } };
    (void)state;
    for (int i = 0; i < 3; i++) run_world(2, NULL, 10, false, wait_for_failure, (void *)&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_take_whole_lines),
        cmocka_unit_test(short_letters_go_back),
        cmocka_unit_test(short_letters_go_on),
        cmocka_unit_test(a_full_ring),
        cmocka_unit_test(the_rest_is_left_out),
        cmocka_unit_test(letters_aside),
        cmocka_unit_test(ways),
        cmocka_unit_test(waits_end_with_the_world),
    };
    return cmocka_run_group_tests_name("comm/mail_ring", tests, NULL, NULL);
}
