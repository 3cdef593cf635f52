// @ts-check
// Calls the functions of one module for a test: reads requests from standard input, one a line, and
// writes an answer to each (tests/javascript.py).

/** @type {Record<string, any>} */
const KINDS = {
  Float32Array,
  Float64Array,
  Uint8Array,
  Uint16Array,
  Uint32Array,
  Int32Array,
};

/** @param {string} _ @param {any} value */
function write(_, value) {
  if (!ArrayBuffer.isView(value)) return value;
  const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return { typed: value.constructor.name, base64: bytes.toBase64() };
}

/** @param {string} _ @param {any} value */
function read(_, value) {
  if (!value || typeof value.typed !== "string") return value;
  return new KINDS[value.typed](Uint8Array.fromBase64(value.base64).buffer);
}

const module = await import(Deno.args[0]);
const encoder = new TextEncoder();
let rest = "";
for await (const part of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = part.split("\n");
  lines[0] = rest + lines[0];
  rest = lines.pop() ?? "";
  for (const line of lines) {
    let answer;
    try {
      const request = JSON.parse(line, read);
      answer = { result: await module[request.function](...request.arguments) };
    } catch (error) {
      answer = { error: error instanceof Error ? error.message : String(error) };
    }
    const bytes = encoder.encode(JSON.stringify(answer, write) + "\n");
    for (let sent = 0; sent < bytes.length;) sent += await Deno.stdout.write(bytes.subarray(sent));
  }
}
