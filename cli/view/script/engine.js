/* SPDX-License-Identifier: MIT
 *
 * engine.js - who computes changed heads: the library in a worker; where a frame or a policy forbids workers, the library in the page; where
 * WebAssembly is forbidden, changed.js.
 */
const ENGINE = { cells: 1 << 19, products: 1 << 22, rows: 256, patience: 5000 }; /* of a block: weights, or products in JavaScript; rows, a tile's; milliseconds */

const engine = { name: null, why: '', solve: null, started: false, rows: () => ENGINE.rows };

/* The weights of some rows, by the library.  It is in the source of the worker too, and uses nothing of the page, like makeSolver. */
function libraryRows(attn, job, from, to) {
  const { q, k, dim, lenK, position, kept, sink, slope, scale, rule } = job, number = (x) => ({ data: Float32Array.of(x), shape: [1] });
  const tensors = { q: { data: q.subarray(from * dim, to * dim), shape: [to - from, dim] }, k: { data: k, shape: [lenK, dim] }, v: { data: new Float32Array(0), shape: [lenK, 0] },
                    offset_q: { data: BigInt64Array.of(BigInt(position + from)), shape: [1] } };
  if (kept) tensors.mask = { data: kept, dtype: 'bool', shape: [1, lenK] };
  if (slope) tensors.alibi_slopes = number(slope);
  if (sink !== null) tensors.sink = number(sink);
  const options = { scale, causal: rule.causal, outputs: ['weights'] }, all = (n) => (n < 0 ? null : n);
  if (rule.left >= 0 || rule.right >= 0) options.window = [all(rule.left), all(rule.right)];
  for (const [name, value] of [['softcap', rule.softcap], ['chunk', rule.chunk], ['dilation', rule.dilation], ['global_q', rule.globalQ], ['global_kv', rule.globalK],
                               ['least_distance', rule.least]]) if (value > 0) options[name] = value;
  return attn.attention(tensors, options).weights.data;
}

/* A function that answers a job block by block, until it gets a newer one; rows computes a block. */
function makeSolver(rows, post) {
  let latest = null;
  const turn = () => new Promise((done) => { setTimeout(done); });
  return async (job) => {
    latest = job;
    await turn(); /* jobs that wait already are newer */
    for (const [from, to] of job.blocks) {
      if (latest !== job) return;
      const start = performance.now(), answer = { number: job.number, from, to };
      try { answer.weights = rows(job, from, to); } catch (error) { answer.error = String(error.message); }
      post({ ...answer, time: performance.now() - start });
      await turn();
    }
  };
}

/* What a job needs of a changed head, in a form that can be sent. */
function sendable({ q, k, dim, lenK, kept, whole, sink, slope, scale, rule }) {
  const { softcap, causal, left, right, chunk, dilation, globalQ, globalK, least, position } = rule;
  return { q, k, dim, lenK, position, kept: whole ? null : kept, sink, slope, scale, rule: { softcap, causal: Boolean(causal), left, right, chunk, dilation, globalQ, globalK, least } };
}

/* ---- starting ---- */

/* The library as a plain script, since from a file a worker may not be a module: it exports nothing, and has no address. */
const libraryText = () => new TextDecoder().decode(payload('attn-library')).replace(/^export /gm, '').replaceAll('import.meta.url', "''");
const within = (milliseconds, promise) => Promise.race([promise, new Promise((_, fail) => { setTimeout(() => fail(new Error('no answer')), milliseconds); })]);

/* Bytes of the page, without those that fill the last group of base64. */
function payload(id) { return bytesOf(id).subarray(0, Number(byId(id).dataset.bytes)); }

async function unzipped(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
}

function libraryInWorker(wasm, post) {
  const source = `${libraryText()}
${libraryRows}
${makeSolver}
let solve = null;
onmessage = async ({ data }) => {
  if (solve) return solve(data);
  try {
    const attn = await load(data);
    solve = makeSolver((job, from, to) => libraryRows(attn, job, from, to), (answer) => postMessage(answer, answer.weights ? [answer.weights.buffer] : []));
    postMessage({ version: attn.version, isa: attn.isa });
  } catch (error) { postMessage({ error: String(error.message) }); }
};`;
  const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  let worker = null;
  return within(ENGINE.patience, new Promise((done, fail) => {
    worker = new Worker(url);
    worker.onerror = (event) => { event.preventDefault(); fail(new Error('no worker')); };
    worker.onmessage = ({ data }) => {
      if (data.error) return fail(new Error(data.error));
      worker.onmessage = (event) => post(event.data);
      return done({ ...data, solve: (job) => worker.postMessage({ ...sendable(job.changed), number: job.number, blocks: job.blocks }) });
    };
    worker.postMessage(wasm);
  })).catch((error) => { worker?.terminate(); throw error; }).finally(() => URL.revokeObjectURL(url));
}

/* A script of the page hands `load` over in an event. */
async function libraryHere(wasm, post) {
  const script = el('script', { nonce: 'attn' }, `(() => { ${libraryText()}\ndocument.dispatchEvent(new CustomEvent('attn-library', { detail: load })); })();`);
  let load = null;
  document.addEventListener('attn-library', ({ detail }) => { load = detail; }, { once: true });
  document.head.append(script);
  script.remove();
  const attn = await load(wasm);
  return { version: attn.version, isa: attn.isa, solve: makeSolver((job, from, to) => libraryRows(attn, sendable(job.changed), from, to), post) };
}

/* Chooses, once; engine.name then says what runs. */
async function startEngine(post) {
  if (engine.started) return;
  engine.started = true;
  const blockOf = (count, room) => Math.max(1, Math.floor(room / count));
  try {
    const wasm = await unzipped(payload('attn-wasm'));
    if (!WebAssembly.validate(wasm)) throw new Error('no SIMD');
    const found = await libraryInWorker(wasm, post).catch(async () => {
      engine.why = 'in the page, since this frame does not allow workers';
      return libraryHere(wasm, post);
    });
    Object.assign(engine, { name: `libattn ${found.version} (${found.isa})`, solve: found.solve,
                            rows: ({ lenK }) => Math.max(1, Math.floor(blockOf(lenK, ENGINE.cells) / ENGINE.rows)) * ENGINE.rows });
  } catch {
    Object.assign(engine, { name: 'JavaScript', why: 'this browser or frame does not allow WebAssembly', solve: makeSolver(({ changed }, from, to) => changed.rows(from, to), post),
                            rows: ({ lenK, rule }) => Math.min(ENGINE.rows, blockOf(lenK * rule.dim, ENGINE.products)) });
  }
}
