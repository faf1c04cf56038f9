/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/megatron_values.h - conversions of rows of megatron.c (tm_foreign_key.convert). Private to it. */
#ifndef TM_CONFIG_MEGATRON_VALUES_H
#define TM_CONFIG_MEGATRON_VALUES_H

#include "config/foreign.h"

/* lr_decay_style of OptimizerParamScheduler, which Megatron-Bridge has, too; lr_wsd_decay_style of its WSD. */
#define TM_MEGATRON_DECAYS                                                                                             \
    "cosine:lr_scheduler.form=megatron;lr_scheduler.decay_type=cosine|"                                                \
    "linear:lr_scheduler.form=megatron;lr_scheduler.decay_type=linear|"                                                \
    "constant:lr_scheduler.form=megatron;lr_scheduler.decay_ratio=0|"                                                  \
    "inverse-square-root:lr_scheduler.form=megatron;lr_scheduler.decay_type=inverse_sqrt|"                             \
    "WSD:lr_scheduler.form=megatron"
#define TM_MEGATRON_WSD_DECAYS                                                                                         \
    "exponential:lr_scheduler.decay_type=exponential|linear:lr_scheduler.decay_type=linear|"                           \
    "cosine:lr_scheduler.decay_type=cosine|minus_sqrt:lr_scheduler.decay_type=sqrt"

const char *tm_megatron_rows_of_tokenizer(const tm_config *config, const char *value);
const char *tm_megatron_padded(const tm_config *config, const char *value);
const char *tm_megatron_shared_experts(const tm_config *config, const char *value);
const char *tm_megatron_expert_layers(const tm_config *config, const char *value); /* "3,null", "0,10" */
const char *tm_megatron_group_best(const tm_config *config, const char *value);
const char *tm_megatron_documents(const tm_config *config, const char *value);
bool        tm_megatron_has_latent(const tm_config *config); /* latent attention */
const char *tm_megatron_latent(const tm_config *config, const char *value);
const char *tm_megatron_if_latent(const tm_config *config, const char *value);
const char *tm_megatron_unless_latent(const tm_config *config, const char *value);
const char *tm_megatron_interpolated(const tm_config *config, const char *value);
const char *tm_megatron_scaling(const tm_config *config, const char *value);
const char *tm_megatron_norms(const tm_config *config, const char *value);
const char *tm_megatron_positions(const tm_config *config, const char *value);
const char *tm_megatron_window(const tm_config *config, const char *value);
const char *tm_megatron_window_blocks(const tm_config *config, const char *value);
const char *tm_megatron_if_sinks(const tm_config *config, const char *value);
const char *tm_megatron_sink_window(const tm_config *config, const char *value);
const char *tm_megatron_adapted(const tm_config *config, const char *value);
const char *tm_megatron_expert_adapters(const tm_config *config, const char *value);
const char *tm_megatron_low_precision(const tm_config *config, const char *value);
const char *tm_megatron_alpha(const tm_config *config, const char *value);
const char *tm_megatron_base(const tm_config *config, const char *value);
const char *tm_megatron_stage(const tm_config *config, const char *value);
const char *tm_megatron_rows_format(const tm_config *config, const char *value);
const char *tm_megatron_rows_encoder(const tm_config *config, const char *value);
const char *tm_megatron_muon_parts(const tm_config *config, const char *value);
const char *tm_megatron_stage_blocks(const tm_config *config, const char *value);
const char *tm_megatron_distributed(const tm_config *config, const char *value);
const char *tm_megatron_fsdp2(const tm_config *config, const char *value);
const char *tm_megatron_sharding(const tm_config *config, const char *value);
const char *tm_megatron_wsd_steps(const tm_config *config, const char *value);
const char *tm_megatron_data(const tm_config *config, const char *value);

#endif
