/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/signature.h"

#include "base/file.h"
#include "base/lock.h"
#include "cli/child.h"

#include <string.h>

#define NAMESPACE "trainmark"
enum { SIGNATURE_LIMIT = 1 << 16 };

/* The file of a signature; empty for a result of the store. */
static tm_text path_of(const tm_result *result)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s%s", tm_result_path(result) ? tm_result_path(result) : "",
                   tm_result_path(result) ? ".sig" : "");
    return path;
}

bool signature_there(const tm_result *result)
{
    tm_text path = path_of(result);
    bool    there = path.length > 0 && tm_file_exists(path.data);
    tm_text_fini(&path);
    return there;
}

/* A passphrase cannot be asked for at the terminal, which the child does not own: by SSH_ASKPASS, or not at all. */
static tm_status keygen(char *const *words, const char *input, tm_text *output, child_end *end, tm_error *err)
{
    static const char *const settings[] = { "SSH_ASKPASS_REQUIRE=force", NULL };
    tm_error                 own = { 0 };
    tm_process_options       options = { .argv = words, .settings = settings, .input = input };
    tm_status                st = child_run_with(options, output, end, &own);
    tm_text_add(output, "");
    if (st == TM_INVALID)
        return tm_fail(err, st, "signatures need ssh-keygen (OpenSSH), which cannot be run: %s", own.text);
    return st == TM_OK ? TM_OK : tm_fail(err, st, "%s", own.text);
}

/* Without the end of the line. */
static const char *said(child_end *end)
{
    size_t n = strlen(end->words);
    while (n > 0 && (end->words[n - 1] == '\n' || end->words[n - 1] == '\r')) end->words[--n] = '\0';
    return n ? end->words : "it says nothing";
}

/* The text of the result in a folder for a while: what was verified, whatever becomes of the file. */
static tm_status lay_out(const tm_result *result, tm_scratch *scratch, tm_text *text, tm_error *err)
{
    const tm_text *document = tm_result_document(result, TM_DOCUMENT_RESULT);
    if (!tm_result_path(result))
        return tm_fail(err, TM_INVALID,
                       "'%s' is in the store of results, which keeps no signatures; name the run directory, or export "
                       "it first (`trainmark results export`)",
                       tm_result_name(result));
    TM_TRY(tm_scratch_make("trainmark-signature", scratch, err));
    tm_text_printf(text, "%s/result.json", scratch->path);
    return tm_file_write(text->data, document->data, document->length, err);
}

static tm_status sign(const char *key, const char *text, tm_text *signature, tm_error *err)
{
    char     *words[] = { "ssh-keygen", "-Y", "sign", "-q", "-n", NAMESPACE, "-f", (char *)key, (char *)text, NULL };
    tm_text   output = { 0 }, path = { 0 };
    child_end end;
    if (!tm_file_exists(key))
        return tm_fail(err, TM_INVALID,
                       "--sign: there is no file '%.300s'; `ssh-keygen -t ed25519 -f FILE` makes a key", key);
    tm_status st = keygen(words, NULL, &output, &end, err);
    tm_text_printf(&path, "%s.sig", text);
    if (st == TM_OK && (end.code != 0 || !tm_file_exists(path.data)))
        st = tm_fail(err, TM_INVALID,
                     "cannot sign with '%.300s': %s; a key with a passphrase is used by ssh-agent: give KEY.pub", key,
                     said(&end));
    if (st == TM_OK) st = tm_file_read(path.data, SIGNATURE_LIMIT, signature, err);
    tm_text_fini(&output);
    tm_text_fini(&path);
    return st;
}

tm_status signature_make(const tm_result *result, const char *key, tm_error *err)
{
    tm_scratch scratch = { .lock = -1 };
    tm_text    text = { 0 }, signature = { 0 }, path = path_of(result);
    tm_status  st = lay_out(result, &scratch, &text, err);
    if (st == TM_OK) st = sign(key, text.data, &signature, err);
    if (st == TM_OK) st = tm_file_write(path.data, signature.data, signature.length, err);
    tm_scratch_remove(&scratch);
    tm_text_fini(&text);
    tm_text_fini(&signature);
    tm_text_fini(&path);
    return st;
}

/* Whose key made it: the first that the file lists for it, or `identity`, if that is one of them. */
static tm_status find_signer(const char *signature, const char *signers, const char *identity, tm_text *who,
                             tm_error *err)
{
    char     *words[] = { "ssh-keygen", "-Y", "find-principals", "-s", (char *)signature, "-f", (char *)signers, NULL };
    tm_text   output = { 0 };
    child_end end;
    bool      found = false;
    tm_status st = keygen(words, NULL, &output, &end, err);
    for (const char *at = output.data; st == TM_OK && end.code == 0 && *at && !found;) {
        size_t n = strcspn(at, "\n");
        found = n > 0 && (!identity || (strlen(identity) == n && strncmp(at, identity, n) == 0));
        if (found) tm_text_add_n(who, at, n);
        at += n + (at[n] == '\n');
    }
    tm_text_add(who, "");
    if (st == TM_OK && end.code != 0)
        st =
            tm_fail(err, TM_NEGATIVE, "'%s' was not made by a key that '%s' lists: %s", signature, signers, said(&end));
    else if (st == TM_OK && !found)
        st = tm_fail(err, TM_NEGATIVE, "'%s' was made by %.*s, not by %s", signature, (int)strcspn(output.data, "\n"),
                     output.data, identity ? identity : "anybody");
    tm_text_fini(&output);
    return st;
}

static tm_status check(const tm_result *result, const char *signature, const char *text, const char *signers,
                       const char *who, tm_error *err)
{
    char     *words[] = { "ssh-keygen",    "-Y", "verify",    "-n", NAMESPACE,         "-f",
                          (char *)signers, "-I", (char *)who, "-s", (char *)signature, NULL };
    tm_text   output = { 0 };
    child_end end;
    tm_status st = keygen(words, text, &output, &end, err);
    if (st == TM_OK && end.code != 0)
        st = tm_fail(err, TM_NEGATIVE, "'%s' is not what %s signed: %s", tm_result_path(result), who, said(&end));
    tm_text_fini(&output);
    return st;
}

tm_status signature_check(const tm_result *result, const char *signers, const char *identity, tm_text *who,
                          tm_error *err)
{
    tm_scratch scratch = { .lock = -1 };
    tm_text    text = { 0 }, path = path_of(result);
    tm_status  st = lay_out(result, &scratch, &text, err);
    if (st == TM_OK && !tm_file_exists(signers))
        st = tm_fail(err, TM_INVALID,
                     "--signers: there is no file '%.300s'; its lines are `WHO KEY`, KEY as in KEY.pub", signers);
    if (st == TM_OK && !tm_file_exists(path.data))
        st = tm_fail(err, TM_NEGATIVE, "'%s' is not signed: there is no '%s'", tm_result_path(result), path.data);
    if (st == TM_OK) st = find_signer(path.data, signers, identity, who, err);
    if (st == TM_OK) st = check(result, path.data, text.data, signers, who->data, err);
    tm_scratch_remove(&scratch);
    tm_text_fini(&text);
    tm_text_fini(&path);
    return st;
}
