// SPDX-License-Identifier: MIT
// types.mts - index.d.ts, as TypeScript reads it: types.sh compiles this.
import { load, loadSync, widen, AttnError, type Attn, type Options, type Tensor } from "libattn";

const attn: Attn = await load();
const q: Tensor = { data: new Float32Array(8), shape: [2, 4] };
const options: Options = { causal: "top-left", window: [3, null], outputs: ["lse", "weights"], topk: 2 };
const { o, lse } = attn.attention({ q, k: q, v: q }, options);
const first: number | bigint = lse.data[0];
const text: string = attn.version + attn.isa + new AttnError("x").kind;
const gradients = attn.backward({ q, k: q, v: q, grad_o: q, o, lse }, { causal: true });
attn.compute("jvp", { q, k: q, v: q, o, lse, tan_q: gradients.grad_q });
const floats: Float32Array = widen(new Uint16Array(1), "bf16");
const others: Promise<Attn>[] = [load("attn.wasm"), load(new URL("file:///attn.wasm")), load(new Uint8Array(8))];
const module: Attn = loadSync(new Uint8Array(8));
// @ts-expect-error an unknown option
attn.attention({ q, k: q, v: q }, { cuasal: true });
// @ts-expect-error a word that is none of the choices
attn.attention({ q, k: q, v: q }, { normaliser: "soft" });
// @ts-expect-error values are missing
attn.attention({ q, k: q });
// @ts-expect-error gradients of o are missing
attn.backward({ q, k: q, v: q });
export { first, floats, module, others, text };
