/* SPDX-License-Identifier: Apache-2.0 */
/* Every key of every command and workload, with all that its row says: tests/cli/expected/keys.txt. */
#include "bench/bench.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "support/whole.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static void add_key(const tm_key *k, tm_text *out)
{
    static const char *const kinds[] = { "bool", "integer", "number", "text", "choice", "list", "maps", "lists" };
    static const char *const states[] = { "", " where given", " ignored", " unbuilt" };
    tm_text_printf(out, "  %s %s", k->name, kinds[k->kind]);
    if (k->fallback) tm_text_printf(out, " = '%s'", k->fallback);
    if (k->lo < k->hi || k->lo > k->hi) tm_text_printf(out, " [%.17g, %.17g]", k->lo, k->hi);
    if (k->choices) tm_text_printf(out, " {%s}", k->choices);
    if (k->synonyms) tm_text_printf(out, " also %s", k->synonyms);
    if (k->when) tm_text_printf(out, " when %s", k->when);
    if (k->feature) tm_text_printf(out, ": %s", k->feature);
    tm_text_printf(out, "%s%s\n", states[k->state], k->quiet ? " quiet" : "");
}

static void add_config(const char *what, tm_config *config, tm_text *out)
{
    tm_text_printf(out, "%s: %zu keys\n", what, tm_config_n_keys(config));
    for (size_t i = 0; i < tm_config_n_keys(config); i++) add_key(tm_config_key_at(config, i), out);
    tm_config_destroy(config);
}

TEST(every_key)
{
    tm_text                   out = { 0 };
    tm_cli_command            storage;
    const tm_cli_command     *c;
    size_t                    n;
    const tm_workload *const *workloads = tm_workloads(&n);
    add_config("a configuration", tm_cli_config(), &out);
    for (size_t i = 0; (c = tm_cli_nested(NULL, i, &storage)); i++)
        if (strcmp(c->name, "check") == 0) add_config(c->name, c->keys(c), &out);
    for (size_t i = 0; i < n; i++) add_config(workloads[i]->name, tm_bench_configure(workloads[i], "help"), &out);
    whole_is("tests/cli/expected/keys.txt", &out);
}
