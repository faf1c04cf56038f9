/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/judge_facts.h - private to the judge: facts, and sets of hosts. */
#ifndef TM_NODE_JUDGE_FACTS_H
#define TM_NODE_JUDGE_FACTS_H

#include "apps/node/judge.h"

void judge_facts(const tm_node_site *sites, tm_node_outcome *outcome, const tm_node_earlier *earlier, size_t n);

/* Names of hosts; zero-initialise. They are not copied. */
typedef struct {
    const char **names;
    size_t       n, room;
} judge_hosts;

void judge_hosts_add(judge_hosts *hosts, const char *name);
bool judge_hosts_has(const judge_hosts *hosts, const char *name);
void judge_hosts_fini(judge_hosts *hosts);

#endif
