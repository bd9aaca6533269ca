// A picture or sound that carries the graph that made it: an `iTXt` chunk of a PNG, a `wgph` chunk of a WAV. Pure.
import { joined } from "../../api/base64";
import { isPng, pngChunk, pngChunks, pngHead } from "./png";
import { riffChunks, withChunk } from "./wav";

const KEYWORD = "walkgraph";
const RIFF_CHUNK = "wgph";
/** A graph is far smaller; what is larger is not read. */
const MOST_BYTES = 8 * 1024 * 1024;

/** The same file with the graph in it; null for a kind of file that can't carry one. */
export function withGraph(bytes: Uint8Array, graph: unknown): Uint8Array<ArrayBuffer> | null {
  const text = new TextEncoder().encode(JSON.stringify(graph));
  if (isPng(bytes)) return pngWith(bytes, text);
  return withChunk(bytes, "WAVE", RIFF_CHUNK, text);
}

/** The graph that a file carries; null where it carries none that can be read. `mime` is what the browser says it is. */
export function graphFrom(bytes: Uint8Array, mime = ""): unknown | null {
  const text = isPng(bytes) ? pngText(bytes) : (riffText(bytes) ?? plainText(bytes, mime));
  if (text === null) return null;
  try {
    const found: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(text));
    return typeof found === "object" && found !== null && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

function plainText(bytes: Uint8Array, mime: string): Uint8Array | null {
  return mime.split(";")[0] === "application/json" && bytes.length <= MOST_BYTES ? bytes : null;
}

// ── PNG ─────────────────────────────────────────────────────────────────────────────────────────

/** Before the first `IDAT`, in place of one that is there. */
function pngWith(bytes: Uint8Array, text: Uint8Array): Uint8Array<ArrayBuffer> | null {
  const pieces: Uint8Array[] = [pngHead(bytes)];
  let put = false;
  for (const chunk of pngChunks(bytes)) {
    if (chunk.type === "iTXt" && textOf(chunk.content) !== null) continue;
    if (chunk.type === "IDAT" && !put) {
      pieces.push(itxt(text));
      put = true;
    }
    pieces.push(bytes.subarray(chunk.at, chunk.end));
  }
  return put ? joined(...pieces) : null;
}

function pngText(bytes: Uint8Array): Uint8Array | null {
  for (const chunk of pngChunks(bytes)) {
    const text = chunk.type === "iTXt" ? textOf(chunk.content) : null;
    if (text && text.length <= MOST_BYTES) return text;
  }
  return null;
}

/** keyword 0, compression flag, compression method, language 0, translated keyword 0, text. */
function textOf(content: Uint8Array): Uint8Array | null {
  const head = new TextEncoder().encode(`${KEYWORD}\0\0\0\0\0`);
  const ours = content.length >= head.length && head.every((byte, index) => content[index] === byte);
  return ours ? content.subarray(head.length) : null;
}

function itxt(text: Uint8Array): Uint8Array {
  return pngChunk("iTXt", joined(new TextEncoder().encode(`${KEYWORD}\0\0\0\0\0`), text));
}

// ── WAV ─────────────────────────────────────────────────────────────────────────────────────────

function riffText(bytes: Uint8Array): Uint8Array | null {
  const chunk = riffChunks(bytes, "WAVE")?.find((found) => found.id === RIFF_CHUNK);
  return chunk && chunk.size <= MOST_BYTES ? bytes.subarray(chunk.at, chunk.at + chunk.size) : null;
}
