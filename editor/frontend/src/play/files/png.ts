// The pieces that a PNG is made of, and PNGs that move (APNG). Pure.
import { joined } from "../../api/base64";

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

export interface PngChunk {
  type: string;
  /** Offset of its length field. */
  at: number;
  content: Uint8Array;
  /** Offset of the byte after its checksum. */
  end: number;
}

export function isPng(bytes: Uint8Array): boolean {
  return bytes.length > 8 && SIGNATURE.every((byte, index) => bytes[index] === byte);
}

/** The bytes before the chunks. */
export function pngHead(bytes: Uint8Array): Uint8Array {
  return bytes.subarray(0, SIGNATURE.length);
}

export function* pngChunks(bytes: Uint8Array): Generator<PngChunk> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = SIGNATURE.length;
  while (at + 12 <= bytes.length) {
    const length = view.getUint32(at);
    const end = at + 12 + length;
    if (end > bytes.length) return;
    const type = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    yield { type, at, content: bytes.subarray(at + 8, at + 8 + length), end };
    at = end;
  }
}

/** With its length and checksum. */
export function pngChunk(type: string, content: Uint8Array): Uint8Array {
  const body = joined(new TextEncoder().encode(type), content);
  const chunk = new Uint8Array(body.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, content.length);
  chunk.set(body, 4);
  view.setUint32(body.length + 4, crc(body));
  return chunk;
}

let table: Uint32Array | null = null;

/** CRC-32 as PNG has it. */
export function crc(bytes: Uint8Array): number {
  table ??= Uint32Array.from({ length: 256 }, (_, byte) => {
    let value = byte;
    for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
    return value >>> 0;
  });
  let value = 0xffffffff;
  for (const byte of bytes) value = (table[(value ^ byte) & 0xff] ?? 0) ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

// ── one that moves ──────────────────────────────────────────────────────────────────────────────

/** Each picture's ms. */
export type Stays = (index: number) => number;

/** One PNG that shows these over and over; null unless they are PNGs of one size and kind, without palettes. */
export function movingPng(pictures: readonly Uint8Array[], stays: Stays): Uint8Array<ArrayBuffer> | null {
  const all = pictures.map((bytes) => (isPng(bytes) ? [...pngChunks(bytes)] : []));
  const heads = all.map((chunks) => chunks.find((chunk) => chunk.type === "IHDR")?.content);
  const [first] = heads;
  const alike = heads.every((head) => head && first && head.join() === first.join());
  if (!first || !alike || all.flat().some(({ type }) => type === "PLTE" || type === "tRNS")) return null;
  const pieces = [Uint8Array.from(SIGNATURE), pngChunk("IHDR", first), pngChunk("acTL", words32(pictures.length, 0))];
  let sequence = 0;
  all.forEach((chunks, index) => {
    pieces.push(pngChunk("fcTL", control(sequence++, first, stays(index))));
    for (const { type, content } of chunks) {
      if (type !== "IDAT") continue;
      pieces.push(index === 0 ? pngChunk("IDAT", content) : pngChunk("fdAT", joined(words32(sequence++), content)));
    }
  });
  return joined(...pieces, pngChunk("IEND", new Uint8Array()));
}

/** Sequence, width and height of the header, offsets 0 and 0, ms as a fraction; leave what was, draw over it. */
function control(sequence: number, head: Uint8Array, ms: number): Uint8Array {
  const delay = Uint8Array.of(Math.round(ms) >> 8, Math.round(ms) & 0xff, 1000 >> 8, 1000 & 0xff);
  return joined(words32(sequence), head.subarray(0, 8), words32(0, 0), delay, Uint8Array.of(0, 0));
}

function words32(...values: number[]): Uint8Array {
  const bytes = new Uint8Array(values.length * 4);
  values.forEach((value, index) => new DataView(bytes.buffer).setUint32(index * 4, value));
  return bytes;
}
