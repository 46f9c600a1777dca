// SPDX-License-Identifier: MIT
// index.js - libattn for node and browsers: attn.wasm (module.c), with tensors as { data, shape }.  index.d.ts is the manual.

const OPERATIONS = ["forward", "backward", "jvp", "double_backward"];
const SECOND = 3; // the last of them
const OUTPUT = 2, ALWAYS = 2; // attn_role, attn_need
const BROADCAST = -(2 ** 31); // ATTN_BROADCAST, in 32 bits (module.c)
const AXIS = { ONE: 0, BUCKET: 12, DISTANCE: 13 }; // attn_axis
const SIZES = ["batch", "heads_q", "heads_kv", "len_q", "len_kv", "dim_qk", "dim_k", "dim_v"]; // attn_axis 1 to 8
// Fields that follow from the shapes of tensors and from other options.
const DERIVED = new Set([...SIZES, "scale_kind", "window_left", "window_right", "block_entries", "dim_metric", "additive_bias",
                         "bias_table_buckets", "relative_rows"]);
const ELSEWHERE = new Set(["cu_seqlens_q", "cu_seqlens_kv", "page_table", "page_starts", "page_index", "lengths_last_page", "tree", "k_tail"]);
const STATUSES = ["", "argument", "shape", "stride", "unsupported", "memory"];

/** What libattn, or this wrapper, does not accept. */
export class AttnError extends Error {
  constructor(message, kind = "argument") {
    super(message);
    this.name = "AttnError";
    this.kind = kind;
  }
}

// The arrays of each element type; 16-bit floats are the bits in a Uint16Array, or a Float16Array where there is one.
const ARRAYS = {
  f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array, bool: Uint8Array, u8: Uint8Array, i8: Int8Array,
  i32: Int32Array, i64: BigInt64Array,
};
const TYPE_OF = new Map([[Float32Array, "f32"], [Float64Array, "f64"], [Uint8Array, "u8"], [Int8Array, "i8"], [Int32Array, "i32"],
                         [BigInt64Array, "i64"]]);
if (typeof Float16Array !== "undefined") TYPE_OF.set(Float16Array, "f16"); // eslint-disable-line no-undef

const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

async function bytesOf(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source;
  if (typeof Response !== "undefined" && source instanceof Response) return source.arrayBuffer();
  const url = new URL(source, import.meta.url);
  if (url.protocol === "file:") return (await import("node:fs/promises")).readFile(url);
  const response = await fetch(url);
  if (!response.ok) throw new AttnError(`${url}: ${response.status} ${response.statusText}`, "io");
  return response.arrayBuffer();
}

/** Loads the module: from bytes, a Response, a WebAssembly.Module, or a URL; by default from attn.wasm beside this file. */
export async function load(source = new URL("attn.wasm", import.meta.url)) {
  const module = source instanceof WebAssembly.Module ? source : await WebAssembly.compile(await bytesOf(source));
  return new Attn(await WebAssembly.instantiate(module, importsOf(module)));
}

/** The same from bytes or a WebAssembly.Module, at once.  (Pages allow this in workers only, if the module is large.) */
export function loadSync(source) {
  const module = source instanceof WebAssembly.Module ? source : new WebAssembly.Module(source);
  return new Attn(new WebAssembly.Instance(module, importsOf(module)));
}

// The C library asks for the environment, of which there is none; everything else of WASI is never needed.
function importsOf(module) {
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    imports[from] ??= {};
    imports[from][name] = name.startsWith("environ") ? () => 0 : () => 52; // ENOSYS
  }
  return imports;
}

const decoder = new TextDecoder(), encoder = new TextEncoder();

class Attn {
  #wasm;
  #slots = new Map(); // name: { index, axes, roles, needs }
  #fields = new Map(); // name: choices, or null for a number

  constructor(instance) {
    const wasm = this.#wasm = instance.exports;
    wasm._initialize();
    for (let index = 0, name; (name = this.#text(wasm.attn_js_tensor_name(index))) !== null; index++) {
      const each = (n, f) => Array.from({ length: n }, (_, i) => f(index, i));
      this.#slots.set(name, { index, axes: each(4, wasm.attn_js_tensor_axis), roles: each(OPERATIONS.length, wasm.attn_js_tensor_role),
                              needs: each(OPERATIONS.length, wasm.attn_js_tensor_need) });
    }
    for (let index = 0, name; (name = this.#text(wasm.attn_js_field_name(index))) !== null; index++)
      this.#fields.set(name, this.#text(wasm.attn_js_field_choices(index)));
    this.version = this.#text(wasm.attn_js_version());
    this.isa = this.#text(wasm.attn_js_isa());
    this.types = [];
    for (let number = 0, name; (name = this.#text(wasm.attn_js_type_name(number))) !== "unknown"; number++) this.types.push(name);
  }

  /** o, and the outputs that options.outputs names. */
  attention(tensors, options = {}) { return this.compute("forward", tensors, options); }

  /** Gradients of q, k and v, and of the inputs that options.outputs names as "grad_NAME".  Without o and lse, forward runs first. */
  backward(tensors, options = {}) {
    if (tensors.o && tensors.lse) return this.compute("backward", tensors, options);
    const { grad_o, grad_lse, o, lse, ...inputs } = tensors;
    const { outputs, ...rest } = options;
    return this.compute("backward", { ...tensors, ...this.compute("forward", inputs, { ...rest, outputs: ["lse"] }) }, options);
  }

  /** Any operation; the two above are for two of them. */
  compute(operation, tensors, options = {}) {
    const op = OPERATIONS.indexOf(operation);
    if (op < 0) throw new AttnError(`operation is '${operation}'; known: ${OPERATIONS.join(", ")}`);
    const wasm = this.#wasm, call = wasm.attn_js_create(op), blocks = [];
    if (!call) throw new AttnError("cannot allocate the memory of a call", "memory");
    try {
      return this.#run(op, call, tensors, options, (bytes) => {
        const block = wasm.attn_js_allocate(bytes);
        if (!block) throw new AttnError(`cannot allocate ${bytes} bytes`, "memory");
        blocks.push(block);
        return block;
      });
    } finally {
      for (const block of blocks) wasm.attn_js_release(block);
      wasm.attn_js_destroy(call);
    }
  }

  #run(op, call, tensors, options, allocate) {
    const wasm = this.#wasm, check = (status) => {
      if (status) throw new AttnError(inWordsOfHere(this.#text(wasm.attn_js_message())), STATUSES[status]);
    };
    const { outputs = [], ...given } = options;
    const set = (name, value) => this.#set(call, name, value, allocate, check);
    const used = Object.entries(tensors).filter(([, tensor]) => tensor !== undefined && tensor !== null);
    const slots = used.map(([name, tensor]) => this.#input(name, tensor));
    const { sizes, rank } = sizesOf(slots, given.score === "general");
    for (const [name, size] of Object.entries(sizes)) if (name !== "dim_k" || given.score === "general") set(name, size);
    for (const { name, axes, shape } of slots) {
      if (name === "bias_table") set("bias_table_buckets", shape[2]);
      if (name === "block_index") set("block_entries", product(shape));
      if (name === "score_matrix" && given.score === "metric") set("dim_metric", shape[2]);
      if (name === "score_matrix" && given.score === "additive") set("additive_bias", shape[2] > 1);
      if (axes[2] === AXIS.DISTANCE) set("relative_rows", shape[2]);
    }
    // As in Python: the last query is at the position of the last key, unless the caller says where queries are.
    if (given.align === undefined && typeof given.causal !== "string" && !tensors.offset_q) set("align", "bottom-right");
    for (const [name, value] of Object.entries(given)) {
      if (DERIVED.has(name) || !this.#fields.has(name)) throw new AttnError(`no option '${name}'; known: ${this.#known().join(", ")}`);
      if (value !== undefined && value !== null) set(name, value);
    }

    for (const slot of slots) {
      const { index, dtype, data, shape, axes, name } = slot;
      const strides = stridesOf(name, shape, axes, sizes);
      const block = allocate(data.byteLength);
      new Uint8Array(wasm.memory.buffer, block, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      wasm.attn_js_tensor(call, index, dtype, block, ...strides);
    }
    const wanted = this.#outputs(op, outputs, tensors);
    for (const { index, dtype } of wanted) wasm.attn_js_tensor(call, index, dtype, 0, 0, 0, 0, 0);
    check(wasm.attn_js_plan(call));
    for (const output of wanted) {
      const planned = (what) => wasm.attn_js_planned(call, output.index, what);
      output.dtype = planned(4);
      output.shape = [0, 1, 2, 3].map(planned);
      output.count = product(output.shape);
      output.block = allocate(planned(5));
      wasm.attn_js_tensor(call, output.index, output.dtype, output.block, 0, 0, 0, 0);
    }
    check(wasm.attn_js_run(call));
    const results = {};
    for (const output of wanted) {
      const dtype = this.types[output.dtype];
      const data = new ARRAYS[dtype](wasm.memory.buffer, output.block, output.count).slice();
      results[output.name] = { data, shape: shapeOf(output, rank), dtype };
    }
    return results;
  }

  // A tensor that the caller gave, with a shape of four axes.
  #input(name, tensor) {
    const slot = this.#slots.get(name);
    if (ELSEWHERE.has(name)) throw new AttnError(`${name}: packed sequences, pages and trees of drafts are only in the C library`, "unsupported");
    if (!slot) throw new AttnError(`no tensor '${name}'; known: ${[...this.#slots.keys()].filter((known) => !ELSEWHERE.has(known)).join(", ")}`);
    const { data, shape } = tensor;
    if (!ArrayBuffer.isView(data) || !Array.isArray(shape)) throw new AttnError(`${name} must be { data: a typed array, shape: [...] }`);
    const type = tensor.dtype ?? TYPE_OF.get(data.constructor), dtype = this.types.indexOf(type);
    if (dtype <= 0 || !ARRAYS[type] || ARRAYS[type].BYTES_PER_ELEMENT !== data.BYTES_PER_ELEMENT)
      throw new AttnError(`${name}: a ${data.constructor.name} with the type ${type}; known: ${Object.keys(ARRAYS).join(", ")}`);
    if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0))
      throw new AttnError(`${name} has the shape [${shape}]; sizes are integers from 0 on`, "shape");
    if (product(shape) !== data.length)
      throw new AttnError(`${name} has ${data.length} numbers, and the shape [${shape}] has ${product(shape)}`, "shape");
    return { name, ...slot, dtype, data, rank: shape.length, shape: fourAxes(name, shape, slot.axes) };
  }

  // The outputs of an operation: those that it always has, and those that are asked for.
  #outputs(op, names, tensors) {
    const found = [], needed = op === SECOND && !tensors.tan_o ? ["second_grad_o"] : [];
    for (const [name, slot] of this.#slots)
      if (slot.roles[op] === OUTPUT && (slot.needs[op] === ALWAYS || names.includes(name) || needed.includes(name)))
        found.push({ name, index: slot.index, dtype: name === "topk_index" ? this.types.indexOf("i32") : 0, axes: slot.axes }); // not BigInts
    for (const name of names) {
      if (found.some((output) => output.name === name)) continue;
      const known = [...this.#slots].filter(([, slot]) => slot.roles[op] === OUTPUT).map(([other]) => other);
      throw new AttnError(`outputs has '${name}'; known: ${known.join(", ")}`);
    }
    const given = found.find((output) => tensors[output.name]);
    if (given) throw new AttnError(`${given.name} is an output of ${OPERATIONS[op]}`);
    return found;
  }

  // One option, in the ways that people write it.
  #set(call, name, value, allocate, check) {
    const wasm = this.#wasm;
    if (name === "causal" && typeof value === "string") {
      this.#set(call, "align", value, allocate, check);
      value = true;
    }
    if (name === "window" && typeof value !== "boolean") {
      const [left, right] = Array.isArray(value) ? value : [value, value];
      if (Array.isArray(value) && value.length !== 2) throw new AttnError("window must be an integer or [left, right]");
      this.#set(call, "window_left", left ?? -1, allocate, check);
      this.#set(call, "window_right", right ?? -1, allocate, check);
      value = true;
    }
    if (name === "scale") this.#set(call, "scale_kind", "value", allocate, check);
    const text = (string) => {
      const bytes = encoder.encode(string + "\0"), at = allocate(bytes.length);
      new Uint8Array(wasm.memory.buffer).set(bytes, at);
      return at;
    };
    const choices = this.#fields.get(name), wants = choices ? "string" : "number";
    const plain = typeof value === "boolean" && !choices ? Number(value) : value;
    if (typeof plain !== wants) throw new AttnError(`${name} must be ${choices ? `one of ${choices.trim()}` : "a number"}`);
    check(choices ? wasm.attn_js_word(call, text(name), text(plain)) : wasm.attn_js_number(call, text(name), plain));
  }

  #known() { return [...this.#fields.keys()].filter((name) => !DERIVED.has(name)).concat("outputs").sort(); }

  #text(address) {
    if (!address) return null;
    const bytes = new Uint8Array(this.#wasm.memory.buffer);
    return decoder.decode(bytes.slice(address, bytes.indexOf(0, address)));
  }
}

// A shape of four axes: given in full; or as the axes that the tensor has ([heads, tokens] of lse); or the last ones.
function fourAxes(name, shape, axes) {
  const own = [0, 1, 2, 3].filter((axis) => axes[axis] !== AXIS.ONE), four = [1, 1, 1, 1];
  if (shape.length > 4) throw new AttnError(`${name} has the shape [${shape}]; it has at most 4 axes`, "shape");
  if (shape.length === 4) return [...shape];
  const places = shape.length <= own.length ? own.slice(own.length - shape.length) : [0, 1, 2, 3].slice(4 - shape.length);
  shape.forEach((size, i) => { four[places[i]] = size; });
  return four;
}

// A message of the library, whose names are those of structs in C.
function inWordsOfHere(message) {
  return message.replace(/\b(score|mask|outputs|options)\./g, "").replace(/\b(bias_table|relative)\./g, "$1_").replace("dropout.probability", "dropout");
}

// The sizes of the problem, from q, k and v.
function sizesOf(slots, isGeneral) {
  const [q, k, v] = ["q", "k", "v"].map((name) => slots.find((slot) => slot.name === name));
  for (const [name, slot] of [["q", q], ["k", k], ["v", v]]) if (!slot) throw new AttnError(`${name} is missing`);
  const sizes = { batch: q.shape[0], heads_q: q.shape[1], heads_kv: k.shape[1], len_q: q.shape[2], len_kv: k.shape[2], dim_qk: q.shape[3],
                  dim_k: k.shape[3], dim_v: v.shape[3] };
  if (!isGeneral && sizes.dim_k !== sizes.dim_qk)
    throw new AttnError(`q has ${sizes.dim_qk} channels, and k has ${sizes.dim_k}; they must have as many as each other`, "shape");
  return { sizes, rank: q.rank };
}

// Dense, or 0 where an axis of size 1 stands for all.  They are written out: four zeros let some tensors broadcast.
function stridesOf(name, shape, axes, sizes) {
  const strides = [0, 0, 0, 0];
  let dense = 1, broadcasts = false;
  for (let axis = 3; axis >= 0; axis--) {
    strides[axis] = dense;
    dense *= shape[axis];
    const size = axes[axis] === AXIS.ONE ? 1 : sizes[SIZES[axes[axis] - 1]];
    if (size === undefined || shape[axis] === size) continue;
    const what = SIZES[axes[axis] - 1] ?? "1";
    if (shape[axis] !== 1) throw new AttnError(`${name} has the shape [${shape}]; axis ${axis} must be ${size} (${what})`, "shape");
    strides[axis] = 0;
    broadcasts = true;
  }
  return broadcasts && !strides.some(Boolean) ? [BROADCAST, 0, 0, 0] : strides; // since four zeros mean dense
}

// The shape of an output, with as many leading axes as q has, and without those that it lacks.
function shapeOf(output, rank) {
  return output.shape.filter((_, axis) => axis >= 4 - rank && output.axes[axis] !== AXIS.ONE);
}

/** The numbers of f16 or bf16 bits as a Float32Array. */
export function widen(bits, dtype) {
  const out = new Float32Array(bits.length), words = new Uint32Array(out.buffer);
  for (let i = 0; i < bits.length; i++) {
    const h = bits[i];
    if (dtype === "bf16") {
      words[i] = h << 16;
      continue;
    }
    const exponent = (h >> 10) & 31, mantissa = h & 1023, sign = h & 0x8000 ? -1 : 1;
    out[i] = exponent === 31 ? (mantissa ? NaN : sign * Infinity) : sign * (exponent ? 2 ** (exponent - 25) * (1024 + mantissa) : 2 ** -24 * mantissa);
  }
  return out;
}
