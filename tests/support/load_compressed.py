"""Loads the directory that rabbit export --compressed-tensors wrote, by transformers with compressed-tensors, on a CPU.

    python load_compressed.py DIRECTORY STEPS ID…

Prints one JSON object: `weights`, the SHA-256 of each tensor of the loaded model, which is in binary32, by name; and
`tokens`, what greedy decoding gives after the ids. The model is loaded in both of transformers' ways, decompressed at
loading and before the first token; if the weights differ, the exit status is 1.
"""
import hashlib
import json
import sys

import torch
from transformers import AutoModelForCausalLM, CompressedTensorsConfig
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()


def digests(model, names):
    tensors = model.state_dict()
    return {name: hashlib.sha256(tensors[name].contiguous().numpy().tobytes()).hexdigest() for name in names}


directory, steps, *prompt = sys.argv[1:]
# Decompressed at loading. The other way adds tensors to the model, such as scales.
dense = AutoModelForCausalLM.from_pretrained(directory, quantization_config=CompressedTensorsConfig(dequantize=True))
names = list(dense.state_dict())
weights = digests(dense, names)
model = AutoModelForCausalLM.from_pretrained(directory)
ids = [int(n) for n in prompt]
with torch.no_grad():
    for _ in range(int(steps)):
        ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
if digests(model, names) != weights or {dense.dtype, model.dtype} != {torch.float32}:
    sys.exit("the weights differ between the two ways of loading")
print(json.dumps({"weights": weights, "tokens": ids[len(prompt):]}))
