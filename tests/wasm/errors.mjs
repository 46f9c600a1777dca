// SPDX-License-Identifier: MIT
// errors.mjs PACKAGE: what the package rejects, and the message of each; and that a call leaves no memory behind.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";

const { load, widen } = await import(pathToFileURL(resolve(process.argv[2], "index.js")));
const attn = await load();
let number = 0, failed = 0;
function result(name, good, why = "") {
  number++;
  if (!good) failed++;
  console.log(`${good ? "ok" : "not ok"} ${number} - ${name}${good ? "" : `: ${why}`}`);
}

const tensor = (shape, value = 0.5) => ({ shape, data: new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(value) });
const q = tensor([2, 3, 4]), k = tensor([2, 5, 4]), v = tensor([2, 5, 6]);
const lists = /^[a-z_, 0-9]+$/;

// What is wrong in a call of q, k and v, and the message; `...` stands for a list of names.
const cases = [
  [{ q: undefined }, {}, "argument", "q is missing"],
  [{ k: null }, {}, "argument", "k is missing"],
  [{ v: undefined }, {}, "argument", "v is missing"],
  [{ x: q }, {}, "argument", "no tensor 'x'; known: ..."],
  [{ cu_seqlens_q: q }, {}, "unsupported", "cu_seqlens_q: packed sequences, pages and trees of drafts are only in the C library"],
  [{ q: [1, 2] }, {}, "argument", "q must be { data: a typed array, shape: [...] }"],
  [{ q: { data: q.data } }, {}, "argument", "q must be { data: a typed array, shape: [...] }"],
  [{ q: { data: new Uint16Array(24), shape: [2, 3, 4] } }, {}, "argument", "q: a Uint16Array with the type undefined; known: ..."],
  [{ q: { ...q, dtype: "f16" } }, {}, "argument", "q: a Float32Array with the type f16; known: ..."],
  [{ q: { ...q, shape: [2, 3, 5] } }, {}, "shape", "q has 24 numbers, and the shape [2,3,5] has 30"],
  [{ q: { ...q, shape: [2, -3, -4] } }, {}, "shape", "q has the shape [2,-3,-4]; sizes are integers from 0 on"],
  [{ q: { ...q, shape: [1, 1, 2, 3, 4] } }, {}, "shape", "q has the shape [1,1,2,3,4]; it has at most 4 axes"],
  [{ k: tensor([2, 5, 3]) }, {}, "shape", "q has 4 channels, and k has 3; they must have as many as each other"],
  [{ v: tensor([2, 4, 6]) }, {}, "shape", "v has the shape [1,2,4,6]; axis 2 must be 5 (len_kv)"],
  [{ mask: { data: new Uint8Array(12), shape: [3, 4] } }, {}, "shape", "mask has the shape [1,1,3,4]; axis 3 must be 5 (len_kv)"],
  [{ grad_o: tensor([2, 3, 6]) }, {}, "argument", "grad_o is set; ATTN_FORWARD does not use it"],
  [{ o: tensor([2, 3, 6]) }, {}, "argument", "o is an output of forward"],
  [{}, { cuasal: true }, "argument", "no option 'cuasal'; known: ..."],
  [{}, { len_q: 3 }, "argument", "no option 'len_q'; known: ..."],
  [{}, { causal: "left" }, "argument", "align is 'left'; known: top-left bottom-right"],
  [{}, { causal: 2 }, "argument", "causal must be true or false"],
  [{}, { normaliser: 1 }, "argument", "normaliser must be one of softmax softmax-one sigmoid relu"],
  [{}, { softcap: "3" }, "argument", "softcap must be a number"],
  [{}, { softcap: -1 }, "argument", "softcap is -1; it must be above 0, and it and its reciprocal finite in the compute type (0 for none)"],
  [{}, { window: [1, 2, 3] }, "argument", "window must be an integer or [left, right]"],
  [{}, { window: 1.5 }, "argument", "window_left must be an integer within 2^53"],
  [{}, { seed: -1, dropout: 0.5 }, "argument", "seed must be an integer from 0 to 2^53"],
  [{}, { dropout: 2 }, "argument", "dropout is 2; it must be between 0 and 1"],
  [{}, { outputs: ["x"] }, "argument", "outputs has 'x'; known: ..."],
  [{}, { isa: "avx2" }, "unsupported", "this build has no kernel for f32 on avx2"],
  [{}, { reproducible: true }, "unsupported", "reproducible is set and the instruction set is wasm128; it needs avx2, avx512 or neon"],
  [{ q: tensor([1, 3, 4]), k: tensor([2, 5, 4]) }, {}, "shape", "heads_q (1) is not a multiple of heads_kv (2)"],
];
for (const [tensors, options, kind, message] of cases) {
  let found;
  try {
    attn.attention({ q, k, v, ...tensors }, options);
    found = "no error";
  } catch (error) {
    found = error.name === "AttnError" ? error : String(error);
  }
  const [start, end] = message.split("...").length === 2 && message.endsWith("...") ? [message.slice(0, -3), "..."] : [message, ""];
  const good = found.kind === kind && (end ? found.message.startsWith(start) && lists.test(found.message.slice(start.length)) : found.message === message);
  result(message, good, `${found.kind}: ${found.message ?? found}`);
}

try {
  attn.compute("sideways", { q, k, v });
} catch (error) {
  result("an unknown operation", error.message === "operation is 'sideways'; known: forward, backward, jvp, double_backward", error.message);
}

// Memory: as many calls as would fill it many times over, some of them wrong.
const large = { q: tensor([1, 4096, 64]), k: tensor([1, 4096, 64]), v: tensor([1, 4096, 64]) };
for (let i = 0; i < 2000; i++) {
  attn.attention({ ...large, q: tensor([1, 1, 64]) }, i % 2 ? { causal: true } : {});
  try {
    attn.attention({ ...large, q: tensor([1, 1, 64]) }, { softcap: -1 });
  } catch {
    // expected
  }
}
result("4000 calls with 2 MB each fit, since each frees its memory", true);

// As documented: shapes, defaults, 16 bits.
const plain = attn.attention({ q, k, v }, { causal: true, outputs: ["lse", "weights", "topk_index", "topk_weight"], topk: 2 });
result("shapes have the axes of q", JSON.stringify(Object.entries(plain).map(([name, { shape }]) => [name, ...shape]).sort()) ===
       '[["lse",2,3],["o",2,3,6],["topk_index",2,3,2],["topk_weight",2,3,2],["weights",2,3,5]]', Object.values(plain).map(({ shape }) => shape).join(" "));
result("causal: true ends at the last key", plain.weights.data[4] === 0 && plain.weights.data[14] > 0);
result("the keys of the largest weights, lowest first among equals", plain.topk_index.data.slice(0, 4).join() === "0,1,0,1", plain.topk_index.data.join());
const top = attn.attention({ q, k, v }, { causal: "top-left", outputs: ["weights"] });
result("causal: top-left begins at the first key", top.weights.data[1] === 0 && top.weights.data[0] === 1);
const half = { shape: [1, 4], data: Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7bff), dtype: "f16" };
const halves = attn.attention({ q: { ...half }, k: { ...half }, v: { ...half } });
result("f16 in, f16 out", halves.o.dtype === "f16" && halves.o.data.join() === half.data.join() && halves.o.shape.join() === "1,4", halves.o.data.join());
result("widen", widen(half.data, "f16").join() === [1, -2, 2 ** -24, 65504].join() && widen(Uint16Array.of(0x3f80, 0xc000), "bf16").join() === "1,-2");
const { o } = attn.attention({ q: { shape: [1, 4], data: new Float64Array(4) }, k: { shape: [3, 4], data: new Float64Array(12) },
                               v: { shape: [3, 1], data: Float64Array.of(1, 2, 6) } });
result("f64", o.data instanceof Float64Array && Math.abs(o.data[0] - 3) < 1e-15, o.data[0]);

// The example of the page, with its package by address.
const page = readFileSync(resolve(process.argv[2], "README.md"), "utf-8");
const lines = page.split("\n").filter((line) => line.startsWith("    ")).join("\n");
const temporary = mkdtempSync(resolve(tmpdir(), "attn-"));
const address = JSON.stringify(String(pathToFileURL(resolve(process.argv[2], "index.js"))));
writeFileSync(resolve(temporary, "example.mjs"), `${lines.replace('"libattn"', address)}\nexport { o, lse, weights };\n`);
try {
  const example = await import(pathToFileURL(resolve(temporary, "example.mjs")));
  const sum = example.weights.data.subarray(0, 512).reduce((a, b) => a + b, 0);
  result("the example of README.md", example.o.shape.join() === "8,512,64" && Math.abs(sum - 1) < 1e-5, `${example.o.shape} ${sum}`);
} finally {
  rmSync(temporary, { recursive: true });
}
console.log(`1..${number}`);
process.exitCode = failed ? 1 : 0;
