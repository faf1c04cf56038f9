/* SPDX-License-Identifier: Apache-2.0 */
#include "data/keys.h"

#include "base/file.h"
#include "base/text.h"
#include "data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "|govreport|megatron..." and "; govreport: packed..." */
#define TM_SOURCE(name, help) "|" #name
static const char names[] =
#include "data/sources.def"
    ;
#undef TM_SOURCE
#define TM_SOURCE(name, help) "; " #name ": " help
static const char meanings[] =
#include "data/sources.def"
    ;
#undef TM_SOURCE

/* clang-format off */
static const tm_key keys[] = {
    { .name = "data.source", .kind = TM_KEY_CHOICE, .fallback = "synthetic", .choices = names + 1,
      .help = meanings + 2 },
    { .name = "data.path", .kind = TM_KEY_TEXT,
      .synonyms = "training.dataset_path,dataset_path,train_data_path,data.dataset_path",
      .when = "data.source=govreport/latents/megatron/pictures/preference/sft/text",
      .help = "the files of data.source, or ORG/NAME[/PATH] in the Hugging Face cache; without data.source: PREFIX of PREFIX.idx means megatron, .npy means "
              "govreport, all else text" },
    { .name = "data.validation_path", .kind = TM_KEY_TEXT,
      .synonyms = "validation.dataset_path,valid_data_path",
      .help = "held-out data, for sources that read token files; null: validation.npy beside train.npy (govreport, "
              "when "
          "data.path is a directory), else none" },
    { .name = "data.loss_mask", .kind = TM_KEY_CHOICE, .fallback = "input", .choices = "input|target",
      .when = "data.source=govreport",
      .help = "govreport: whether a prediction counts is decided by the mask of the token read (input) or predicted "
              "(target)" },
    { .name = "data.pad_token", .kind = TM_KEY_I64, .fallback = "2", .lo = 0, .hi = 2147483647,
      .when = "data.source=govreport",
      .help = "govreport: the last input of a row, whose prediction never counts" },
    { .name = "data.separate_documents", .kind = TM_KEY_BOOL, .fallback = "false",
      .help = "text and megatron: a token sees its own document only, positions start at 0 in each, and no document "
          "predicts the first token of the next" },
    { .name = "data.mask_ends", .kind = TM_KEY_BOOL, .fallback = "false", .state = TM_KEY_UNBUILT,
      .feature = "excluding ends of documents from the loss without separating documents",
      .help = "megatron: what follows the end of a document is no target" },
    { .name = "data.tokenizer", .kind = TM_KEY_TEXT, .fallback = "byte", .when = "data.source=preference/sft",
      .help = "sft, preference: a tokenizer file or a model's directory, which may have a chat template, too; byte: bytes are "
              "tokens, as "
          "in data.source text; without it: the directory of model.hf_assets_path" },
    { .name = "data.format", .kind = TM_KEY_CHOICE, .fallback = "auto",
      .choices = "auto|messages|conversations|instruction|completion|text|preference", .when = "data.source=preference/sft",
      .help = "sft: layout of the rows (docs/fine-tuning.md); auto: by the columns of the first row" },
    { .name = "data.column_map", .kind = TM_KEY_TEXT, .when = "data.source=preference/sft",
      .help = "sft, preference: names of the columns of data.format in the file: prompt=QUESTION,completion=ANSWER" },
    { .name = "data.chat_template", .kind = TM_KEY_TEXT, .when = "data.source=preference/sft",
      .help = "sft, preference: a file with a chat template, or the name of one in the directory data.tokenizer; null: the "
          "default one there" },
    { .name = "data.train_on_input", .kind = TM_KEY_BOOL, .fallback = "false", .when = "data.source=sft",
      .help = "sft: prompts also count in the loss; false: only answers do" },
    { .name = "data.packed", .kind = TM_KEY_BOOL, .fallback = "true", .when = "data.source=preference/sft",
      .help = "sft, preference: several samples in a sequence (first-fit, longest first), which do not see each other and whose "
          "positions begin at 0; false: one" },
    { .name = "data.overlong", .kind = TM_KEY_CHOICE, .fallback = "truncate", .choices = "truncate|drop|split|error",
      .when = "data.source=preference/sft",
      .help = "sft, preference: what is done with a sample of more than training.seq_len + 1 tokens (answers of pairs: "
              "half of it + 1); split: into samples of that length" },
    { .name = "data.validation_fraction", .kind = TM_KEY_F64, .fallback = "0.05", .lo = 0, .hi = 0.5,
      .when = "data.source=preference/sft/text",
      .help = "fraction of a text, or of the rows of sft and preference without data.validation_path, that is held out" },
    { .name = "data.flow_protocol", .kind = TM_KEY_CHOICE, .fallback = "torchtitan",
      .choices = "torchtitan|mlperf|fluxbenchmark",
      .when = "data.source=gaussians/latents/pictures",
      .help = "images: times of training and evaluation, and which texts are left out" },
    { .name = "data.flow_times", .kind = TM_KEY_CHOICE, .choices = "uniform|logit_normal",
      .when = "data.source=gaussians/latents/pictures,data.flow_protocol!=fluxbenchmark",
      .help = "images: distribution of the times of training, before data.flow_shift; null: that of data.flow_protocol" },
    { .name = "data.flow_logit_mean", .kind = TM_KEY_F64, .fallback = "0", .lo = -20, .hi = 20,
      .when = "data.source=gaussians/latents/pictures,data.flow_times=logit_normal",
      .help = "images: mean of log(t / (1 - t)); above 0: more noise (docs/flux.md says which sign others have)" },
    { .name = "data.flow_logit_std", .kind = TM_KEY_F64, .fallback = "1", .lo = 1e-3, .hi = 20,
      .when = "data.source=gaussians/latents/pictures,data.flow_times=logit_normal",
      .help = "images: standard deviation of log(t / (1 - t))" },
    { .name = "data.flow_shift", .kind = TM_KEY_TEXT,
      .when = "data.source=gaussians/latents/pictures,data.flow_protocol!=fluxbenchmark",
      .help = "images: a drawn time t of training becomes a t / (1 + (a - 1) t); a number a, or auto: by the number of "
              "image tokens, as FLUX.1-dev's scheduler; null: as drawn" },
    { .name = "data.text_dropout", .kind = TM_KEY_F64, .lo = 0, .hi = 1,
      .synonyms = "training.classifier_free_guidance_prob,cfg_dropout_prob",
      .when = "data.source=gaussians/latents/pictures",
      .help = "images: share of the training samples whose texts are left out; null: that of data.flow_protocol" },
    { .name = "data.answers", .kind = TM_KEY_CHOICE, .fallback = "renamed", .choices = "renamed|plain",
      .when = "data.source=reports",
      .help = "reports: answers are written as the reports are (plain), or a tenth of their symbols have changed places in pairs" },
    { .name = "data.spread", .kind = TM_KEY_F64, .fallback = "0.5", .lo = 1e-3, .hi = 100,
      .when = "data.source=gaussians",
      .help = "gaussians: standard deviation of an image around the mean that its texts determine" },
    { .name = "data.prefetch", .kind = TM_KEY_I64, .fallback = "2", .lo = 0, .hi = 64, .quiet = true,
      .help = "batches that a thread prepares ahead; 0: no thread, a step waits for its data" },
    { .name = "data.sample_tokens", .kind = TM_KEY_I64, .fallback = "256", .lo = 0, .hi = 1 << 20, .quiet = true,
      .when = "data.source=text",
      .help = "tokens generated at the end of a run on text; 0: none" },
    { .name = "data.encoders", .kind = TM_KEY_TEXT, .when = "data.source=latents/pictures",
      .help = "directory of FLUX.1 as diffusers ships it (vae, text_encoder, text_encoder_2, ...), for data.source pictures and "
              "data.sample_pictures" },
    { .name = "data.sample_pictures", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 64,
      .when = "data.source=latents/pictures",
      .help = "pictures drawn after each evaluation, for the first held-out texts; needs data.encoders" },
    { .name = "data.sample_steps", .kind = TM_KEY_I64, .fallback = "20", .lo = 1, .hi = 1000,
      .when = "data.source=latents/pictures",
      .help = "Euler steps of such a picture" },
    { .name = "training.mock_data", .kind = TM_KEY_BOOL, .synonyms = "mock_data",
      .help = "true means data.source mock; false needs data.path" },
    { .name = "training.dataset", .kind = TM_KEY_TEXT, .quiet = true, .synonyms = "data.dataset",
      .help = "name of a public data set, read from the Hugging Face cache if it is there; else needs data.path, "
              "training.mock_data or data.source" },
};
/* clang-format on */

static void derive_source(tm_config *config, const char *source, const char *key)
{
    tm_config_derive(config, "data.source", source, key);
}

/* Sources of files need one; held-out data of its own path is not for every source. */
static tm_status check_paths(const tm_config *config, bool given, tm_error *err)
{
    const char             *name = tm_config_text(config, "data.source");
    const tm_source_traits *traits = tm_source_traits_of(name);
    TM_ASSERT(traits); /* the key takes no other */
    if (traits->needs_path && !given)
        return tm_fail(err, TM_INVALID,
                       "data.source is %s (%s), but data.path names no file or directory; give --data.path%s", name,
                       tm_config_place(config, "data.source"),
                       traits->images ? ", or set data.source: gaussians (images of a known distribution)"
                                      : ", or set training.mock_data: true (random tokens) or data.source: synthetic "
                                        "(the built-in language)");
    if (traits->takes_validation_path || !tm_config_text(config, "data.validation_path")) return TM_OK;
    tm_text takers = { 0 };
    for (int i = 0; tm_source_name(i); i++)
        if (tm_source_traits_of(tm_source_name(i))->takes_validation_path)
            tm_text_printf(&takers, "%s%s", takers.length ? " and " : "", tm_source_name(i));
    tm_fail(err, TM_UNSUPPORTED,
            "data.validation_path (%s) is for data.source %s, found %s; text holds out data.validation_fraction of "
            "data.path",
            tm_config_place(config, "data.validation_path"), takers.data, name);
    tm_text_fini(&takers);
    return TM_UNSUPPORTED;
}

/* Rank of a key that has a value, 0 otherwise. */
static int rank_of(const tm_config *config, const char *key)
{
    return tm_config_text(config, key) ? tm_config_rank(config, key) : 0;
}

/* `key` asks for data that is not here, nor in the cache of the hub, which `cache` says, if anything. A plan says so
 * and goes on with random tokens. */
static tm_status miss_data(tm_config *config, const char *key, const char *cache, tm_error *err)
{
    const char *name = tm_config_shown(config, "training.dataset");
    if (tm_config_plans(config)) {
        tm_config_leave_out(config, "%s%.100s (%s = %.100s, %s)", name ? "the data set " : "no data set was given",
                            name ? name : "", key, tm_config_shown(config, key), tm_config_place(config, key));
        if (tm_config_rank(config, "data.source") == 0)
            derive_source(config, "mock", key); /* else a model's own stands in */
        return TM_OK;
    }
    return tm_fail(
        err, TM_INVALID,
        "%s is %.100s (%s), but no local data is named%s%.100s%s: give data.path (training.dataset_path) a file "
        "or directory of text, or set training.mock_data: true (random tokens) or data.source: synthetic (the "
        "built-in language)%s%s",
        key, tm_config_shown(config, key), tm_config_place(config, key), name ? " and the data set '" : "",
        name ? name : "", name ? "' is not downloaded" : "", *cache ? "; " : "", cache);
}

/* training.dataset is ORG/NAME, and in the cache of the hub: then its files are data.path. */
static tm_status find_set(tm_config *config, bool *found, tm_error *err)
{
    static const char key[] = "training.dataset";
    const char       *name = tm_config_text(config, key);
    tm_hub_place      place;
    tm_error          own = { 0 };
    *found = false;
    if (!strchr(name, '/')) return miss_data(config, key, "", err);
    tm_status st = tm_hub_find(TM_HUB_DATASET, name, &place, &own);
    *found = st == TM_OK && place.found.data;
    if (*found) {
        tm_config_note(config, "%s: %s", key, place.found.data);
        tm_config_derive(config, "data.path", place.path.data, key);
    }
    tm_hub_place_fini(&place);
    if (*found) return TM_OK;
    return st == TM_OK || place.absent ? miss_data(config, key, own.text, err)
                                       : tm_fail(err, st, "%s (%s): %s", key, tm_config_place(config, key), own.text);
}

/* The source of what `data pack` and `data tokenize` write, else text. */
static const char *source_of(const char *path)
{
    size_t  n = strlen(path);
    tm_text idx = { 0 };
    tm_text_printf(&idx, "%s.idx", path);
    bool indexed = n > 4 && (strcmp(path + n - 4, ".idx") == 0 || strcmp(path + n - 4, ".bin") == 0);
    indexed = indexed ? tm_file_exists(path) : !tm_file_exists(path) && tm_file_exists(idx.data);
    tm_text_fini(&idx);
    return indexed ? "megatron" : n > 4 && strcmp(path + n - 4, ".npy") == 0 ? "govreport" : "text";
}

static tm_status find_in_hub(tm_config *config, tm_error *err)
{
    tm_error    own = { 0 };
    const char *tokenizer = tm_config_text(config, "data.tokenizer");
    bool        mocked = tm_config_text(config, "training.mock_data") && tm_config_bool(config, "training.mock_data");
    (void)err;
    if (tokenizer && strcmp(tokenizer, "byte") != 0)
        tm_config_report(config, tm_config_find_hub(config, "data.tokenizer", TM_HUB_MODEL, &own), &own);
    if (mocked) return TM_OK; /* files do not count */
    tm_config_report(config, tm_config_find_hub(config, "data.path", TM_HUB_DATASET, &own), &own);
    tm_config_report(config, tm_config_find_hub(config, "data.validation_path", TM_HUB_DATASET, &own), &own);
    return TM_OK;
}

/* The key of the higher layer decides; in one layer data.source before training.mock_data before data.path. */
static tm_status settle_source(tm_config *config, tm_error *err)
{
    int                     source = tm_config_rank(config, "data.source");
    int                     path = rank_of(config, "data.path"), mock = rank_of(config, "training.mock_data");
    bool                    mocked = mock && tm_config_bool(config, "training.mock_data");
    const tm_source_traits *traits = tm_source_traits_of(tm_config_text(config, "data.source"));
    bool                    images = traits && traits->images;
    if (mocked && mock == source && !tm_names_equal(tm_config_text(config, "data.source"), "mock") && !images)
        tm_config_note(config, "training.mock_data is true (%s), but data.source counts, which is %s (%s)",
                       tm_config_place(config, "training.mock_data"), tm_config_text(config, "data.source"),
                       tm_config_place(config, "data.source"));
    if (mock && !mocked && mock == source && tm_names_equal(tm_config_text(config, "data.source"), "mock"))
        return tm_fail(err, TM_INVALID,
                       "data.source is mock (%s), training.mock_data is false (%s); give one of the two",
                       tm_config_place(config, "data.source"), tm_config_place(config, "training.mock_data"));
    bool pairs = source > 0 && traits && traits->pairs;
    if (pairs && mocked)
        return tm_fail(err, TM_UNSUPPORTED,
                       "training.mock_data (%s) makes random tokens, and data.source preference (%s) compares answers; "
                       "give --data.path rows of them",
                       tm_config_place(config, "training.mock_data"), tm_config_place(config, "data.source"));
    if (mocked && mock >= path && mock > source) /* what an image model is measured on has a source of its own */
        derive_source(config, images ? "gaussians" : "mock", "training.mock_data");
    else if (path > source && !pairs) /* what the loss is stays so wherever its data lies */
        derive_source(config, source_of(tm_config_text(config, "data.path")), "data.path");
    if (mock && !mocked && !path && mock > source) return miss_data(config, "training.mock_data", "", err);
    bool wants = pairs || (source > 0 && traits && traits->needs_path); /* then a name says what its files are */
    bool set = !mocked && !path && rank_of(config, "training.dataset") > (wants ? 0 : source);
    bool found = false;
    if (set) TM_TRY(find_set(config, &found, err));
    if (set && !found) return TM_OK; /* a plan without its data */
    if (set && !wants) derive_source(config, source_of(tm_config_text(config, "data.path")), "data.path");
    return check_paths(config, path > 0 || set, err);
}

/* Random tokens have nothing that could be held out: evaluated only for who asks. */
static tm_status settle_mock(tm_config *config, tm_error *err)
{
    static const char *const asks[] = { "validation.enable", "validation.steps", "validation.freq",
                                        "validation.first" };
    (void)err;
    if (strcmp(tm_config_text(config, "data.source"), "mock") != 0 || !tm_config_is_row(config, asks[0])) return TM_OK;
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++)
        if (tm_config_is_set(config, asks[i])) return TM_OK;
    tm_config_set(config, asks[0], "false", "default (data.source mock)");
    return TM_OK;
}

/* The tokenizer of the model that is trained on. */
static tm_status settle_tokenizer(tm_config *config, tm_error *err)
{
    static const char model[] = "model.hf_assets_path";
    const char       *folder = tm_config_is_row(config, model) ? tm_config_text(config, model) : NULL;
    (void)err;
    if (folder && tm_config_rank(config, "data.tokenizer") == 0 &&
        (strcmp(tm_config_text(config, "data.source"), "sft") == 0 ||
         strcmp(tm_config_text(config, "data.source"), "preference") == 0))
        tm_config_derive(config, "data.tokenizer", folder, model);
    return TM_OK;
}

/* data.flow_shift: auto, or a number. */
static tm_status check_shift(tm_config *config, tm_error *err)
{
    static const char key[] = "data.flow_shift";
    const char       *text = tm_config_text(config, key);
    if (!text || strcmp(text, "auto") == 0) return TM_OK;
    char  *end;
    double shift = strtod(text, &end);
    if (end > text && !*end && shift >= 0.01 && shift <= 100) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "%s is '%.40s' (%s), wanted a number from 0.01 to 100, or auto: by the number of image tokens", key,
                   text, tm_config_place(config, key));
}

void tm_data_configure(tm_config *config)
{
    tm_config_add_keys(config, keys, sizeof keys / sizeof keys[0]);
    tm_config_add_rule(config, find_in_hub);
    tm_config_add_rule(config, settle_source);
    tm_config_add_rule(config, settle_mock);
    tm_config_add_rule(config, settle_tokenizer);
    tm_config_add_rule(config, check_shift);
}
