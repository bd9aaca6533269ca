// WAV files: the chunks of a RIFF container, PCM samples out of one, and 16-bit files out of samples. Pure.
import { joined } from "../../api/base64";

export interface Chunk {
  id: string;
  /** Offset of the first byte of its content. */
  at: number;
  size: number;
}

export interface Sound {
  rate: number;
  /** One array a channel, in [-1, 1]. */
  channels: Float32Array<ArrayBuffer>[];
}

const PCM = 1;
const FLOAT = 3;
const EXTENSIBLE = 0xfffe;

/** The chunks of a RIFF file of the given form (`WAVE`); null for what is none. A cut last chunk ends with the file. */
export function riffChunks(bytes: Uint8Array, form: string): Chunk[] | null {
  if (bytes.length < 12 || name(bytes, 0) !== "RIFF" || name(bytes, 8) !== form) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const chunks: Chunk[] = [];
  let at = 12;
  while (at + 8 <= bytes.length) {
    const told = view.getUint32(at + 4, true);
    const size = Math.min(told, bytes.length - at - 8);
    chunks.push({ id: name(bytes, at), at: at + 8, size });
    at += 8 + told + (told % 2);
  }
  return chunks;
}

/** The samples; null for what is no WAV, or none of PCM with 8, 16, 24 or 32 bits or 32-bit floats. */
export function readWav(bytes: Uint8Array): Sound | null {
  const chunks = riffChunks(bytes, "WAVE");
  const format = chunks?.find((chunk) => chunk.id === "fmt ");
  const data = chunks?.find((chunk) => chunk.id === "data");
  if (!format || !data || format.size < 16) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let kind = view.getUint16(format.at, true);
  if (kind === EXTENSIBLE && format.size >= 26) kind = view.getUint16(format.at + 24, true);
  const count = view.getUint16(format.at + 2, true);
  const rate = view.getUint32(format.at + 4, true);
  const bits = view.getUint16(format.at + 14, true);
  const read = reader(view, kind, bits);
  if (!read || count < 1 || rate < 1) return null;
  const width = (bits / 8) * count;
  const length = Math.floor(data.size / width);
  const channels = Array.from({ length: count }, (_, channel) => {
    const samples = new Float32Array(length);
    for (let index = 0; index < length; index += 1)
      samples[index] = read(data.at + index * width + channel * (bits / 8));
    return samples;
  });
  return { rate, channels };
}

function reader(view: DataView, kind: number, bits: number): ((at: number) => number) | null {
  if (kind === FLOAT && bits === 32) return (at) => view.getFloat32(at, true);
  if (kind !== PCM) return null;
  if (bits === 8) return (at) => (view.getUint8(at) - 128) / 128;
  if (bits === 16) return (at) => view.getInt16(at, true) / 32768;
  if (bits === 24) return (at) => ((view.getInt8(at + 2) << 16) | view.getUint16(at, true)) / 8388608;
  return bits === 32 ? (at) => view.getInt32(at, true) / 2147483648 : null;
}

/** One channel as 16-bit PCM. */
export function writeWav(samples: Float32Array, rate: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(44 + samples.length * 2);
  const view = new DataView(bytes.buffer);
  put(bytes, 0, "RIFF");
  view.setUint32(4, bytes.length - 8, true);
  put(bytes, 8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, PCM, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  put(bytes, 36, "data");
  view.setUint32(40, samples.length * 2, true);
  samples.forEach((sample, index) => {
    const clamped = Math.max(-1, Math.min(1, sample));
    view.setInt16(44 + index * 2, Math.round(clamped * 32767), true);
  });
  return bytes;
}

/** Pieces of one sound, one after the other, as one channel; those of another rate are left out. */
export function concatenated(sounds: readonly Sound[]): { rate: number; samples: Float32Array<ArrayBuffer> } | null {
  const rate = sounds[0]?.rate;
  if (rate === undefined) return null;
  const mono = sounds.filter((sound) => sound.rate === rate).map(mixed);
  const samples = new Float32Array(mono.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of mono) {
    samples.set(piece, at);
    at += piece.length;
  }
  return { rate, samples };
}

export function mixed(sound: Sound): Float32Array<ArrayBuffer> {
  const [first, ...rest] = sound.channels;
  if (!first) return new Float32Array(0);
  if (rest.length === 0) return first;
  return first.map(
    (sample, index) => rest.reduce((sum, other) => sum + (other[index] ?? 0), sample) / sound.channels.length,
  );
}

/** Largest size of the samples in each of `count` blocks, in [0, 1]. */
export function peaks(samples: Float32Array, count: number): number[] {
  return Array.from({ length: count }, (_, block) => {
    const end = Math.floor(((block + 1) * samples.length) / count);
    let most = 0;
    for (let at = Math.floor((block * samples.length) / count); at < end; at += 1) {
      const size = Math.abs(samples[at] ?? 0);
      if (size > most) most = size;
    }
    return Math.min(most, 1);
  });
}

/** A RIFF file with one more chunk at its end, in place of those of the same name. */
export function withChunk(
  bytes: Uint8Array,
  form: string,
  id: string,
  content: Uint8Array,
): Uint8Array<ArrayBuffer> | null {
  const chunks = riffChunks(bytes, form);
  if (!chunks) return null;
  const kept = chunks
    .filter((chunk) => chunk.id !== id)
    .flatMap((chunk) => piece(chunk.id, bytes.subarray(chunk.at, chunk.at + chunk.size)));
  const body = joined(...kept, ...piece(id, content));
  const head = new Uint8Array(12);
  put(head, 0, "RIFF");
  new DataView(head.buffer).setUint32(4, body.length + 4, true);
  put(head, 8, form);
  return joined(head, body);
}

function piece(id: string, content: Uint8Array): Uint8Array[] {
  const head = new Uint8Array(8);
  put(head, 0, id);
  new DataView(head.buffer).setUint32(4, content.length, true);
  return [head, content, new Uint8Array(content.length % 2)];
}

function name(bytes: Uint8Array, at: number): string {
  return String.fromCharCode(...bytes.subarray(at, at + 4));
}

function put(bytes: Uint8Array, at: number, text: string): void {
  for (let index = 0; index < text.length; index += 1) bytes[at + index] = text.charCodeAt(index);
}
