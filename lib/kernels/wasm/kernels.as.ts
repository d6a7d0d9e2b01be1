// The WebAssembly module that `deno task kernels` builds.
export * from "./encode.as";
export * from "./matmul.as";
export * from "./layer.as";
