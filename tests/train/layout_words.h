/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/layout_words.h - words of a command line: small models, and how ranks divide them. */
#ifndef TM_TESTS_LAYOUT_WORDS_H
#define TM_TESTS_LAYOUT_WORDS_H

#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 24 --model.n_heads 4 --model.n_kv_heads 2 --model.head_dim 8 "          \
    "--model.ffn_dim 40 --model.vocab_size 96 --training.seq_len 12 --training.local_batch_size 2 "                    \
    "--training.threads 1 --validation.enable false "
#define MIXTURE TINY "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 20 "
#define R(n) "--parallelism.ranks " #n " "
#define TP(n) "--parallelism.tensor_parallel_degree " #n " "
#define CP(n) "--parallelism.context_parallel_degree " #n " "
#define EP(n) "--parallelism.expert_parallel_degree " #n " "
#define PP(n) "--parallelism.pipeline_parallel_degree " #n " --training.grad_accumulation 2 "
#define COPIES(n) "--parallelism.data_parallel_replicate_degree " #n " "
#define STRATEGY "--parallelism.data_parallel_shard_strategy "

#endif
