// SPDX-License-Identifier: MIT
// node.mjs PACKAGE: runs the calls on its standard input (run_cases.js).
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";
import { createHash } from "node:crypto";
import { runCases } from "./run_cases.js";

const folder = resolve(process.argv[2]);
const { load, loadSync, AttnError } = await import(pathToFileURL(resolve(folder, "index.js")));
const bytes = readFileSync(resolve(folder, "attn.wasm"));
const attn = await load();
// All ways to load it; a file that is not there is an error.
const others = [await load(bytes), await load(new WebAssembly.Module(bytes)), await load(pathToFileURL(resolve(folder, "attn.wasm"))),
                await load(new Response(bytes)), loadSync(bytes)];
const missing = await load(new URL("none.wasm", pathToFileURL(folder + "/"))).then(() => "loaded", (error) => error.code);
const cases = JSON.parse(readFileSync(0));
const digest = (results) => createHash("sha256").update(JSON.stringify(results)).digest("hex");
const results = runCases(attn, cases), first = digest(results.slice(0, 8));
console.log(JSON.stringify({ version: attn.version, isa: attn.isa, missing, isError: new AttnError("x") instanceof Error,
                             same: others.every((other) => digest(runCases(other, cases.slice(0, 8))) === first), results }));
