/* SPDX-License-Identifier: Apache-2.0 */
#include "support/schema.h"

#include <string.h>

static bool wrong(tm_text *why, const char *path, const char *what, const char *which)
{
    tm_text_printf(why, "%s: %s%s%s", *path ? path : "/", what, which ? " " : "", which ? which : "");
    return false;
}

static bool is_type(const json_t *value, const char *type)
{
    if (strcmp(type, "number") == 0) return json_is_number(value);
    if (strcmp(type, "integer") == 0) return json_is_integer(value);
    if (strcmp(type, "string") == 0) return json_is_string(value);
    if (strcmp(type, "boolean") == 0) return json_is_boolean(value);
    if (strcmp(type, "null") == 0) return json_is_null(value);
    if (strcmp(type, "object") == 0) return json_is_object(value);
    return strcmp(type, "array") == 0 && json_is_array(value);
}

static bool check_type(const json_t *types, const json_t *value)
{
    if (!types) return true;
    if (json_is_string(types)) return is_type(value, json_string_value(types));
    for (size_t i = 0; i < json_array_size(types); i++)
        if (is_type(value, json_string_value(json_array_get(types, i)))) return true;
    return false;
}

static bool check_object(const json_t *schema, const json_t *value, const char *path, tm_text *why)
{
    json_t *properties = json_object_get(schema, "properties"), *more = json_object_get(schema, "additionalProperties");
    json_t *required = json_object_get(schema, "required"), *member;
    const char *name;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(value, json_string_value(json_array_get(required, i))))
            return wrong(why, path, "lacks", json_string_value(json_array_get(required, i)));
    json_object_foreach((json_t *)value, name, member)
    {
        json_t *own = json_object_get(properties, name);
        tm_text below = { 0 };
        tm_text_printf(&below, "%s/%s", path, name);
        bool good = own                    ? schema_check(own, member, below.data, why)
                    : json_is_false(more)  ? wrong(why, path, "has the unknown member", name)
                    : json_is_object(more) ? schema_check(more, member, below.data, why)
                                           : true;
        tm_text_fini(&below);
        if (!good) return false;
    }
    return true;
}

static bool check_any(const json_t *any, const json_t *value, const char *path, tm_text *why)
{
    tm_text reasons = { 0 };
    for (size_t i = 0; i < json_array_size(any); i++) {
        if (schema_check(json_array_get(any, i), value, path, &reasons)) {
            tm_text_fini(&reasons);
            return true;
        }
        tm_text_add(&reasons, "; ");
    }
    tm_text_add(why, reasons.data ? reasons.data : "");
    tm_text_fini(&reasons);
    return false;
}

static bool knows_all(const json_t *schema, const char *path, tm_text *why)
{
    static const char *const known[] = { "$schema",    "title",    "description",          "type",  "const", "enum",
                                         "properties", "required", "additionalProperties", "items", "anyOf", "minimum",
                                         "minLength",  "maxLength" };
    const char              *keyword;
    json_t                  *ignored;
    json_object_foreach((json_t *)schema, keyword, ignored)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) found = found || strcmp(known[i], keyword) == 0;
        if (!found) return wrong(why, path, "the schema has the unknown keyword", keyword);
    }
    return true;
}

bool schema_check(const json_t *schema, const json_t *value, const char *path, tm_text *why)
{
    json_t *same = json_object_get(schema, "const"), *any = json_object_get(schema, "anyOf");
    json_t *list = json_object_get(schema, "enum"), *least = json_object_get(schema, "minimum");
    json_t *shortest = json_object_get(schema, "minLength"), *longest = json_object_get(schema, "maxLength");
    json_t *items = json_object_get(schema, "items");
    bool    listed = !list;
    if (!knows_all(schema, path, why)) return false;
    if (!check_type(json_object_get(schema, "type"), value)) return wrong(why, path, "is of another type", NULL);
    if (same && !json_equal(same, value)) return wrong(why, path, "is another constant", NULL);
    for (size_t i = 0; i < json_array_size(list); i++) listed = listed || json_equal(json_array_get(list, i), value);
    if (!listed) return wrong(why, path, "is none of the words", json_string_value(value));
    if (least && json_is_number(value) && json_number_value(value) < json_number_value(least))
        return wrong(why, path, "is below the minimum", NULL);
    size_t length = json_is_string(value) ? strlen(json_string_value(value)) : 0;
    if (json_is_string(value) && ((shortest && length < (size_t)json_integer_value(shortest)) ||
                                  (longest && length > (size_t)json_integer_value(longest))))
        return wrong(why, path, "has another length", NULL);
    if (any && !check_any(any, value, path, why)) return false;
    if (json_is_object(value) && !check_object(schema, value, path, why)) return false;
    for (size_t i = 0; items && i < json_array_size(value); i++)
        if (!schema_check(items, json_array_get(value, i), path, why)) return false;
    return true;
}
