/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of config.json. What is accepted has a form, and what it gives can be finished or is refused. */
#include "fuzz.h"

#include "hf/config.h"
#include "base/log.h"
#include "support/full_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_hf_description description;
    tm_error          err = { 0 };
    tm_model_shape    shape;
    tm_config        *config = test_full_config();
    tm_log_set_level(TM_LOG_ERROR);
    tm_status st = tm_hf_config_parse("x.json", (const char *)data, size, config, &description, &err);
    fuzz_told(st, &err, "x.json");
    if (st == TM_OK) {
        TM_ASSERT(description.form);
        st = tm_config_finish(config, &err);
        if (st == TM_OK) st = tm_model_shape_read(config, &shape, &err);
        TM_ASSERT(st == TM_OK || err.text[0]);
        if (st == TM_OK) {
            tm_text           text = { 0 };
            const tm_hf_form *form;
            if (tm_hf_form_of(config, &shape, &form, &err) == TM_OK)
                tm_hf_config_write(config, &shape, form, "float32", NULL, &text);
            tm_text_fini(&text);
        }
    }
    tm_config_destroy(config);
    return 0;
}
