/* SPDX-License-Identifier: Apache-2.0 */
/* data/pictures_tar.c - tar archives as WebDataset has them: members that follow each other and have the same name up
 * to the first dot are a sample, 000.jpg with 000.txt, or with 000.json, whose text or caption is the caption. */
#include "base/json_input.h"
#include "base/map.h"
#include "data/captions.h"
#include "data/pictures_list.h"
#include "data/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_TEXT = 1 << 20, MAX_MEMBERS = 256 };

/* A member of the archive. */
typedef struct {
    int64_t at, size; /* at 0: there is none */
} member;

typedef struct {
    tm_text key;  /* "a/000" */
    tm_text name; /* of the picture: "a/000.jpg" */
    member  picture, text, json;
    int64_t others; /* members that are none of these */
} sample;

typedef struct {
    tm_pictures *list;
    const char  *path, *name; /* of the archive */
    tm_map       map;
    sample       now;
} archive;

/* The length of what members of a sample have in common. */
static size_t key_length(const char *name)
{
    const char *file = tm_file_name(name), *dot = strchr(file, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

/* Is it a text in UTF-8, without zeros? */
static bool is_utf8(const tm_text *text)
{
    size_t n;
    for (size_t i = 0; i < text->length; i += n) {
        n = text->data[i] ? tm_utf8_length((const unsigned char *)text->data + i) : 0;
        if (n == 0) return false;
    }
    return true;
}

static tm_status read_json(const archive *a, const char *where, const char *bytes, size_t n, tm_text *out,
                           tm_error *err)
{
    const char  *names[MAX_MEMBERS], *key;
    size_t       count = 0, at = 0;
    json_error_t problem;
    json_t      *value, *all = tm_json_input(bytes, n, JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(all)) {
        json_decref(all);
        return tm_fail(err, TM_FORMAT, "%s: its .json is no object (%s)", where, all ? "another value" : problem.text);
    }
    json_object_foreach(all, key, value)
    {
        if (count < MAX_MEMBERS) names[count++] = key;
    }
    tm_status st = tm_caption_column(where, names, count, a->list->options.caption, &at, err);
    value = st == TM_OK ? json_object_get(all, names[at]) : NULL;
    const char *wrong = json_is_string(value) ? tm_json_text_problem(value, false) : NULL;
    if (st == TM_OK && !json_is_string(value) && !json_is_null(value))
        st = tm_fail(err, TM_FORMAT, "%s: %s of its .json is no text", where, names[at]);
    else if (wrong)
        st = tm_fail(err, TM_FORMAT, "%s: %s of its .json %s", where, names[at], wrong);
    else if (json_is_string(value))
        tm_text_add(out, json_string_value(value));
    json_decref(all);
    return st;
}

/* Of .txt, unless a member of .json is asked for; else of .json. */
static tm_status read_caption(const archive *a, const char *where, tm_text *out, tm_error *err)
{
    const sample *s = &a->now;
    const bool    json = s->json.at && (!s->text.at || a->list->options.caption);
    const member *from = json ? &s->json : &s->text;
    if (!from->at) return TM_OK;
    if (from->size > MAX_TEXT) return tm_fail(err, TM_INVALID, "%s: its caption has more than 1 MiB", where);
    const char *bytes = (const char *)a->map.bytes + from->at;
    if (json) return read_json(a, where, bytes, (size_t)from->size, out, err);
    size_t mark = from->size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    tm_text_add_n(out, bytes + mark, (size_t)from->size - mark);
    return is_utf8(out) ? TM_OK : tm_fail(err, TM_FORMAT, "%s: its .txt is not UTF-8", where);
}

static tm_status add_sample(archive *a, tm_error *err)
{
    sample *s = &a->now;
    tm_text caption = { 0 };
    char    where[512];
    snprintf(where, sizeof where, "'%.250s', '%.200s'", a->path, s->name.length ? s->name.data : "");
    a->list->ignored += s->others;
    if (!s->picture.at) {
        a->list->ignored += (s->text.at > 0) + (s->json.at > 0);
        return TM_OK;
    }
    tm_status st = read_caption(a, where, &caption, err);
    if (st == TM_OK && tm_pictures_lack(a->list, caption.data)) st = tm_pictures_refuse(where, err);
    const tm_picture_item item = { .name = tm_arena_format(a->list->arena, "%s, %s", a->name, s->name.data),
                                   .path = a->path,
                                   .at = s->picture.at,
                                   .bytes = s->picture.size };
    if (st == TM_OK) tm_pictures_add(a->list, item, caption.data);
    tm_text_fini(&caption);
    return st;
}

static tm_status take_member(archive *a, const char *name, member m, tm_error *err)
{
    sample      *s = &a->now;
    const size_t n = key_length(name);
    const char  *kind = name[n] ? name + n + 1 : "";
    if (s->key.length != n || memcmp(s->key.data, name, n) != 0) {
        TM_TRY(add_sample(a, err));
        s->key.length = s->name.length = 0;
        tm_text_add_n(&s->key, name, n);
        s->picture = s->text = s->json = (member){ 0 };
        s->others = 0;
    }
    const char *wanted = a->list->options.file;
    bool        picture = wanted ? strcasecmp(kind, wanted) == 0 : !strchr(kind, '.') && tm_is_picture_name(name);
    member     *to = picture                         ? &s->picture
                     : strcasecmp(kind, "txt") == 0  ? &s->text
                     : strcasecmp(kind, "json") == 0 ? &s->json
                                                     : NULL;
    if (!to) s->others++;
    if (to && to->at)
        return tm_fail(err, TM_INVALID, "'%s': '%s' is a second %s of the sample '%s'; leave one out", a->path, name,
                       picture ? "picture" : kind, s->key.data);
    if (to) *to = m;
    if (picture) tm_text_add(&s->name, name);
    return TM_OK;
}

tm_status tm_pictures_add_tar(tm_pictures *p, const char *path, const char *name, tm_error *err)
{
    archive a = { .list = p, .path = tm_arena_text(p->arena, path), .name = name };
    TM_TRY(tm_map_open(path, &a.map, err));
    tm_tar    tar = { .file = a.path, .bytes = a.map.bytes, .size = a.map.size };
    tm_status st = TM_OK;
    for (member m; (st = tm_tar_next(&tar, &m.at, &m.size, err)) == TM_OK && m.at;) {
        const char *file = tm_file_name(tar.name.data);
        if (!*file || *file == '.')
            p->ignored++;
        else if ((st = take_member(&a, tar.name.data, m, err)) != TM_OK)
            break;
    }
    if (st == TM_OK) st = add_sample(&a, err);
    tm_text_fini(&tar.name);
    tm_text_fini(&a.now.key);
    tm_text_fini(&a.now.name);
    tm_map_close(&a.map);
    return st;
}

tm_status tm_pictures_read_member(tm_pictures *p, const tm_picture_item *item, tm_text *out, tm_error *err)
{
    if (!p->tar.path || strcmp(p->tar.path, item->path) != 0) {
        tm_map_close(&p->tar);
        TM_TRY(tm_map_open(item->path, &p->tar, err));
    }
    TM_TRY(tm_map_check(&p->tar, err));
    if (item->at + item->bytes > p->tar.size)
        return tm_fail(err, TM_INVALID, "'%s' is shorter than it was; keep data unchanged", item->path);
    tm_text_add_n(out, (const char *)p->tar.bytes + item->at, (size_t)item->bytes);
    return TM_OK;
}
