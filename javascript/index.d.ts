// SPDX-License-Identifier: MIT
// libattn for JavaScript.  The formulas of every option are in include/attn/attn.h and docs/mechanisms of libattn; names are the same.

export type DType = "f32" | "f64" | "f16" | "bf16" | "bool" | "u8" | "i8" | "i32" | "i64";
export type Data = Float32Array | Float64Array | Uint16Array | Uint8Array | Int8Array | Int32Array | BigInt64Array;

/**
 * A dense tensor.  dtype is needed for a Uint16Array, which has the bits of f16 or bf16; otherwise it follows from the array.
 * A shape may have fewer than four axes: q of [tokens, channels] has one batch entry and one head, lse of [heads, tokens] one batch
 * entry.  An axis of size 1 stands for all: a mask of [1, 1, queries, keys], or of [queries, keys], is for all heads.
 */
export interface Tensor { data: Data; shape: number[]; dtype?: DType }
export interface Result<D extends Data = Float32Array | Float64Array> { data: D; shape: number[]; dtype: DType }

export interface Inputs {
  q: Tensor; k: Tensor; v: Tensor;
  mask?: Tensor; bias?: Tensor;
  lengths_q?: Tensor; lengths_kv?: Tensor; offset_q?: Tensor; ranges?: Tensor;
  block_mask?: Tensor; block_starts?: Tensor; block_index?: Tensor;
  k_scale?: Tensor; v_scale?: Tensor; scale?: Tensor; score_matrix?: Tensor; alibi_slopes?: Tensor; sink?: Tensor;
  bias_table?: Tensor; relative_keys?: Tensor; relative_values?: Tensor; relative_u?: Tensor; relative_v?: Tensor;
  dropout_given?: Tensor;
}
export interface Gradients extends Inputs { grad_o: Tensor; grad_lse?: Tensor; o?: Tensor; lse?: Tensor }

/** Options that are absent, undefined or null have their defaults: one softmax over all keys, scaled by 1/sqrt(channels). */
export interface Options {
  /** true: the last query is at the position of the last key; or where the diagonal ends. */
  causal?: boolean | "top-left" | "bottom-right";
  align?: "top-left" | "bottom-right";
  /** How many keys to both sides of its own position a query sees; null: all. */
  window?: number | [number | null, number | null];
  scale?: number;
  softcap?: number;
  temperature?: number;
  score?: "dot" | "general" | "metric" | "cosine" | "distance" | "additive";
  normaliser?: "softmax" | "softmax-one" | "sigmoid" | "relu";
  shift?: number;
  empty?: "zero" | "uniform";
  chunk?: number; dilation?: number; global_q?: number; global_kv?: number; block_q?: number; block_kv?: number; least_distance?: number;
  dropout?: number; seed?: number; after_dropout?: boolean;
  scores_stage?: "raw" | "capped" | "biased" | "weights";
  column_heads?: "each" | "group" | "all"; column_queries?: number; topk?: number;
  bias_table_kind?: "t5" | "clipped"; bias_table_max_distance?: number; bias_table_causal?: boolean;
  relative_first?: number;
  isa?: "default" | "wasm128";
  invariant?: boolean;
  /** Always rejected: WebAssembly rounds products before it adds them, other instruction sets do not. */
  reproducible?: boolean;
  /** Further outputs: "lse", "weights", "scores", "entropy", ...; of backward "grad_bias", "grad_sink", ... */
  outputs?: string[];
}

/** What libattn does not accept; `message` is one line that says why. */
export class AttnError extends Error {
  readonly kind: "argument" | "shape" | "stride" | "unsupported" | "memory" | "io";
}

export class Attn {
  private constructor();
  readonly version: string;
  /** The instruction set: "wasm128". */
  readonly isa: string;
  /** o, and the outputs that options.outputs names. */
  attention(tensors: Inputs, options?: Options): { o: Result } & Record<string, Result<any>>;
  /** grad_q, grad_k, grad_v, and what options.outputs names.  Without o and lse, forward runs first. */
  backward(tensors: Gradients, options?: Options): { grad_q: Result; grad_k: Result; grad_v: Result } & Record<string, Result<any>>;
  /** Any operation, with its tensors by name. */
  compute(operation: "forward" | "backward" | "jvp" | "double_backward", tensors: Record<string, Tensor | undefined | null>,
          options?: Options): Record<string, Result<any>>;
}

/** Loads attn.wasm: from its bytes, a Response, a WebAssembly.Module or a URL; by default from beside index.js. */
export function load(source?: BufferSource | Response | WebAssembly.Module | URL | string): Promise<Attn>;
/** The same at once, from bytes or a module; on the main thread of a page only with a module that was compiled before. */
export function loadSync(source: BufferSource | WebAssembly.Module): Attn;
/** The numbers of f16 or bf16 bits. */
export function widen(bits: Uint16Array, dtype: "f16" | "bf16"): Float32Array;
