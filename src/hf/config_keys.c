/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/config_keys.h"

#define IDLE(name)                                                                                                     \
    {                                                                                                                  \
        .key = name, .kind = TM_HF_HARMLESS                                                                            \
    }
#define WANTS(name, value)                                                                                             \
    {                                                                                                                  \
        .key = name, .kind = TM_HF_MUST, .values = value, .absent = value                                              \
    }

/* clang-format off */
const tm_hf_key tm_hf_common_keys[] = {
    /* checked apart */
    IDLE("model_type"), IDLE("architectures"),
    /* what wrote the file, and how it is loaded elsewhere */
    IDLE("_name_or_path"), IDLE("name_or_path"), IDLE("transformers_version"), IDLE("torch_dtype"), IDLE("dtype"),
    IDLE("torchscript"), IDLE("auto_map"), IDLE("attn_implementation"), IDLE("_attn_implementation"),
    IDLE("_attn_implementation_autoset"), IDLE("_commit_hash"), IDLE("use_bfloat16"), IDLE("tf_legacy_loss"),
    IDLE("_flash_attn_2_enabled"), IDLE("use_flash_attn"), IDLE("use_flash_attention_2"), IDLE("use_flash_attention"), IDLE("trust_remote_code"),
    IDLE("unsloth_version"), IDLE("unsloth_fixed"), IDLE("internal_version"), IDLE("transformers.js_config"), IDLE("xla_device"),
    /* how it was trained elsewhere */
    IDLE("gradient_checkpointing"), IDLE("neftune_noise_alpha"), IDLE("tokenizer_model_max_length"),
    IDLE("tokenizer_padding_side"), IDLE("selective_checkpoint_enabled"), IDLE("sequence_parallel_enabled"),
    IDLE("pretraining_tp"), /* parts of the same sums */
    /* what is returned, and kept between calls */
    IDLE("use_cache"), IDLE("return_dict"), IDLE("output_attentions"), IDLE("output_hidden_states"),
    IDLE("return_dict_in_generate"), IDLE("output_scores"), IDLE("chunk_size_feed_forward"), IDLE("output_past"),
    /* values of weights that are loaded */
    IDLE("initializer_range"),
    /* tokens */
    IDLE("bos_token_id"), IDLE("eos_token_id"), IDLE("pad_token_id"), IDLE("sep_token_id"), IDLE("cls_token_id"),
    IDLE("mask_token_id"), IDLE("unk_token_id"), IDLE("decoder_start_token_id"), IDLE("tokenizer_class"),
    IDLE("prefix"), IDLE("model_max_length"), IDLE("eos_token_ids"),
    /* heads for classification */
    IDLE("id2label"), IDLE("label2id"), IDLE("num_labels"), IDLE("problem_type"), IDLE("finetuning_task"),
    IDLE("classifier_dropout"), IDLE("_num_labels"),
    /* drawing tokens */
    IDLE("task_specific_params"), IDLE("max_length"), IDLE("min_length"), IDLE("do_sample"), IDLE("early_stopping"),
    IDLE("num_beams"), IDLE("num_beam_groups"), IDLE("diversity_penalty"), IDLE("temperature"), IDLE("top_k"),
    IDLE("top_p"), IDLE("typical_p"), IDLE("repetition_penalty"), IDLE("length_penalty"),
    IDLE("no_repeat_ngram_size"), IDLE("encoder_no_repeat_ngram_size"), IDLE("bad_words_ids"),
    IDLE("num_return_sequences"), IDLE("exponential_decay_length_penalty"), IDLE("suppress_tokens"),
    IDLE("begin_suppress_tokens"), IDLE("forced_bos_token_id"), IDLE("forced_eos_token_id"),
    IDLE("remove_invalid_values"), IDLE("renormalize_logits"), IDLE("force_bos_token_to_be_generated"),
    /* models of other kinds */
    IDLE("is_decoder"), WANTS("is_encoder_decoder", "false"), WANTS("add_cross_attention", "false"),
    WANTS("tie_encoder_decoder", "false"), WANTS("pruned_heads", "{}"),
    /* other rotary positions */
    WANTS("rope_interleaved", "false"), WANTS("use_mrope", "false"),
    { .key = NULL },
};
/* clang-format on */
