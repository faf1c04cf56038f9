/* SPDX-License-Identifier: Apache-2.0 */
/* cli/verify.c - `trainmark verify`: is a result what its raw samples say? */
#include "base/log.h"
#include "cli/cli.h"
#include "cli/signature.h"
#include "record/table.h"
#include "results/verify.h"

#include <string.h>

typedef struct {
    const char *store, *sign, *signers, *identity;
    bool        all, json;
    bool        verbose; /* all columns: -v */
    bool        runs;    /* one of them is a run */
} verify_options;

static const char *verdict_at(const tm_table *table, size_t row)
{
    return tm_table_cell(table, row, (size_t)tm_table_find(table, "verdict"))->text;
}

static bool is_left(const tm_table *table, size_t row)
{
    return strcmp(verdict_at(table, row), "not verified") == 0;
}

/* The rows that do not agree; `left`: and those that are not verified; `every`: all. */
static tm_table *chosen_rows(const tm_table *all, bool every, bool left)
{
    tm_table *table = tm_table_create("verify");
    for (size_t c = 0; c < tm_table_n_columns(all); c++) tm_table_columns(table, tm_table_column_at(all, c), 1);
    for (size_t r = 0; r < tm_table_n_rows(all); r++) {
        if (!every && (strcmp(verdict_at(all, r), "ok") == 0 || (is_left(all, r) && !left))) continue;
        tm_table_row(table);
        for (size_t c = 0; c < tm_table_n_columns(all); c++)
            tm_table_text(table, tm_table_column_at(all, c)->name, tm_table_cell(all, r, c)->text);
    }
    return table;
}

/* How many figures agree, and how many cannot be recomputed; `listed`: these are rows of the table. */
static void add_notes(const tm_result *result, const tm_table *all, size_t differ, bool listed, tm_table *shown)
{
    const bool certificate = tm_result_kind_of(result) == TM_RESULT_CERTIFICATE;
    size_t     rows = tm_table_n_rows(all), left = 0;
    for (size_t r = 0; r < rows; r++) left += is_left(all, r);
    tm_table_note(shown, "%s: %zu of %zu figures agree with %s%s", tm_result_name(result), rows - left - differ,
                  rows - left, certificate ? "the findings" : "the raw samples",
                  differ        ? ""
                  : certificate ? ", and the hash with the text"
                                : ", and the digest with the file");
    if (left)
        tm_table_note(shown, "not verified: %zu value%s that cannot be recomputed%s", left, left == 1 ? "" : "s",
                      listed      ? ""
                      : left == 1 ? "; --all lists it"
                                  : "; --all lists them");
}

/* The configuration of a result; NULL and *why: it cannot be had. */
static tm_config *configuration_of(const tm_result *result, tm_error *why)
{
    tm_config *config = tm_cli_config();
    if (tm_results_configuration(result, config, why) == TM_OK) return config;
    tm_config_destroy(config);
    return NULL;
}

/* What is asked of signatures, once the result is what it says. */
static tm_status see_signature(const tm_result *result, const verify_options *o, tm_table *shown, tm_error *err)
{
    tm_text   who = { 0 };
    tm_status st = TM_OK;
    if (o->sign) st = signature_make(result, o->sign, err);
    if (st == TM_OK && o->sign) tm_table_note(shown, "signed: %s.sig", tm_result_path(result));
    if (st == TM_OK && o->signers) st = signature_check(result, o->signers, o->identity, &who, err);
    if (st == TM_OK && o->signers) tm_table_note(shown, "signed by %s", who.data);
    if (!o->sign && !o->signers && signature_there(result))
        tm_table_note(shown, "signed, but the signature is not checked: --signers FILE names who may sign");
    tm_text_fini(&who);
    return st;
}

/* The rows, all or those that do not agree, and what is to be said of them. */
static tm_status show(const tm_result *result, const tm_table *table, size_t differ, const char *why,
                      const verify_options *o, tm_error *err)
{
    tm_text   text = { 0 };
    tm_table *shown = chosen_rows(table, o->all, o->json);
    for (size_t n = 0; n < tm_table_n_notes(table); n++) tm_table_note(shown, "%s", tm_table_note_at(table, n));
    if (why) tm_table_note(shown, "its configuration is not followed: %s", why);
    add_notes(result, table, differ, o->all || o->json, shown);
    tm_status st = differ ? TM_OK : see_signature(result, o, shown, err);
    if (o->json || o->all || differ)
        tm_cli_add_table(shown, o->json, o->verbose, &text);
    else
        for (size_t n = 0; n < tm_table_n_notes(shown); n++) tm_text_printf(&text, "%s\n", tm_table_note_at(shown, n));
    tm_status printed = tm_cli_print(&text, st == TM_OK ? err : NULL);
    tm_text_fini(&text);
    tm_table_destroy(shown);
    return st == TM_OK ? printed : st;
}

static tm_status verify_one(const char *reference, const char *store, verify_options *o, size_t *wrong, tm_error *err)
{
    tm_result *result;
    tm_table  *table;
    size_t     differ;
    tm_error   why = { 0 };
    TM_TRY(tm_result_load(reference, store, &result, err));
    const bool run = tm_result_kind_of(result) == TM_RESULT_RUN;
    tm_config *config = run ? configuration_of(result, &why) : NULL;
    o->runs |= run;
    tm_status st = tm_results_verify(result, config, &table, &differ, err);
    if (st == TM_OK) {
        st = show(result, table, differ, !run || config ? NULL : why.text, o, err);
        tm_table_destroy(table);
        *wrong += differ;
    }
    tm_config_destroy(config);
    tm_result_destroy(result);
    return st;
}

static tm_status verify(tm_cli_line *line, tm_error *err)
{
    verify_options *o = line->options;
    o->verbose = line->verbose;
    bool        chosen;
    size_t      wrong = 0;
    const char *path = tm_store_path(line->arena, o->store, &chosen);
    if (!line->verbose) tm_log_set_level(TM_LOG_ERROR); /* what its configuration would say is no news */
    if (o->identity && !o->signers)
        return tm_fail(err, TM_USAGE, "--identity says who of --signers must have signed; give that, too");
    for (int i = 0; i < line->n_words; i++) TM_TRY(verify_one(line->words[i], path, o, &wrong, err));
    if (wrong == 0) return TM_OK;
    return tm_fail(err, TM_NEGATIVE, "%zu figure%s not what the %s say", wrong, wrong == 1 ? " is" : "s are",
                   o->runs ? "raw samples" : "text and its findings");
}

static const tm_option rows[] = {
    { "all", 0, TM_OPTION_FLAG, offsetof(verify_options, all),
      .help = "also list the figures that agree, and those that cannot be recomputed" },
    { "sign", 0, TM_OPTION_TEXT, offsetof(verify_options, sign), .value = "KEY",
      .help = "sign what agrees with this key of ssh-keygen: result.json.sig" },
    { "signers", 0, TM_OPTION_TEXT, offsetof(verify_options, signers), .value = "FILE",
      .help = "check the signature: who may sign, a line `WHO KEY` each" },
    { "identity", 0, TM_OPTION_TEXT, offsetof(verify_options, identity), .value = "WHO",
      .help = "with --signers: the one who must have signed" },
    { "store", 0, TM_OPTION_TEXT, offsetof(verify_options, store), .value = "FILE",
      .help = "another store of results" },
    TM_OPTION_JSON(verify_options),
};

const tm_cli_command tm_command_verify = {
    .name = "verify",
    .summary = "recompute what follows from a result's samples and configuration; sign it",
    .words = "RUN...",
    .least = 1,
    .most = -1,
    .about =
        "Recomputes every derived value; values that cannot be recomputed are listed as not verified. Rates and "
        "statistics come from step times, losses from metrics.jsonl, the verdict from the rules of a run, sizes and "
        "learning rates from its configuration, and the digest from the file. Of a certificate of nodes: its hash and "
        "its verdicts. RUN is a run directory, a result.json, a certificate, or a stored result (a number, last, "
        "last~N). Exit code 5 if anything differs.\n\n"
        "--sign and --signers use ssh-keygen.",
    TM_CLI_OPTIONS(rows, verify_options),
    .run = verify,
};
