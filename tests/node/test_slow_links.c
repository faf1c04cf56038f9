/* SPDX-License-Identifier: Apache-2.0 */
/* Slow links and ranks among made-up rates: thousands of worlds with noise only, and faults at twice the floor; the
 * check itself among ranks that are threads, on a clock that is made up; counters below a made-up system. */
#include "support/test.h"

#include "base/random.h"
#include "comm/world.h"
#include "apps/node/among.h"
#include "apps/node/counters.h"
#include "apps/node/slow_links.h"
#include "support/folder.h"

enum { MOST = 16 };
typedef struct {
    double        memory[TM_LINKS_PARTS][MOST * MOST];
    const double *part[TM_LINKS_PARTS];
} rates;

/* Rates that spread by `noise` (a logarithm), some with a bad part; ranks are unlike by up to 4 %. */
static void draw(rates *x, int n, double noise, uint64_t seed)
{
    for (int h = 0; h < TM_LINKS_PARTS; h++) {
        x->part[h] = x->memory[h];
        for (int i = 0; i < n * n; i++) {
            const uint64_t at = (uint64_t)(h * 1000 + i);
            const double   own = 0.04 * tm_random_uniform(seed, 3, (uint64_t)(i / n)) +
                               0.04 * tm_random_uniform(seed, 4, (uint64_t)(i % n));
            const bool hiccup = tm_random_uniform(seed, 2, at) < 0.01;
            x->memory[h][i] = i / n == i % n
                                  ? (double)NAN
                                  : 1e9 * exp(noise * tm_random_normal(seed, 1, at) - own - (hiccup ? 1 : 0));
        }
    }
}

static void slow_down(rates *x, int n, int sender, int receiver, double by)
{
    for (int h = 0; h < TM_LINKS_PARTS; h++)
        for (int i = 0; i < n * n; i++)
            if ((sender < 0 || i / n == sender) && (receiver < 0 || i % n == receiver)) x->memory[h][i] *= exp(-by);
}

TEST(noise_is_no_fault)
{
    tm_slow_link slow[MOST * MOST];
    rates        x;
    for (uint64_t seed = 0; seed < (test_is_full() ? 20000 : 1000); seed++) {
        const int n = 3 + (int)(seed % 10);
        draw(&x, n, 0.02 + 0.3 * tm_random_uniform(seed, 9, 0), seed);
        const int found = tm_links_slow(x.part, n, 0.25, slow, MOST * MOST);
        if (found)
            print_message("seed %d: %d, %d of %d: %g\n", (int)seed, slow[0].who.sender, slow[0].who.receiver, n,
                          slow[0].part);
        assert_int_equal(found, 0);
    }
}

/* What lies `least` and the floor, or twice the floor, below the others: each of 20, of each kind, and nothing else. */
TEST(faults_are_named)
{
    tm_slow_link slow[MOST * MOST];
    rates        x;
    for (int kind = TM_BLAME_SENDER; kind <= TM_BLAME_LINK; kind++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            const int    n = 4 + (int)(seed % 9), a = (int)(seed % (uint64_t)n), b = (a + 1 + (int)(seed % 2)) % n;
            const double noise = seed % 2 ? 0.02 : 0.15;
            draw(&x, n, noise, 100 + seed);
            const double floor = tm_links_floor(x.part, n), by = floor + fmax(0.25, floor) + 0.08;
            slow_down(&x, n, kind == TM_BLAME_RECEIVER ? -1 : a, kind == TM_BLAME_SENDER ? -1 : b, by);
            const int found = tm_links_slow(x.part, n, 0.25, slow, MOST * MOST);
            if (found != 1 || slow[0].who.kind != (tm_blame_kind)kind)
                print_message("kind %d seed %d n %d: found %d, first %d %d -> %d %g floor %g by %g\n", kind, (int)seed,
                              n, found, slow[0].who.kind, slow[0].who.sender, slow[0].who.receiver, slow[0].part, floor,
                              by);
            assert_int_equal(found, 1);
            assert_int_equal(slow[0].who.kind, kind);
            if (kind != TM_BLAME_RECEIVER) assert_int_equal(slow[0].who.sender, a);
            if (kind != TM_BLAME_SENDER) assert_int_equal(slow[0].who.receiver, b);
            assert_true(fabs(log(slow[0].part) + by) < by);
        }
}

/* --- the check on a made-up clock ------------------------------------------------------------ */

typedef struct {
    tm_comm *comm;
    int64_t  now_ns;
    int      slow_from, slow_to; /* -1: any; -2: none */
    uint64_t seed, calls;
} made_up;

static int64_t made_up_now(void *data)
{
    return ((made_up *)data)->now_ns;
}

/* A message takes its bytes at 1 GB/s, half of that over the slow link, and noise of 3 %. */
static tm_status timed_call(void *data, tm_comm *comm, const tm_collective *c, tm_error *err)
{
    made_up   *m = data;
    const int  me = tm_comm_rank(comm);
    const bool sends = c->kind == TM_COMM_SEND;
    const int  from = sends ? me : c->peer, to = sends ? c->peer : me;
    const bool slow = (m->slow_from == -1 || m->slow_from == from) && (m->slow_to == -1 || m->slow_to == to);
    double     ns = 20000 + (double)c->count * (slow ? 2 : 1);
    ns *= 1 + 0.03 * tm_random_uniform(m->seed, (uint64_t)me, m->calls++);
    m->now_ns += (int64_t)ns;
    return tm_comm_run(comm, c, err);
}

typedef struct {
    made_up         m;
    tm_node_outcome out[MOST];
} checked;

static void check_links(tm_comm *comm, void *context)
{
    checked        *c = context;
    const int       rank = tm_comm_rank(comm);
    made_up         m = c->m;
    tm_node_calls   calls = { timed_call, &m, made_up_now };
    tm_node_options options = { .world = comm, .sysroot = "/nothing/is/here" };
    tm_node_task    task = { .options = &options,
                             .seconds = 0,
                             .rank = rank,
                             .ranks = tm_comm_size(comm),
                             .first = tm_comm_place_of(comm, rank).local_rank == 0 };
    CHECK_OK(tm_node_links(&task, &calls, &c->out[rank], err));
}

/* On each rank a host of its own; a link at half rate is named by its two ends, a slow rank once for all its links. */
TEST(half_rate_between_hosts)
{
    static const int hosts[] = { 0, 1, 2, 3 };
    for (uint64_t seed = 0; seed < 6; seed++) {
        const int from = (int)(seed % 4), to = seed % 3 == 2 ? -1 : (from + 1) % 4;
        checked   c = { .m = { .slow_from = seed == 5 ? -2 : from, .slow_to = to, .seed = seed } };
        char      place[64];
        run_world(4, hosts, 60, false, check_links, &c);
        for (int r = 0; r < 4; r++) {
            const tm_node_outcome *o = &c.out[r];
            for (size_t i = 0; i < o->n_findings; i++)
                if (seed == 5) print_message("%s: %s\n", o->findings[i].place, o->findings[i].text);
            assert_int_equal(o->n_findings, r == 0 && seed != 5);
            if (o->n_findings == 0) continue;
            snprintf(place, sizeof place, to < 0 ? "all links from rank %d (" : "rank %d (", from);
            assert_memory_equal(o->findings[0].place, place, strlen(place));
            snprintf(place, sizeof place, "-> rank %d (", to);
            if (to >= 0) assert_non_null(strstr(o->findings[0].place, place));
            assert_int_equal(o->findings[0].rank, from);
            assert_non_null(strstr(o->findings[0].text, "% of the usual rate between hosts"));
        }
        assert_int_equal(c.out[0].n_figures, 4 * 3 + 6 + 1);
        for (int r = 0; r < 4; r++) tm_node_outcome_fini(&c.out[r]);
    }
}

/* --- counters -------------------------------------------------------------------------------- */

static const tm_counter *counter(const tm_counters *all, const char *device, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->counter[i].device, device) == 0 && strcmp(all->counter[i].name, name) == 0)
            return &all->counter[i];
    print_message("no %s of %s\n", name, device);
    fail();
    return NULL;
}

TEST(errors_that_devices_count)
{
    char        root[] = "/tmp/trainmark-counters-XXXXXX", line[96];
    tm_counters all = { 0 };
    assert_non_null(mkdtemp(root));
    test_put(root, "/sys/class/net/eth7/statistics/rx_crc_errors", "7\n");
    test_put(root, "/sys/class/net/eth7/statistics/rx_dropped", "5\n");
    test_put(root, "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "12\n");
    test_put(root, "/sys/bus/pci/devices/0000:3b:00.0/aer_dev_nonfatal", "Undefined 0\nTOTAL_ERR_NONFATAL 4\n");
    test_put(root, "/sys/bus/pci/devices/0000:3b:00.0/aer_dev_correctable", "RxErr 1\nTOTAL_ERR_COR 6\n");
    test_put(root, "/sys/class/drm/card1/device/ras/xgmi_wafl_err_count", "ue: 1\nce: 3\n");
    test_put(root, "/proc/net/snmp", "Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs InErrs\nTcp: 100 23 4\n");
    tm_counters_read(root, &all);
    assert_int_equal(all.n, 8);
    assert_true(counter(&all, "eth7", "rx_crc_errors")->value == 7 && counter(&all, "eth7", "rx_crc_errors")->hard);
    assert_false(counter(&all, "eth7", "rx_dropped")->hard);
    assert_true(counter(&all, "mlx5_0 port 1", "symbol_error")->value == 12);
    assert_true(counter(&all, "PCIe 0000:3b:00.0", "nonfatal errors")->value == 4);
    assert_false(counter(&all, "PCIe 0000:3b:00.0", "corrected errors")->hard);
    assert_true(counter(&all, "card1", "uncorrected errors of links between GPUs")->value == 1);
    assert_true(counter(&all, "TCP", "segments sent again")->value == 23);
    tm_counters_fini(&all);
    snprintf(line, sizeof line, "rm -rf %s", root);
    assert_int_equal(system(line), 0);
}
