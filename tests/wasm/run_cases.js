// SPDX-License-Identifier: MIT
// run_cases.js - calls of the package as JSON, for node (node.mjs) and for a page: [{ operation, tensors, options }], where the numbers of
// a tensor are base64.  An answer has the same form, or an error.

const ARRAYS = { f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array, bool: Uint8Array, u8: Uint8Array, i32: Int32Array,
                 i64: BigInt64Array };
const OUTPUTS = { forward: ["lse", "weights"], backward: [], jvp: ["tan_lse"], double_backward: [] };

function decode({ data, shape, dtype }) {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  return { data: new ARRAYS[dtype](bytes.buffer), shape, dtype };
}

function encode({ data, shape, dtype }) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return { data: btoa(text), shape, dtype };
}

const map = (object, f) => Object.fromEntries(Object.entries(object).map(([name, value]) => [name, f(value)]));

// Of jvp and double_backward, whose inputs o and lse are forward's.
function withForward(attn, operation, tensors, options) {
  if (operation !== "jvp" && operation !== "double_backward") return tensors;
  const inputs = Object.fromEntries(Object.entries(tensors).filter(([name]) => !/^(tan|grad)_/.test(name)));
  return { ...tensors, ...attn.attention(inputs, { ...options, outputs: ["lse"] }) };
}

export function runCases(attn, cases) {
  return cases.map(({ operation, tensors, options, outputs = [] }) => {
    try {
      const inputs = withForward(attn, operation, map(tensors, decode), options);
      const wanted = { ...options, outputs: [...OUTPUTS[operation], ...outputs] };
      return map(operation === "backward" ? attn.backward(inputs, wanted) : attn.compute(operation, inputs, wanted), encode);
    } catch (error) {
      if (error.name !== "AttnError") throw error;
      return { error: error.message, kind: error.kind };
    }
  });
}
