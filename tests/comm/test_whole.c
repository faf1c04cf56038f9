/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of ranks: how hosts share the work, and slices, judged by rules; and to the letter meshes and what is
 * wrong with them, the groups that a world is split into, and what ranks say of each other when one is late or calls
 * something else. After a change that is meant: TM_RECORD=1 build/release/tests/comm/test_whole; git diff
 * tests/comm/whole-*.txt
 */
#include "support/test.h"
#include "base/arena.h"
#include "base/file.h"
#include "comm/coll/hosts.h"
#include "comm/mesh/mesh.h"
#include "support/folder.h"
#include "support/whole.h"
#include "world.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- meshes -------------------------------------------------------------------------------------- */

/* pp, dp_replicate, dp_shard, cp, tp, ep; ranks. */
static const int64_t wanted[][7] = {
    { 1, 1, 1, 1, 1, 1, 1 },
    { 2, 3, 4, 2, 2, 8, 96 },
    { 1, 1, -1, 1, 1, 1, 8 },
    { 1, -1, 2, 1, 1, 1, 6 },
    { -1, 1, 1, 1, 2, 1, 10 },
    { 1, 1, 2, -1, 2, 4, 8 },
    { 1, 2, 1, 1, -1, 1, 4 },
    { 1, 1, -1, 1, 1, 1, 1048576 },
    { 1, 1, -1, 1, 1, 1, 1048577 },
    { 1, 1, -1, 1, 1, 1, 0 },
    { 1, 1, -1, 1, 1, 1, -3 },
    { 1, -1, -1, 1, 1, 1, 6 },
    { -1, 1, 1, 1, -1, 1, 6 },
    { 1, 0, 1, 1, 1, 1, 6 },
    { 1, 1, 1, -2, 1, 1, 6 },
    /* products that do not fit: one is left open; shards give way, or copies, or neither can */
    { 1, 2, -1, 1, 1, 1, 7 },
    { 2, 2, -1, 1, 2, 1, 7 },
    { 1, 2, 3, 1, 1, 1, 8 },
    { 1, 2, 3, 1, 1, 1, 7 },
    { 1, 2, 1, 1, 1, 1, 6 },
    { 1, 1, 1, 1, 2, 1, 6 },
    { 1, 1, 1, 1, 2, 1, 5 },
    { 3, 1, 1, 1, 2, 1, 5 },
    { 2, 4, 1, 1, 1, 1, 7 },
    { 1048576, 1048576, 1048576, 1048576, 1, 1, 6 },
    /* experts */
    { 1, 1, 6, 1, 1, 4, 6 },
    { 1, 1, 6, 1, 1, 7, 6 },
    { 1, 1, 6, 1, 1, 0, 6 },
    { 1, 1, 6, 1, 1, -1, 6 },
    { 1, 1, 6, 1, 1, 6, 6 },
    { 1, 3, 1, 2, 2, 4, 12 },
    { 1, 3, 1, 2, 2, 3, 12 },
    { 1, 3, 1, 2, 2, 5, 12 },
};

static tm_mesh mesh_of(const int64_t *degrees)
{
    static const tm_axis axes[] = { TM_AXIS_PP, TM_AXIS_REPLICATE, TM_AXIS_SHARD, TM_AXIS_CP, TM_AXIS_TP, TM_AXIS_EP };
    tm_mesh              mesh = tm_mesh_one();
    for (int a = 0; a < 6; a++) mesh.degree[axes[a]] = (int)degrees[a];
    return mesh;
}

TEST(meshes_are_as_recorded)
{
    tm_text out = { 0 };
    for (int a = 0; a < TM_AXES; a++) tm_text_printf(&out, "%s ", tm_axis_name((tm_axis)a));
    tm_text_add(&out, "\n");
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        char      text[160];
        tm_error  err = { 0 };
        tm_mesh   mesh = mesh_of(wanted[i]);
        tm_status st = tm_mesh_fill(&mesh, wanted[i][6], &err);
        for (int k = 0; k < 7; k++) tm_text_printf(&out, "%s%lld", k ? " " : "", (long long)wanted[i][k]);
        if (st != TM_OK)
            tm_text_printf(&out, ": %d %s\n", st, err.text);
        else
            tm_text_printf(&out, ": %s, %d ranks, efsdp %d\n", tm_mesh_text(text, &mesh), tm_mesh_ranks(&mesh),
                           mesh.degree[TM_AXIS_EFSDP]);
    }
    whole_is("tests/comm/whole-meshes.txt", &out);
}

/* --- groups of a world --------------------------------------------------------------------------- */

enum { MOST = 12 };
typedef struct {
    tm_mesh mesh;
    tm_text text[MOST];
} splits;

static void split_all(tm_comm *comm, void *context)
{
    splits        *s = context;
    int            rank = tm_comm_rank(comm);
    tm_mesh_groups groups;
    CHECK_OK(tm_mesh_split(&s->mesh, comm, &groups, err));
    tm_text_printf(&s->text[rank], "  rank %d:", rank);
    for (int i = 0; i < groups.n; i++) {
        int same = 0;
        while (groups.comm[same] != groups.comm[i]) same++;
        CHECK(tm_mesh_find(&groups, groups.axes[i]) == groups.comm[i]);
        tm_text_printf(&s->text[rank], " %x '%s' %d of %d", groups.axes[i], tm_comm_name(groups.comm[i]),
                       tm_comm_rank(groups.comm[i]), tm_comm_size(groups.comm[i]));
        tm_text_printf(&s->text[rank], same < i ? " as %d," : ",", same);
    }
    CHECK(tm_mesh_find(&groups, 1U << 30) == NULL);
    tm_mesh_join(&groups);
    CHECK(groups.n == 0 && groups.world == NULL);
    /* Of another size. */
    tm_mesh  other = s->mesh;
    tm_error err = { 0 };
    other.degree[TM_AXIS_PP] *= 2;
    CHECK(tm_mesh_split(&other, comm, &groups, &err) == TM_INVALID && groups.n == 0);
    tm_text_printf(&s->text[rank], " %s\n", err.text);
}

TEST(groups_are_as_recorded)
{
    static const int64_t meshes[][6] = { { 1, 1, 1, 1, 1, 1 }, { 1, 1, 4, 1, 1, 1 }, { 1, 4, 1, 1, 1, 1 },
                                         { 1, 2, 2, 1, 1, 1 }, { 2, 1, 2, 1, 2, 1 }, { 1, 1, 2, 2, 1, 1 },
                                         { 2, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 3, 1 }, { 1, 1, 4, 1, 1, 2 },
                                         { 1, 2, 2, 1, 1, 2 }, { 1, 1, 2, 1, 2, 4 }, { 2, 1, 3, 1, 2, 3 } };
    tm_text              out = { 0 };
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        char     text[160];
        splits   s = { .mesh = mesh_of(meshes[m]) };
        tm_error err = { 0 };
        int      ranks = tm_mesh_ranks(&s.mesh);
        assert_int_equal(tm_mesh_fill(&s.mesh, ranks, &err), TM_OK);
        tm_text_printf(&out, "%s\n", tm_mesh_text(text, &s.mesh));
        run_world(ranks, NULL, 60, false, split_all, &s);
        for (int r = 0; r < ranks; r++) {
            tm_text_add(&out, s.text[r].data);
            tm_text_fini(&s.text[r]);
        }
    }
    whole_is("tests/comm/whole-groups.txt", &out);
}

/* --- hosts --------------------------------------------------------------------------------------- */

static const struct {
    int n, host[8];
} worlds[] = { { 1, { 5 } },
               { 2, { 1, 0 } },
               { 4, { 7, 7, 7, 7 } },
               { 5, { 0, 1, 1, 1, 1 } },
               { 4, { 0, 0, 0, 1 } },
               { 8, { 0, 0, 0, 1, 2, 2, 2, 2 } },
               { 8, { 3, 3, 1, 1, 3, 3, 1, 1 } },
               { 8, { 0, 0, 0, 1, 1, 2, 2, 0 } },
               { 6, { 2, 1, 2, 1, 2, 1 } } };
enum { WORLDS = sizeof worlds / sizeof worlds[0] };

static int ranks_of(const tm_comm_hosts *h, int host)
{
    return h->host_first[host + 1] - h->host_first[host];
}

static int length_of(const tm_comm_hosts *h, int run)
{
    return h->run_first[run + 1] - h->run_first[run];
}

/* Hosts in the order of their first ranks, runs wherever the host changes, members in the order of the group. */
static void check_places(const tm_comm_hosts *h, const int *host)
{
    int longest = 0;
    assert_true(h->host[0] == 0 && h->run[0] == 0 && h->run_first[h->runs] == h->size);
    assert_true(h->run[h->size - 1] == h->runs - 1 && h->host_first[0] == 0 && h->host_first[h->hosts] == h->size);
    for (int r = 0, seen = 0; r < h->size; r++) {
        for (int s = 0; s < r; s++) assert_int_equal(h->host[s] == h->host[r], host[s] == host[r]);
        assert_true(h->host[r] <= seen);
        seen += h->host[r] == seen;
        assert_true(r + 1 < h->size || seen == h->hosts);
        if (r > 0) assert_int_equal(h->run[r] - h->run[r - 1], host[r] != host[r - 1]);
        assert_true(h->run_first[h->run[r]] <= r && r < h->run_first[h->run[r] + 1]);
    }
    for (int k = 0; k < h->hosts; k++)
        for (int i = h->host_first[k]; i < h->host_first[k + 1]; i++) {
            assert_int_equal(h->host[h->members[i]], k);
            assert_true(i == h->host_first[k] || h->members[i - 1] < h->members[i]);
        }
    for (int j = 0; j < h->runs; j++) longest = length_of(h, j) > longest ? length_of(h, j) : longest;
    assert_int_equal(h->lanes, longest);
    for (int k = 0; k < h->hosts; k++) {
        assert_int_equal(h->last_run[k], h->run[h->members[h->host_first[k + 1] - 1]]);
        assert_int_equal(h->back[h->back_at[k]], k);
        assert_true(k == 0 || h->last_run[h->back[k]] < h->last_run[h->back[k - 1]]);
    }
}

/* `n` of a host or run share `all` things evenly. */
static void check_even(const int *things, int n, int all)
{
    for (int i = 0, sum = 0; i < n; i++) {
        assert_in_range(things[i], all / n, (all + n - 1) / n);
        sum += things[i];
        assert_true(i + 1 < n || sum == all);
    }
}

static void check_shares(const tm_comm_hosts *h)
{
    for (int run = 0; run < h->runs; run++) {
        int lanes[8] = { 0 };
        for (int lane = 0; lane < h->lanes; lane++) {
            int owner = tm_comm_hosts_owner(h, run, lane);
            assert_int_equal(h->run[owner], run);
            lanes[owner - h->run_first[run]]++;
        }
        check_even(lanes, length_of(h, run), h->lanes);
    }
    for (int k = 0; k < h->hosts; k++)
        for (int lane = 0; lane < h->lanes; lane++)
            assert_int_equal(tm_comm_hosts_keeper(h, k, lane), tm_comm_hosts_owner(h, h->last_run[k], lane));
    for (int from = 0; from < h->hosts; from++)
        for (int to = 0; to < h->hosts; to++) {
            int gets[8] = { 0 };
            for (int i = 0; i < ranks_of(h, from); i++) {
                int partner = tm_comm_hosts_partner(h, to, h->members[h->host_first[from] + i]);
                assert_int_equal(h->host[partner], to);
                for (int k = 0; k < ranks_of(h, to); k++) gets[k] += h->members[h->host_first[to] + k] == partner;
            }
            check_even(gets, ranks_of(h, to), ranks_of(h, from));
        }
}

/* Bytes that a call of elements of one byte moves, message by message; `wide`: of a sum under way. */
static tm_comm_moved moved(const tm_comm_hosts *h, tm_comm_kind kind, bool shared, double n, double wide, int root)
{
    const bool    parts = kind == TM_COMM_REDUCE_SCATTER || kind == TM_COMM_ALL_GATHER;
    const double  all = parts ? n * h->size : n, twice = kind == TM_COMM_ALL_REDUCE ? 2.0 / h->size : 1;
    tm_comm_moved m = { 0, 0 };
    if (!shared || kind == TM_COMM_ALL_TO_ALL) {
        for (int from = 0; from < h->size; from++)
            for (int to = 0; to < h->size; to++)
                if (from != to && (kind != TM_COMM_BROADCAST || from == root))
                    *(h->host[from] == h->host[to] ? &m.within : &m.between) += n * twice;
        return m;
    }
    const bool sums = kind == TM_COMM_ALL_REDUCE || kind == TM_COMM_REDUCE_SCATTER;
    for (int r = 1; sums && r < h->size; r++) /* a sum goes from rank to rank, from run to run */
        *(h->run[r] == h->run[r - 1] ? &m.within : &m.between) += all * (h->run[r] == h->run[r - 1] ? 1 : wide);
    if (kind == TM_COMM_REDUCE_SCATTER) { /* and its parts from one of the last to each other rank */
        for (int r = 0; r < h->size - 1; r++) *(h->host[r] == h->host[h->size - 1] ? &m.within : &m.between) += n;
        return m;
    }
    m.between += all * (h->hosts - 1); /* to one rank of each host, and on to the others there */
    for (int k = 0; k < h->hosts; k++) m.within += all * (ranks_of(h, k) - 1);
    return m;
}

static void check_moved(const tm_comm_hosts *h)
{
    static const tm_comm_kind kinds[] = { TM_COMM_ALL_REDUCE, TM_COMM_REDUCE_SCATTER, TM_COMM_ALL_GATHER,
                                          TM_COMM_BROADCAST,  TM_COMM_ALL_TO_ALL,     TM_COMM_BARRIER,
                                          TM_COMM_SEND };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int format = TM_COMM_BYTES; format <= TM_COMM_BFLOAT16; format++)
            for (int root = 0; root < h->size; root++) {
                const double  bytes = (double)tm_comm_bytes_of((tm_comm_format)format);
                const double  wide = format == TM_COMM_BFLOAT16 ? 2 : 1;
                const bool    parts = kinds[k] == TM_COMM_REDUCE_SCATTER || kinds[k] == TM_COMM_ALL_GATHER;
                const size_t  least = (size_t)(TM_COMM_HOSTS_LEAST / bytes / (parts ? h->size : 1));
                tm_collective call = { .kind = kinds[k], .format = (tm_comm_format)format, .peer = root };
                tm_comm_moved want[2] = { { 0, 0 }, { 0, 0 } };
                for (call.count = least - 2; call.count < least + 3; call.count++) {
                    for (int shared = 0; shared < 2; shared++) {
                        tm_comm_moved m = tm_comm_hosts_moved(h, &call, shared);
                        if (k < 5) want[shared] = moved(h, kinds[k], shared, (double)call.count * bytes, wide, root);
                        assert_true(fabs(m.between - want[shared].between) <= 1e-9 * want[shared].between);
                        assert_true(fabs(m.within - want[shared].within) <= 1e-9 * want[shared].within);
                    }
                    bool large = (double)call.count * bytes * (parts ? h->size : 1) >= TM_COMM_HOSTS_LEAST;
                    assert_int_equal(tm_comm_hosts_share(h, &call),
                                     large && want[1].between < want[0].between * (1 - 1e-9));
                }
            }
}

TEST(hosts_share_the_work)
{
    for (size_t i = 0; i < WORLDS; i++) {
        tm_comm_hosts *h = tm_comm_hosts_make(worlds[i].host, worlds[i].n);
        assert_int_equal(h->size, worlds[i].n);
        check_places(h, worlds[i].host);
        check_shares(h);
        check_moved(h);
        tm_comm_hosts_free(h);
    }
    tm_comm_hosts_free(NULL);
}

/* One behind the other, all of them, each in whole lines of the cache, none with two lines more than another. */
TEST(slices_are_whole_lines)
{
    for (size_t count = 0; count < 300; count += 1 + count / 3)
        for (size_t element = 1; element <= 8; element *= 2)
            for (size_t parts = 1; parts < 5; parts++) {
                const size_t line = 64 / element, even = count / parts;
                for (size_t part = 0, at = 0; part < parts; part++) {
                    size_t first, end;
                    tm_comm_slice(count, element, part, parts, &first, &end);
                    assert_true(first == at && end >= first && (first % line == 0 || first == count));
                    assert_true(end - first < even + 2 * line && end - first + 2 * line > even);
                    at = end;
                    assert_true(part + 1 < parts || at == count);
                }
            }
}

/* --- words --------------------------------------------------------------------------------------- */

static void close_all(tm_comm **comm, int n)
{
    for (int r = 0; r < n; r++) tm_comm_close(comm[r]);
}

/* Of a world that fails by it: what it says, and that it says so again. */
TEST(failures_are_as_recorded)
{
    enum { RANKS = 11, KINDS = 6 };
    static const int    late[] = { 3, 1, 2, 4, 5, 6, 7, 8, 9, 10 }, n_late[] = { 1, 2, 8, 9 };
    const tm_collective sum = { .kind = TM_COMM_ALL_REDUCE,
                                .format = TM_COMM_FLOAT32,
                                .count = 7,
                                .what = "w",
                                .step = 5 },
                        end = { .kind = (tm_comm_kind)TM_COMM_CLOSE, .what = "world", .step = -1 },
                        all = { .kind = TM_COMM_BROADCAST, .format = TM_COMM_BYTES, .count = 2, .peer = 4, .step = -1 };
    tm_text out = { 0 };
    for (int i = 0; i < KINDS + 2; i++) {
        tm_comm       *comm[RANKS];
        tm_comm_header mine = { 0 }, theirs = { 0 };
        tm_error       err = { 0 }, again = { 0 };
        tm_status      st;
        assert_int_equal(tm_comm_open_threads(RANKS, 1.5, comm, &err), TM_OK);
        tm_comm_header_fill(i == 5 ? &end : &sum, &mine);
        tm_comm_header_fill(i == 4 ? &end : &all, &theirs);
        if (i < 4)
            st = tm_comm_late(comm[0], &mine, late, n_late[i], &err);
        else if (i < KINDS)
            st = tm_comm_mismatch(comm[2], &mine, 9, &theirs, &err);
        else
            st = tm_comm_fail(comm[1], i == 6 ? TM_NUMBERS : TM_NOMEM, &err, "%s %d", "number", i);
        tm_text_printf(&out, "%d: %s\n", st, err.text);
        for (int r = 0; r < RANKS; r += 5) {
            assert_int_equal(tm_comm_run(comm[r], &sum, &again), st);
            assert_string_equal(again.text, err.text);
        }
        /* The first failure is that of all. */
        assert_int_equal(tm_comm_fail(comm[4], TM_INTERNAL, &again, "another"), st);
        assert_string_equal(again.text, err.text);
        close_all(comm, RANKS);
    }
    for (int ranks = -1; ranks <= 257; ranks += ranks == 1 ? 256 : 1) {
        tm_comm *comm[1];
        tm_error err = { 0 };
        if (ranks == 1) continue;
        tm_status st = tm_comm_open_threads(ranks, 1, comm, &err);
        tm_text_printf(&out, "%d ranks: %d %s\n", ranks, st, err.text);
    }
    whole_is("tests/comm/whole-failures.txt", &out);
}

/* What a process is told that was launched by something that does not fit. */
TEST(launches_are_as_recorded)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",    "PMI_SIZE",   "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID",        "PMIX_RANK",   "RANK",       "WORLD_SIZE",
        "LOCAL_RANK",           "TORCHELASTIC_RUN_ID",  "MASTER_ADDR", "MASTER_PORT"
    };
    static const struct {
        const char *set[4], *engine;
    } cases[] = {
        { { NULL }, "self" },
        { { NULL }, "gloo" },
        { { NULL }, "openmpi" },
        { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4" }, NULL },
        { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4" }, "self" },
        { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4" }, "mpich" },
        { { "PMI_RANK=2", "PMI_SIZE=3" }, NULL },
        { { "PMI_RANK=0", "PMI_SIZE=2" }, "self" },
        { { "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "PMIX_RANK=1" }, NULL },
        { { "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_ID=0" }, NULL },
        { { "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2" }, "self" },
        { { "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=3" }, NULL },
        { { "RANK=3", "WORLD_SIZE=8", "TORCHELASTIC_RUN_ID=x" }, "self" },
        { { "RANK=3", "WORLD_SIZE=8" }, "self" },
        { { "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0" }, NULL },
        { { "RANK=x", "WORLD_SIZE=8", "LOCAL_RANK=0" }, NULL },
        { { "RANK=1", "WORLD_SIZE=0", "LOCAL_RANK=0" }, NULL },
        { { "PMI_RANK=2", "PMI_SIZE=3", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4" }, "gloo" },
    };
    tm_text out = { 0 };
    setenv("TRAINMARK_MODULES", "/nowhere", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_comm *world = NULL;
        tm_error err = { 0 };
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) unsetenv(names[k]);
        for (int k = 0; k < 4 && cases[i].set[k]; k++) {
            putenv((char *)cases[i].set[k]);
            tm_text_printf(&out, "%s ", cases[i].set[k]);
        }
        tm_comm_launch l = tm_comm_launched();
        tm_text_printf(&out, "for %s: %s by %s, rank %d of %d\n", cases[i].engine ? cases[i].engine : "any",
                       l.engine ? l.engine : "none", l.launcher, l.rank, l.ranks);
        tm_status st =
            tm_comm_open(&(tm_comm_options){ .engine = cases[i].engine, .deadline_seconds = 1 }, &world, &err);
        tm_text_printf(&out, "  %d %s\n", st, st == TM_OK ? tm_comm_engine_name(world) : err.text);
        tm_comm_close(world);
    }
    assert_false(tm_comm_engine_built("openmpi"));
    whole_is("tests/comm/whole-launches.txt", &out);
}

/* A file that is no library, and a library that is no module. */
TEST(modules_that_are_none)
{
    static const char marker[] = "no library at all";
    Dl_info           there;
    tm_comm          *world = (tm_comm *)&there; /* none afterwards */
    tm_text           bytes = { 0 };
    tm_error          err = { 0 };
    char              path[512], said[2048];
    setenv("TRAINMARK_MODULES", test_folder(), 1);
    snprintf(path, sizeof path, "%s", test_in_folder("trainmark-openmpi.so"));
    assert_int_equal(tm_file_write(path, marker, sizeof marker, &err), TM_OK);
    assert_true(tm_comm_engine_built("openmpi") && !tm_comm_engine_built("mpich"));
    assert_int_equal(tm_comm_open(&(tm_comm_options){ .engine = "openmpi" }, &world, &err), TM_INVALID);
    assert_null(world);
    snprintf(said, sizeof said,
             "'%s' cannot be loaded: %s: file too short; `apt-get install openmpi-bin libopenmpi-dev`", path, path);
    assert_string_equal(err.text, said);
    void *symbol = dlsym(RTLD_DEFAULT, "_cmocka_run_group_tests");
    assert_true(symbol && dladdr(symbol, &there) != 0);
    assert_int_equal(tm_file_read(there.dli_fname, 1 << 24, &bytes, &err), TM_OK);
    snprintf(path, sizeof path, "%s", test_in_folder("trainmark-mpich.so"));
    assert_int_equal(tm_file_write(path, bytes.data, bytes.length, &err), TM_OK);
    err = (tm_error){ 0 };
    assert_int_equal(tm_comm_open(&(tm_comm_options){ .engine = "mpich" }, &world, &err), TM_INVALID);
    snprintf(said, sizeof said, "'%s' is no module of trainmark: %s: undefined symbol: %s", path, path,
             TM_COMM_MODULE_SYMBOL);
    assert_string_equal(err.text, said);
    tm_text_fini(&bytes);
    /* Where the variable says nothing, it is looked for beside the program, and there is none. */
    setenv("TRAINMARK_MODULES", "", 1);
    assert_false(tm_comm_engine_built("openmpi"));
    unsetenv("TRAINMARK_MODULES");
    assert_false(tm_comm_engine_built("mpich"));
}

TEST_FIXTURE(NULL, test_folder_teardown)
