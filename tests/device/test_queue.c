/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a device: what the calls promise, on the CPU, which does things at once, and on `late`, which does them
 * as late as it may. */
#include <signal.h>
#include <sys/wait.h>

#include "support/test.h"

#include "base/clock.h"
#include "device/backend.h"
#include "support/training.h"

#define OK(call) assert_int_equal((call), TM_OK)

enum { BYTES = 3 << 20 }; /* more than one piece of a parallel copy */

TEST(copies_are_done_in_order)
{
    static const char *const names[] = { "cpu", "reference", "null", "late" };
    unsigned char           *from = malloc(BYTES), *to = malloc(BYTES);
    assert_true(from && to);
    for (size_t i = 0; i < BYTES; i++) from[i] = (unsigned char)(i * 7 + (i >> 13));
    for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
        tm_device *device = test_device_open(names[d], 2);
        tm_address a, b;
        OK(tm_device_alloc(device, BYTES, &a, NULL));
        OK(tm_device_alloc(device, BYTES, &b, NULL));
        OK(tm_device_write(device, a, from, BYTES, NULL));
        OK(tm_device_fill(device, b, 9, BYTES, NULL));
        OK(tm_device_copy(device, tm_address_add(b, 1000), tm_address_add(a, 77), BYTES / 2, NULL));
        OK(tm_device_fill(device, tm_address_add(b, 2000), 0, 10, NULL));
        OK(tm_device_read(device, to, b, BYTES, NULL));
        OK(tm_device_wait(device, NULL));
        for (size_t i = 0; i < BYTES; i++) {
            unsigned char wanted = i >= 1000 && i < 1000 + BYTES / 2 ? from[i - 1000 + 77] : 9;
            if (i >= 2000 && i < 2010) wanted = 0;
            if (to[i] != wanted) fail_msg("%s: byte %zu is %d, wanted %d", names[d], i, to[i], wanted);
        }
        tm_device_release(device, a, BYTES);
        tm_device_release(device, b, BYTES);
        tm_device_close(device);
    }
    free(from);
    free(to);
}

TEST(late_does_nothing_before_somebody_waits)
{
    tm_device *device = test_device_open("late", 1);
    tm_address a;
    int        value = 1, out = 5;
    OK(tm_device_alloc(device, sizeof value, &a, NULL));
    OK(tm_device_read(device, &out, a, sizeof out, NULL));
    OK(tm_device_wait(device, NULL));
    assert_int_equal(out, -1); /* fresh memory is no memory of zeros */
    OK(tm_device_write(device, a, &value, sizeof value, NULL));
    value = 2; /* too early: it is not written yet */
    out = 5;
    OK(tm_device_read(device, &out, a, sizeof out, NULL));
    assert_int_equal(out, -1);
    OK(tm_device_wait(device, NULL));
    assert_int_equal(out, 2);
    tm_device_release(device, a, sizeof value);
    tm_device_close(device);
}

/* Does following an address end a process? The byte there is 1, or poison. */
static void check_hidden(tm_address a)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        int found = *(volatile unsigned char *)a.at; // NOLINT
        _exit(found == 1 || found == 0xff ? 99 : 98);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
                (WIFEXITED(status) && WEXITSTATUS(status) < 98)); /* a sanitizer exits */
}

TEST(nobody_can_look_into_the_memory_of_late)
{
    tm_device *device = test_device_open("late", 1);
    tm_address a;
    void      *host;
    OK(tm_device_alloc(device, 4096, &a, NULL));
    check_hidden(a);
    OK(tm_device_fill(device, a, 1, 4096, NULL));
    OK(tm_device_wait(device, NULL));
    check_hidden(a);
    assert_refused(tm_device_alloc_host(device, 64, &host, err), TM_UNSUPPORTED, "has its own memory");
    tm_device_release(device, a, 4096);
    tm_device_close(device);
}

/* Two queues: the second copies what the first writes. Without waiting for the instant it would copy what was there. */
TEST(an_instant_orders_two_queues)
{
    for (int waits = 0; waits < 2; waits++) {
        tm_device        *device = test_device_open("late", 1);
        const tm_backend *b = device->backend;
        tm_queue         *second;
        tm_instant       *early, *written;
        tm_address        at;
        int               one = 1, two = 2, out;
        double            seconds;
        OK(b->queue_open(device, &second, NULL));
        OK(b->instant_open(device, &early, NULL));
        OK(b->instant_open(device, &written, NULL));
        OK(b->alloc(device, sizeof one, &at, NULL));
        OK(b->write(device->queues[TM_ON_COMPUTE], at, &one, sizeof one, NULL));
        OK(b->wait(device->queues[TM_ON_COMPUTE], NULL));
        OK(b->record(device->queues[TM_ON_COMPUTE], early, NULL));
        OK(b->write(device->queues[TM_ON_COMPUTE], at, &two, sizeof two, NULL));
        OK(b->record(device->queues[TM_ON_COMPUTE], written, NULL));
        if (waits) OK(b->wait_for(second, written, NULL));
        OK(b->read(second, &out, at, sizeof out, NULL));
        OK(b->wait(second, NULL));
        assert_int_equal(out, waits ? 2 : 1);
        OK(b->wait(device->queues[TM_ON_COMPUTE], NULL));
        OK(b->time(early, written, &seconds, NULL));
        assert_true(seconds >= 0 && seconds < 60);
        b->instant_close(early);
        b->instant_close(written);
        b->queue_close(second);
        tm_device_release(device, at, sizeof one);
        tm_device_close(device);
    }
}

/* A queue that waits for nothing reads what was there before, or what comes last: at every second wait of the host. */
TEST(the_other_queues_are_late_and_early)
{
    for (int early = 0; early < 2; early++) {
        tm_device        *device = test_device_open("late", 1);
        const tm_backend *b = device->backend;
        tm_queue         *computes = device->queues[TM_ON_COMPUTE], *copies = device->queues[TM_ON_COPY];
        tm_address        at;
        int               one = 1, two = 2, out;
        OK(b->alloc(device, sizeof one, &at, NULL));
        for (int waits = 0; waits < 2 - early; waits++) {
            OK(b->write(computes, at, &one, sizeof one, NULL));
            OK(b->wait(computes, NULL));
        }
        OK(b->read(copies, &out, at, sizeof out, NULL));
        OK(b->write(computes, at, &two, sizeof two, NULL));
        OK(b->wait(computes, NULL));
        OK(b->wait(copies, NULL));
        assert_int_equal(out, early ? 1 : 2);
        tm_device_release(device, at, sizeof one);
        tm_device_close(device);
    }
}

/* A time is what lies between two instants, by the clock, in seconds. */
TEST(times_are_those_between_two_instants)
{
    static const char *const names[] = { "cpu", "reference", "null", "late" };
    for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
        tm_device        *device = test_device_open(names[d], 1);
        const tm_backend *b = device->backend;
        tm_instant       *one, *two;
        double            seconds, back;
        OK(b->instant_open(device, &one, NULL));
        OK(b->instant_open(device, &two, NULL));
        int64_t at[4] = { tm_now_ns() };
        OK(b->record(device->queues[TM_ON_COMPUTE], one, NULL));
        OK(b->wait(device->queues[TM_ON_COMPUTE], NULL));
        at[1] = tm_now_ns();
        usleep(20000);
        at[2] = tm_now_ns();
        OK(b->record(device->queues[TM_ON_COMPUTE], two, NULL));
        OK(b->wait(device->queues[TM_ON_COMPUTE], NULL));
        at[3] = tm_now_ns();
        OK(b->time(one, two, &seconds, NULL));
        OK(b->time(two, one, &back, NULL));
        assert_true(seconds * 1e9 >= (double)(at[2] - at[1]) - 1 && seconds * 1e9 <= (double)(at[3] - at[0]) + 1);
        assert_true(back == -seconds);
        b->instant_close(one);
        b->instant_close(two);
        tm_device_close(device);
    }
}

static tm_status mark(tm_device *device, tm_ledger *ledger, const char *line)
{
    return tm_marks_add(device, &(tm_marked){ .ledger = ledger, .line = line }, NULL);
}

/* Each line has the time up to the next mark; what is marked as nobody's is not counted. */
TEST(lines_have_the_time_to_the_next)
{
    enum { MANY = 300 };
    static char first[] = "a line", again[] = "a line"; /* the text counts, not its place */
    tm_device  *device = test_device_open("cpu", 1);
    tm_ledger   ledger = { 0 }, other = { 0 };
    int64_t     from = tm_now_ns();
    OK(mark(device, &ledger, first));
    usleep(10000);
    OK(mark(device, NULL, "nobody's"));
    usleep(20000);
    int64_t over = tm_now_ns();
    OK(mark(device, &other, "of another"));
    OK(mark(device, &ledger, "last"));
    OK(mark(device, NULL, NULL));
    OK(tm_device_wait(device, NULL));
    double all = (double)(tm_now_ns() - over) * 1e-9;
    assert_true(ledger.count == 2 && other.count == 1);
    assert_string_equal(ledger.lines[0].name, "a line");
    assert_string_equal(other.lines[0].name, "of another");
    assert_true(ledger.lines[0].value >= 0.01 && ledger.lines[0].value <= (double)(over - from) * 1e-9 - 0.02 + 1e-9);
    assert_true(ledger.lines[1].value >= 0 && ledger.lines[1].value + other.lines[0].value <= all);
    tm_ledger before = ledger;
    for (int i = 0; i < MANY; i++) OK(mark(device, &ledger, i % 3 ? first : again));
    OK(mark(device, NULL, NULL));
    OK(tm_device_wait(device, NULL));
    assert_int_equal(ledger.count, 2);
    assert_true(ledger.lines[0].value > before.lines[0].value && ledger.lines[1].value == before.lines[1].value);
    before = ledger;
    OK(tm_device_wait(device, NULL)); /* nothing is counted twice */
    assert_true(ledger.lines[0].value == before.lines[0].value);
    tm_ledger_reset(&ledger);
    assert_true(ledger.count == 2 && ledger.lines[0].value == 0 && ledger.lines[1].value == 0);
    assert_string_equal(ledger.lines[1].name, "last");
    tm_device_close(device);
}

/* Work that is timed as a whole has the lines that it had when it was timed one by one, in the same shares. */
TEST(a_whole_is_parted_as_it_was)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_ledger       ledger = { 0 }, shares = { 0 };
    const tm_marked nobody = { 0 }, whole = { .ledger = &ledger, .shares = &shares };
    for (int round = 0; round < 2; round++) { /* what was known before the second is forgotten */
        tm_marked one = { .ledger = &ledger, .line = "one", .shares = &shares, .first = true };
        tm_marked two = { .ledger = &ledger, .line = "two", .shares = &shares };
        OK(tm_marks_add(device, &one, NULL));
        usleep(round ? 2000 : 50000);
        OK(tm_marks_add(device, &two, NULL));
        usleep(20000);
        OK(tm_marks_add(device, &nobody, NULL));
    }
    OK(tm_device_wait(device, NULL));
    assert_true(shares.count == 2 && shares.lines[0].value < 0.05 && shares.lines[1].value >= 0.02);
    assert_true(ledger.lines[0].value >= shares.lines[0].value + 0.05 && ledger.lines[1].value >= 0.04);
    tm_ledger_reset(&ledger);
    int64_t from = tm_now_ns();
    OK(tm_marks_add(device, &whole, NULL));
    usleep(10000);
    OK(tm_marks_add(device, &nobody, NULL));
    OK(tm_device_wait(device, NULL));
    double a = ledger.lines[0].value, b = ledger.lines[1].value;
    assert_true(ledger.count == 2 && a + b >= 0.01 && a + b <= (double)(tm_now_ns() - from) * 1e-9);
    assert_true(fabs(a * shares.lines[1].value - b * shares.lines[0].value) <= 1e-12);
    memset(&ledger, 0, sizeof ledger);
    tm_ledger_reset(&shares); /* nothing took any time: equal parts */
    OK(tm_marks_add(device, &whole, NULL));
    usleep(1000);
    OK(tm_marks_add(device, &nobody, NULL));
    OK(tm_device_wait(device, NULL));
    assert_true(ledger.lines[0].value > 0 && ledger.lines[0].value == ledger.lines[1].value);
    tm_device_close(device);
}

/* Times go to the lines of the ledger when the queue was waited for, whoever computes. */
TEST(times_are_known_after_waiting)
{
    static const char *const names[] = { "cpu", "late" };
    for (int d = 0; d < 2; d++) {
        tm_step_options options = test_llama_options();
        tm_trainer     *trainer = test_trainer_on(names[d], 1, &options, 1);
        test_batch      batch = test_batch_random(options.micro_batch, options.seq, options.shape.vocab_size, 2);
        tm_ledger       ledger = { 0 };
        tm_micro_batch  micro = { { batch.tokens, batch.targets }, 0 };
        tm_step_result  result;
        double          sum = 0;
        OK(tm_trainer_begin(trainer, 1, 1e-3, 1, batch.target_tokens, NULL));
        OK(tm_trainer_accumulate(trainer, 0, &micro, &ledger, NULL));
        assert_int_equal(ledger.count, 0);
        OK(tm_trainer_update(trainer, &result, &ledger, NULL));
        assert_true(ledger.count > 8);
        for (size_t i = 0; i < ledger.count; i++) {
            assert_true(ledger.lines[i].value >= 0);
            for (size_t k = 0; k < i; k++) assert_string_not_equal(ledger.lines[i].name, ledger.lines[k].name);
            sum += ledger.lines[i].value;
        }
        assert_true(sum > 0 && sum < 60);
        assert_string_equal(ledger.lines[0].name, "forward embedding");
        test_batch_fini(&batch);
        test_trainer_end(trainer);
    }
}
