"""Writes a GGUF of the shape of TinyLlama-1.1B, BF16, with random weights and a dummy vocabulary: python large_gguf.py OUT"""
import sys

import gguf
import numpy as np

HIDDEN, INNER, LAYERS, HEADS, GROUPS, VOCABULARY = 2048, 5632, 22, 32, 4, 32000
rng = np.random.default_rng(0)
out = gguf.GGUFWriter(sys.argv[1], "llama")
out.add_context_length(2048)
out.add_embedding_length(HIDDEN)
out.add_block_count(LAYERS)
out.add_feed_forward_length(INNER)
out.add_head_count(HEADS)
out.add_head_count_kv(GROUPS)
out.add_layer_norm_rms_eps(1e-5)
out.add_rope_freq_base(10000.0)
out.add_vocab_size(VOCABULARY)
out.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
out.add_tokenizer_model("gpt2")
out.add_tokenizer_pre("smollm")
out.add_token_list([f"t{n}" for n in range(VOCABULARY)])
out.add_token_types([1] * VOCABULARY)
out.add_token_merges(["t 0"])


def matrix(name, rows, columns):
    bits = (rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)).view(np.uint32)
    half = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    out.add_tensor(name, half.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)


matrix("token_embd.weight", VOCABULARY, HIDDEN)
for layer in range(LAYERS):
    for part, rows, columns in (
        ("attn_q", HIDDEN, HIDDEN), ("attn_k", HIDDEN // HEADS * GROUPS, HIDDEN),
        ("attn_v", HIDDEN // HEADS * GROUPS, HIDDEN), ("attn_output", HIDDEN, HIDDEN),
        ("ffn_gate", INNER, HIDDEN), ("ffn_up", INNER, HIDDEN), ("ffn_down", HIDDEN, INNER)):
        matrix(f"blk.{layer}.{part}.weight", rows, columns)
    for part in ("attn_norm", "ffn_norm"):
        out.add_tensor(f"blk.{layer}.{part}.weight", np.ones(HIDDEN, np.float32))
out.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
matrix("output.weight", VOCABULARY, HIDDEN)
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()
