// SPDX-License-Identifier: MIT
// wasi.mjs PROGRAM.wasm ARGUMENT...: runs a program of wasi-libc in node.  Only what ours call is there: arguments, the environment,
// the clock and output.  (node:wasi is experimental, and node 20 aborts when the memory of a program has grown.)
import { readFileSync, writeSync } from "node:fs";

const [, , path, ...given] = process.argv;
const BAD_DESCRIPTOR = 8, NOT_HERE = 52;
class Exit { constructor(status) { this.status = status; } }
let memory;

// The strings as wasi has them: addresses at `list`, bytes from `text` on.
function put(strings, list, text) {
  for (const s of strings) {
    const bytes = Buffer.from(s + "\0");
    new DataView(memory.buffer).setUint32(list, text, true);
    new Uint8Array(memory.buffer).set(bytes, text);
    list += 4;
    text += bytes.length;
  }
  return 0;
}

function putSizes(strings, count, bytes) {
  const view = new DataView(memory.buffer);
  view.setUint32(count, strings.length, true);
  view.setUint32(bytes, strings.reduce((sum, s) => sum + Buffer.byteLength(s) + 1, 0), true);
  return 0;
}

const args = [path, ...given], environment = Object.entries(process.env).map(([name, value]) => `${name}=${value}`);
const calls = {
  args_sizes_get: (count, bytes) => putSizes(args, count, bytes),
  args_get: (list, text) => put(args, list, text),
  environ_sizes_get: (count, bytes) => putSizes(environment, count, bytes),
  environ_get: (list, text) => put(environment, list, text),
  clock_time_get(clock, precision, to) {
    new DataView(memory.buffer).setBigUint64(to, process.hrtime.bigint(), true);
    return 0;
  },
  fd_fdstat_get: (descriptor, to) => {
    if (descriptor > 2) return BAD_DESCRIPTOR;
    new Uint8Array(memory.buffer).fill(0, to, to + 24); // not a terminal
    return 0;
  },
  fd_write(descriptor, vectors, count, to) {
    const view = new DataView(memory.buffer);
    let written = 0;
    for (let i = 0; i < count; i++) {
      const at = view.getUint32(vectors + 8 * i, true), bytes = view.getUint32(vectors + 8 * i + 4, true);
      for (let done = 0; done < bytes;) done += writeSync(descriptor, new Uint8Array(memory.buffer, at + done, bytes - done));
      written += bytes;
    }
    view.setUint32(to, written, true);
    return 0;
  },
  proc_exit(status) { throw new Exit(status); },
};

const module = new WebAssembly.Module(readFileSync(path));
const imports = Object.fromEntries(WebAssembly.Module.imports(module).map(({ name }) => [name, calls[name] ?? (() => NOT_HERE)]));
const instance = new WebAssembly.Instance(module, { wasi_snapshot_preview1: imports });
memory = instance.exports.memory;
try {
  instance.exports._start();
} catch (end) {
  if (!(end instanceof Exit)) throw end;
  process.exitCode = end.status;
}
