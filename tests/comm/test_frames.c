/* SPDX-License-Identifier: Apache-2.0 */
/* What one end of a connection may send, and what becomes of one that sends anything else: frames by hand at one end, a
 * rank's end at the other. No announced number is room in memory. */
#include "support/test.h"

#include "base/arena.h"
#include "comm/engine/frames.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { COST = TM_COMM_EACH, LARGE = 3 * TM_COMM_EARLY };

static tm_comm_peer peer;  /* a rank's end ... */
static int          other; /* ... and that of whoever it is connected with */

static int begin(void **state)
{
    int fd[2];
    (void)state;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0) return -1;
    for (int i = 0; i < 2; i++) fcntl(fd[i], F_SETFL, O_NONBLOCK);
    peer = (tm_comm_peer){ .fd = fd[0] };
    other = fd[1];
    return 0;
}

static int end(void **state)
{
    (void)state;
    tm_comm_peer_free(&peer);
    close(other);
    return 0;
}

/* Sends a head, and of its bytes so many. */
static void say(uint32_t kind, uint32_t tag, uint64_t bytes, const void *data, size_t sent)
{
    tm_comm_frame head = { kind, tag, bytes };
    if (peer.fd < 0) return;
    assert_int_equal(send(other, &head, sizeof head, MSG_NOSIGNAL), (ssize_t)sizeof head);
    for (size_t at = 0; at < sent;) {
        ssize_t n = send(other, (const char *)data + at, sent - at, MSG_NOSIGNAL);
        if (n > 0) at += (size_t)n;
        tm_comm_peer_pull(&peer);
    }
    tm_comm_peer_pull(&peer);
}

/* The next head that the rank has sent. */
static tm_comm_frame said_next(void)
{
    tm_comm_frame head = { 0 };
    tm_comm_peer_push(&peer);
    if (recv(other, &head, sizeof head, 0) != (ssize_t)sizeof head) head.kind = 0;
    return head;
}

static void is_cut_off(const char *fault)
{
    assert_int_equal(peer.fd, -1);
    assert_string_equal(peer.fault, fault);
}

static size_t peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss;
}

/* --- what is too much ------------------------------------------------------------------------- */

TEST(huge_messages)
{
    static const uint64_t bytes[] = { TM_COMM_EARLY + 1, (uint64_t)6 << 30, (uint64_t)1 << 60, UINT64_MAX };
    unsigned long long    calls = tm_alloc_count();
    char                  text[128];
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        snprintf(text, sizeof text, "a message of %llu bytes that nobody has asked for", (unsigned long long)bytes[i]);
        say(TM_COMM_FRAME_EARLY, 3, bytes[i], NULL, 0);
        is_cut_off(text);
        end(test_state), begin(test_state);
        say(TM_COMM_FRAME_ASKED, 3, bytes[i], NULL, 0);
        is_cut_off(text);
        end(test_state), begin(test_state);
    }
    assert_int_equal(tm_alloc_count(), calls);
    /* Asked for, but not so much. */
    char            x[8];
    tm_comm_wanted *w = tm_comm_peer_receive(&peer, 3, x, sizeof x);
    say(TM_COMM_FRAME_OFFER, 3, 8, NULL, 0);
    assert_int_equal(said_next().kind, TM_COMM_FRAME_ASK);
    say(TM_COMM_FRAME_ASKED, 3, 9, NULL, 0);
    is_cut_off("a message of 9 bytes that nobody has asked for");
    assert_false(w->done);
    tm_comm_peer_cancel(&peer, w);
    free(w);
}

/* An offer is room for nothing, however large. */
TEST(offers)
{
    size_t before = peak_kib();
    for (int i = 0; i < TM_COMM_OFFERS && peer.fd >= 0; i++) say(TM_COMM_FRAME_OFFER, 3, (uint64_t)1 << 60, NULL, 0);
    assert_true(peer.fd >= 0);
    assert_true(peak_kib() - before < 32 << 10);
    char            x[4];
    tm_comm_wanted *w = tm_comm_peer_receive(&peer, 3, x, sizeof x);
    assert_true(w->done && w->other_size);
    assert_int_equal(said_next().kind, TM_COMM_FRAME_REFUSE);
    free(w);
    say(TM_COMM_FRAME_OFFER, 3, 1, NULL, 0);
    assert_true(peer.fd >= 0);
    say(TM_COMM_FRAME_OFFER, 3, 1, NULL, 0);
    is_cut_off("more than 65536 offers of messages");
}

/* Of messages that nobody has asked for there is room for so much, and no more. */
TEST(early_messages)
{
    char *data = calloc(TM_COMM_EARLY, 1);
    int   n = TM_COMM_ROOM / (TM_COMM_EARLY + COST);
    for (int i = 0; i < n; i++) say(TM_COMM_FRAME_EARLY, 3, TM_COMM_EARLY, data, TM_COMM_EARLY);
    assert_true(peer.fd >= 0);
    say(TM_COMM_FRAME_EARLY, 3, TM_COMM_EARLY, NULL, 0);
    is_cut_off("more messages than there is room for (8388608 bytes)");
    free(data);
}

TEST(what_is_no_message)
{
    static const struct {
        tm_comm_frame head;
        const char   *fault;
    } rows[] = {
        { { 0, 3, 0 }, "something that is no message" },
        { { 7, 3, 8 }, "something that is no message" },
        { { UINT32_MAX, 3, 8 }, "something that is no message" },
        { { TM_COMM_FRAME_EARLY, TM_COMM_FRAME_TAGS, 0 }, "a message of kind 258" },
        { { TM_COMM_FRAME_OFFER, UINT32_MAX, 0 }, "a message of kind 4294967295" },
        { { TM_COMM_FRAME_ASK, 3, 0 }, "an answer to an offer that nobody has made" },
        { { TM_COMM_FRAME_REFUSE, 3, 0 }, "an answer to an offer that nobody has made" },
        { { TM_COMM_FRAME_ASKED, 3, 0 }, "a message of 0 bytes that nobody has asked for" },
        { { TM_COMM_FRAME_TAKEN, 0, 0 }, "word of 0 bytes that were never sent to it" },
        { { TM_COMM_FRAME_TAKEN, 0, 1 }, "word of 1 bytes that were never sent to it" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        say(rows[i].head.kind, rows[i].head.tag, rows[i].head.bytes, NULL, 0);
        is_cut_off(rows[i].fault);
        end(test_state), begin(test_state);
    }
}

/* --- what is well ----------------------------------------------------------------------------- */

/* Two ends that keep the rules, whatever is asked for first. */
TEST(both_ways)
{
    enum { N = 60 };
    tm_comm_peer      there = { .fd = dup(other) };
    tm_comm_outgoing *out[N];
    char             *data[N], *into[N];
    for (int order = 0; order < 3; order++) {
        tm_comm_wanted *in[N] = { 0 };
        for (int i = 0; i < N; i++) {
            size_t n = i % 5 == 4 ? LARGE : (size_t)(i * 9973) % TM_COMM_EARLY;
            data[i] = malloc(n + 1), into[i] = calloc(n + 1, 1);
            memset(data[i], i + 1, n);
            if (order == 0) in[i] = tm_comm_peer_receive(&peer, i % 7, into[i], n);
        }
        for (int i = 0; i < N; i++) {
            size_t n = i % 5 == 4 ? LARGE : (size_t)(i * 9973) % TM_COMM_EARLY;
            out[i] = tm_comm_peer_send(&there, i % 7, data[i], n);
            assert_true(there.owed <= TM_COMM_ROOM);
            tm_comm_peer_pull(&peer);
        }
        /* Tags in another order than they were sent in; of a tag, as they were. */
        for (int tag = 6; tag >= 0 && order > 0; tag--)
            for (int i = tag; i < N; i += 7) {
                size_t n = i % 5 == 4 ? LARGE : (size_t)(i * 9973) % TM_COMM_EARLY;
                in[i] = tm_comm_peer_receive(&peer, tag, into[i], n);
                if (order == 2) tm_comm_peer_pull(&there), tm_comm_peer_pull(&peer);
            }
        for (int left = 2 * N; left > 0;) {
            tm_comm_peer_push(&there), tm_comm_peer_pull(&peer), tm_comm_peer_push(&peer), tm_comm_peer_pull(&there);
            assert_true(peer.fd >= 0 && there.fd >= 0 && peer.held <= TM_COMM_ROOM);
            left = 0;
            for (int i = 0; i < N; i++) left += !in[i]->done + !out[i]->done;
        }
        for (int i = 0; i < N; i++) {
            size_t n = i % 5 == 4 ? LARGE : (size_t)(i * 9973) % TM_COMM_EARLY;
            assert_false(in[i]->other_size);
            assert_memory_equal(into[i], data[i], n);
            assert_int_equal(into[i][n], 0);
            free(in[i]), free(out[i]), free(data[i]), free(into[i]);
        }
    }
    assert_null(peer.parcels);
    assert_int_equal(peer.offers, 0);
    tm_comm_peer_free(&there);
}

TEST_FIXTURE(begin, end)
