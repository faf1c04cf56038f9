/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hub.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json_input.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_COMMIT = 64, MOST_NAME = 96, MOST_DEPTH = 16 };

static const char *const folders[] = { "models--", "datasets--" };
static const char *const nouns[] = { "model", "data set" };

/* --- the cache ---------------------------------------------------------------------------------------------------- */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The directory, and the variable that names it. TM_INVALID: a value that is no path as it stands. */
static tm_status find_cache(tm_text *path, const char **named, tm_error *err)
{
    static const struct {
        const char *name, *below;
    } all[] = { { "HF_HUB_CACHE", "" },
                { "HUGGINGFACE_HUB_CACHE", "" },
                { "HF_HOME", "/hub" },
                { "XDG_CACHE_HOME", "/huggingface/hub" },
                { "HOME", "/.cache/huggingface/hub" } };
    const char *value = NULL, *below = "";
    for (size_t i = 0; i < sizeof all / sizeof all[0] && !value; i++) {
        value = variable(all[i].name);
        *named = all[i].name;
        below = all[i].below;
    }
    if (!value) return tm_fail(err, TM_INVALID, "no Hugging Face cache: neither HF_HUB_CACHE, HF_HOME nor HOME is set");
    bool home = value[0] == '~' && (value[1] == '/' || !value[1]);
    if (strchr(value, '$') || (home && !variable("HOME")))
        return tm_fail(err, TM_INVALID, "%s is '%.200s'; write the path out, without '$' and '~'", *named, value);
    tm_text_printf(path, "%s%s%s", home ? variable("HOME") : "", home ? value + 1 : value, below);
    return TM_OK;
}

static bool offline(void)
{
    static const char *const truths[] = { "1", "on", "yes", "true" };
    const char              *value = variable("HF_HUB_OFFLINE");
    if (!value) value = variable("TRANSFORMERS_OFFLINE");
    for (size_t i = 0; value && i < sizeof truths / sizeof truths[0]; i++) {
        size_t n = strlen(truths[i]);
        size_t k = 0;
        while (k < n && tolower((unsigned char)value[k]) == truths[i][k]) k++;
        if (k == n && !value[n]) return true;
    }
    return false;
}

/* The command that puts it there. */
static void add_command(tm_text *out, bool dataset, const char *name, const char *revision)
{
    tm_text_printf(out, "`%shf download %s%s%s%s`", offline() ? "HF_HUB_OFFLINE=0 " : "", name,
                   dataset ? " --repo-type dataset" : "", revision ? " --revision " : "", revision ? revision : "");
}

/* --- names -------------------------------------------------------------------------------------------------------- */

typedef struct {
    char        name[200], revision[200];
    const char *below; /* of a data set: what of it; "": all */
    bool        owned; /* ORG/NAME */
} repository;

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* One part of a name: letters, digits, '_', '-', '.', neither of the last two at an end, and none twice. */
static bool is_part(const char *text, size_t n)
{
    if (n == 0 || n > MOST_NAME || !is_word(text[0]) || !is_word(text[n - 1])) return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_word(text[i]) && text[i] != '-' && text[i] != '.') return false;
        if (i > 0 && !is_word(text[i]) && text[i] == text[i - 1]) return false;
    }
    return true;
}

/* A revision of a data set ends before its file: refs/pr/1 and refs/convert/parquet have two slashes, no other has. */
static size_t revision_length(tm_hub_kind kind, const char *text)
{
    size_t n = 0, slashes = strncmp(text, "refs/", 5) == 0 ? 3 : 1;
    if (kind == TM_HUB_MODEL) return strlen(text);
    while (text[n] && !(text[n] == '/' && --slashes == 0)) n++;
    return n;
}

static bool read_name(tm_hub_kind kind, const char *given, repository *out)
{
    *out = (repository){ .below = "" };
    bool uri = strncmp(given, "hf://", 5) == 0;
    if (uri) given += 5;
    if (uri && strncmp(given, "datasets/", 9) == 0) {
        if (kind != TM_HUB_DATASET) return false;
        given += 9;
    }
    size_t first = strcspn(given, "/@"), all = first;
    if (!is_part(given, first)) return false;
    if (given[first] == '/') {
        size_t second = strcspn(given + first + 1, "/@");
        out->owned = true;
        all += 1 + second;
        if (!is_part(given + first + 1, second)) return false;
    }
    snprintf(out->name, sizeof out->name, "%.*s", (int)all, given);
    const char *rest = given + all;
    if (*rest == '@') {
        size_t n = revision_length(kind, ++rest);
        if (n == 0 || n >= sizeof out->revision || strncmp(rest, "..", 2) == 0 || rest[0] == '/') return false;
        snprintf(out->revision, sizeof out->revision, "%.*s", (int)n, rest);
        if (strstr(out->revision, "/..")) return false;
        rest += n;
    }
    if (*rest == '/' && kind == TM_HUB_DATASET && out->owned && !strstr(rest, "/..")) out->below = rest + 1;
    return !*rest || (*rest == '/' && *out->below);
}

static bool matches(const char *pattern)
{
    glob_t found;
    bool   any = strpbrk(pattern, "*?[") && glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    if (any) globfree(&found);
    return any;
}

/* Of data, a prefix of PREFIX.idx is there, too. */
static bool is_here(tm_hub_kind kind, const char *path)
{
    tm_text     idx = { 0 };
    struct stat info;
    tm_text_printf(&idx, "%s.idx", path);
    bool here = lstat(path, &info) == 0 || (kind == TM_HUB_DATASET && (stat(idx.data, &info) == 0 || matches(path)));
    tm_text_fini(&idx);
    return here;
}

/* "dir/rows.jsonl" is the name of a file, whatever else it could be. */
static bool is_file_name(const char *path)
{
    static const char *const ends[] = { ".jsonl", ".json", ".ndjson", ".parquet", ".npy", ".idx", ".bin",
                                        ".txt",   ".gz",   ".zst",    ".model",   ".md",  ".csv", ".arrow" };
    size_t                   n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t e = strlen(ends[i]);
        if (n > e && strcmp(path + n - e, ends[i]) == 0) return true;
    }
    return false;
}

/* --- what is in the cache ----------------------------------------------------------------------------------------- */

static bool is_commit(const char *text)
{
    size_t n = strspn(text, "0123456789abcdefABCDEF");
    return n >= 5 && n <= MOST_COMMIT && !text[n];
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Adds the names in a directory: "main, v1". */
static void add_revisions(const char *repository_path, const char *below, tm_text *out)
{
    tm_text         path = { 0 };
    struct dirent **entries = NULL;
    tm_text_printf(&path, "%s/%s", repository_path, below);
    int n = scandir(path.data, &entries, NULL, by_bytes);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.' && out->length < 300)
            tm_text_printf(out, "%s%.80s", out->length ? ", " : "", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    tm_text_fini(&path);
}

/* The first link of a directory that leads nowhere, and how many do. */
static void find_broken(const char *folder, int depth, tm_text *first, int *n)
{
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat info;
        tm_text     path = { 0 };
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        tm_text_printf(&path, "%s/%s", folder, entry->d_name);
        if (stat(path.data, &info) != 0) {
            if (!(*n)++ || strcmp(path.data, first->data) < 0) {
                first->length = 0;
                tm_text_add(first, path.data);
            }
        } else if (S_ISDIR(info.st_mode) && depth < MOST_DEPTH) {
            find_broken(path.data, depth + 1, first, n);
        }
        tm_text_fini(&path);
    }
    if (dir) closedir(dir);
}

/* How many downloads into the repository have not ended. */
static int count_incomplete(const char *repository_path)
{
    static const char ending[] = ".incomplete";
    tm_text           path = { 0 };
    int               n = 0;
    tm_text_printf(&path, "%s/blobs", repository_path);
    DIR *folder = opendir(path.data);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name), e = sizeof ending - 1;
        n += length > e && strcmp(entry->d_name + length - e, ending) == 0;
    }
    if (folder) closedir(folder);
    tm_text_fini(&path);
    return n;
}

static tm_status check_links(const repository *r, bool dataset, const char *snapshot, const char *commit, tm_error *err)
{
    tm_text first = { 0 }, command = { 0 };
    int     n = 0;
    find_broken(snapshot, 0, &first, &n);
    add_command(&command, dataset, r->name, commit);
    tm_status st = TM_OK;
    if (n > 0)
        st = tm_fail(err, TM_FORMAT,
                     "%d file%s of '%s' in the Hugging Face cache %s missing, the first is '%.400s': a link to a file "
                     "that is not there; %s",
                     n, n == 1 ? "" : "s", r->name, n == 1 ? "is" : "are", first.data, command.data);
    tm_text_fini(&first);
    tm_text_fini(&command);
    return st;
}

/* The commit that a revision of the repository stands for. */
static tm_status find_commit(const repository *r, bool dataset, const char *path, char commit[MOST_COMMIT + 1],
                             tm_error *err)
{
    const char *revision = *r->revision ? r->revision : "main";
    char        line[MOST_COMMIT + 8];
    tm_text     file = { 0 }, there = { 0 }, command = { 0 };
    tm_status   st = TM_OK;
    tm_text_printf(&file, "%s/refs/%s", path, revision);
    bool named = tm_file_read_line(file.data, line, sizeof line);
    if (!named) snprintf(line, sizeof line, "%.64s", is_commit(revision) ? revision : "");
    file.length = 0;
    tm_text_printf(&file, "%s/snapshots/%s", path, line);
    add_command(&command, dataset, r->name, *r->revision ? r->revision : NULL);
    if (named && !is_commit(line)) {
        st = tm_fail(err, TM_FORMAT, "'%s/refs/%s' holds no commit, but '%.64s'; %s", path, revision, line,
                     command.data);
    } else if (named && !tm_file_exists(file.data)) {
        st = tm_fail(err, TM_FORMAT, "'%s', revision %s, is commit %s, and '%s' is not there; %s", r->name, revision,
                     line, file.data, command.data);
    } else if (!*line || !tm_file_exists(file.data)) {
        add_revisions(path, "refs", &there);
        if (!there.length) add_revisions(path, "snapshots", &there);
        st = tm_fail(err, TM_INVALID, "'%s' has no revision %s in the Hugging Face cache ('%s'); there: %s; %s",
                     r->name, revision, path, there.length ? there.data : "none", command.data);
    } else {
        snprintf(commit, MOST_COMMIT + 1, "%.64s", line);
    }
    tm_text_fini(&file);
    tm_text_fini(&there);
    tm_text_fini(&command);
    return st;
}

static tm_status open_snapshot(const repository *r, tm_hub_kind kind, const char *cache, const char *path,
                               tm_hub_place *out, tm_error *err)
{
    char commit[MOST_COMMIT + 1];
    TM_TRY(find_commit(r, kind == TM_HUB_DATASET, path, commit, err));
    out->path.length = 0;
    tm_text_printf(&out->path, "%s/snapshots/%s", path, commit);
    TM_TRY(check_links(r, kind == TM_HUB_DATASET, out->path.data, commit, err));
    if (*r->below) tm_text_printf(&out->path, "/%s", r->below);
    if (*r->below && !tm_file_exists(out->path.data) && !matches(out->path.data))
        return tm_fail(err, TM_INVALID, "the data set '%s' has no '%s' in the Hugging Face cache ('%.400s')", r->name,
                       r->below, out->path.data);
    if (kind == TM_HUB_DATASET && !*r->below) TM_TRY(tm_hub_choose(r->name, &out->path, err));
    const char *revision = *r->revision ? r->revision : "main";
    tm_text_printf(&out->found, "'%s'", r->name);
    if (strcmp(revision, commit) != 0) tm_text_printf(&out->found, ", revision %s", revision);
    tm_text_printf(&out->found, ", commit %s, in the Hugging Face cache '%s'", commit, cache);
    return TM_OK;
}

static tm_status not_there(tm_hub_kind kind, const char *given, const repository *r, const char *cache,
                           const char *named, tm_error *err)
{
    tm_text command = { 0 };
    add_command(&command, kind == TM_HUB_DATASET, r->name, *r->revision ? r->revision : NULL);
    tm_fail(err, TM_INVALID,
            "there is no directory '%.300s', and the Hugging Face cache '%s' (%s) has no such %s; check the path, or "
            "get it with %s (trainmark downloads nothing)",
            given, cache, named, nouns[kind], command.data);
    tm_text_fini(&command);
    return TM_INVALID;
}

static void add_folder(tm_text *path, const char *cache, tm_hub_kind kind, const char *name)
{
    tm_text_printf(path, "%s/%s", cache, folders[kind]);
    for (; *name; name++) tm_text_add(path, *name == '/' ? "--" : (char[]){ *name, '\0' });
}

tm_status tm_hub_find(tm_hub_kind kind, const char *given, tm_hub_place *out, tm_error *err)
{
    repository  r;
    tm_text     cache = { 0 }, path = { 0 };
    const char *named = "";
    *out = (tm_hub_place){ 0 };
    tm_text_add(&out->path, given);
    if (is_here(kind, given) || !read_name(kind, given, &r)) return TM_OK;
    /* One word, or one with a file's name, is a path that is wrong rather than a name. */
    bool      sure = strncmp(given, "hf://", 5) == 0 || *r.revision;
    bool      likely = sure || (r.owned && !*r.below && !is_file_name(given));
    tm_error  own = { 0 };
    tm_status st = find_cache(&cache, &named, &own);
    if (st == TM_OK) add_folder(&path, cache.data, kind, r.name);
    if (st != TM_OK)
        st = likely ? tm_fail(err, st, "there is no directory '%.300s', and %s", given, own.text) : TM_OK;
    else if (tm_file_exists(path.data))
        st = open_snapshot(&r, kind, cache.data, path.data, out, err);
    else if ((out->absent = likely))
        st = not_there(kind, given, &r, cache.data, named, err);
    tm_text_fini(&cache);
    tm_text_fini(&path);
    return st;
}

void tm_hub_place_fini(tm_hub_place *place)
{
    tm_text_fini(&place->path);
    tm_text_fini(&place->found);
}

/* --- snapshots ---------------------------------------------------------------------------------------------------- */

bool tm_hub_origin_of(const char *path, tm_hub_origin *out)
{
    static const char between[] = "/snapshots/";
    *out = (tm_hub_origin){ 0 };
    const char *at = strstr(path, between), *from = at;
    if (!at) return false;
    while (from > path && from[-1] != '/') from--;
    out->dataset = strncmp(from, folders[1], strlen(folders[1])) == 0;
    const char *front = folders[out->dataset];
    if (strncmp(from, front, strlen(front)) != 0) return false;
    out->repository = (int)(at - path);
    size_t n = 0;
    for (from += strlen(front); from < at && n + 1 < sizeof out->name; from++) {
        bool dashes = from[0] == '-' && from[1] == '-';
        out->name[n++] = dashes ? '/' : *from;
        from += dashes;
    }
    at += sizeof between - 1;
    snprintf(out->commit, sizeof out->commit, "%.*s", (int)strcspn(at, "/"), at);
    return n > 0 && is_commit(out->commit);
}

/* A member of a JSON file, which the caller frees; NULL. */
static json_t *member_of(const char *path, const char *name)
{
    json_error_t error;
    json_t      *root = tm_json_input_file(path, 0, &error);
    json_t      *member = json_incref(json_object_get(root, name));
    json_decref(root);
    return member;
}

typedef struct {
    const char *folder;
    tm_text     first, path; /* the first that is missing in the order of names */
    int         missing, present;
} census;

static void look_for(census *c, const char *file)
{
    c->path.length = 0;
    tm_text_printf(&c->path, "%s/%s", c->folder, file);
    if (tm_file_exists(c->path.data)) {
        c->present++;
        return;
    }
    if (c->first.data && strcmp(c->first.data, file) == 0) return;
    if (!c->missing++ || strcmp(file, c->first.data) < 0) {
        c->first.length = 0;
        tm_text_add(&c->first, file);
    }
}

static bool is_weights(const char *file)
{
    static const char *const fronts[] = { "model", "diffusion_pytorch_model", "adapter_model" };
    for (size_t i = 0; i < sizeof fronts / sizeof fronts[0]; i++)
        if (strncmp(file, fronts[i], strlen(fronts[i])) == 0 && strstr(file, ".safetensors")) return true;
    return false;
}

/* Files that an index names, each once: jansson keeps the order of the tensors, so a set is made. */
static void look_at_index(census *c, const json_t *map)
{
    json_t     *files = json_object(), *value;
    const char *name;
    json_object_foreach((json_t *)map, name, value) if (json_is_string(value))
        json_object_set_new(files, json_string_value(value), json_true());
    json_object_foreach(files, name, value) look_for(c, name);
    json_decref(files);
}

static void look_at_commit(census *c, const char *repository_path, int length, const char *commit)
{
    tm_text     path = { 0 };
    const char *name;
    json_t     *value;
    tm_text_printf(&path, "%.*s/trees/%s.json", length, repository_path, commit);
    json_t *files = member_of(path.data, "files");
    json_object_foreach(files, name, value) if (is_weights(name)) look_for(c, name);
    json_decref(files);
    tm_text_fini(&path);
}

tm_status tm_hub_check_weights(const char *folder, tm_error *err)
{
    static const char *const indices[] = { "model.safetensors.index.json",
                                           "diffusion_pytorch_model.safetensors.index.json" };
    tm_hub_origin            origin;
    census                   c = { .folder = folder };
    tm_text                  repository_path = { 0 }, command = { 0 };
    tm_status                st = TM_OK;
    bool                     indexed = false;
    if (!tm_hub_origin_of(folder, &origin)) return TM_OK;
    for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++) {
        c.path.length = 0;
        tm_text_printf(&c.path, "%s/%s", folder, indices[i]);
        json_t *map = member_of(c.path.data, "weight_map");
        if (map) look_at_index(&c, map);
        indexed = indexed || map;
        json_decref(map);
    }
    tm_text_add_n(&repository_path, folder, (size_t)origin.repository);
    int open = count_incomplete(repository_path.data);
    if (!c.missing && !c.present) look_at_commit(&c, folder, origin.repository, origin.commit);
    add_command(&command, origin.dataset, origin.name, origin.commit);
    if (c.missing && (indexed || c.present || open))
        st = tm_fail(err, TM_FORMAT, "'%s' lacks %d file%s of weights in '%.400s', the first is '%s'%s; %s",
                     origin.name, c.missing, c.missing == 1 ? "" : "s", folder, c.first.data,
                     open ? " (blobs/*.incomplete: a download has not ended)" : "", command.data);
    else if (!c.missing && !c.present && open)
        st = tm_fail(err, TM_FORMAT,
                     "'%s' has no weights in '%.400s', and a download has not ended (blobs/*.incomplete); %s",
                     origin.name, folder, command.data);
    tm_text_fini(&c.path);
    tm_text_fini(&c.first);
    tm_text_fini(&command);
    tm_text_fini(&repository_path);
    return st;
}
