// The WebAssembly module that `deno task kernels` builds.
export * from "./encode.as";
