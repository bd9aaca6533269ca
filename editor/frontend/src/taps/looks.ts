// How a sample looks: figures in few letters, pixels out of bytes, bars of a histogram, where and when. Pure.
import { toBytes } from "../api/base64";
import type { SampleEvent, SamplePreview, Statistics } from "../messages/frames";
import { plural } from "../ui/words";
import { strings } from "../strings";

type Of<K extends SamplePreview["kind"]> = Extract<SamplePreview, { kind: K }>;

export interface Pixels {
  width: number;
  height: number;
  /** Four bytes a pixel. */
  rgba: Uint8ClampedArray<ArrayBuffer>;
}

/** Four figures at most of what is no whole number: `0.0123`, `−3.142`, `1.2e-7`. null: not finite, or not told. */
export function figure(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  const short = () => String(Number.isInteger(size) ? size : Number(size.toPrecision(4)));
  const text = size >= 1e7 || size < 1e-4 ? size.toExponential(2).replace(/\.?0+e/, "e") : short();
  return `${value < 0 ? "−" : ""}${text}`;
}

/** `bfloat16 [16, 64]`; of what is no tensor, its kind. */
export function typeWords({ dtype, shape }: Pick<SampleEvent, "dtype" | "shape">): string {
  if (dtype === "absent") return strings.taps.nothingWasSent;
  if (dtype === "cache") return cacheWords(shape);
  const scalar = ["text", "bytes", "number", "list"].includes(dtype) && shape.length === 0;
  return scalar ? dtype : `${dtype} [${shape.join(", ")}]`;
}

/** `120 tokens on 8 pages`. `shape`: sequences, tokens of the longest, pages. */
export function cacheWords([sequences = 0, tokens = 0, pages = 0]: readonly number[]): string {
  const several = sequences > 1 ? strings.taps.sequencesOfUp(sequences) : "";
  return strings.taps.on(several, plural(tokens, "token"), plural(pages, "page"));
}

/** `run 1a2b3c4d · step 2 · iteration 3.18 · rank 0`: counted from 1, but ranks. */
export function whereWords({ run, step, iteration, rank }: SampleEvent): string {
  const parts = [strings.taps.run(run.slice(0, 8)), strings.taps.step(step + 1)];
  if (iteration.length) parts.push(strings.taps.iteration(iteration.map((index) => index + 1).join(".")));
  return [...parts, strings.taps.rank(rank)].join(" · ");
}

/** The faults of the numbers, in words; empty if there are none. */
export function alarm({ count, nan, infinite, low, high, every }: Statistics): string {
  if (count === 0) return strings.taps.itIsEmpty;
  const bad = [nan && strings.taps.nan(nan), infinite && strings.taps.infinite(infinite)].filter(Boolean).join(", ");
  // As many as were looked at.
  const looked = Math.ceil(count / every);
  if (bad)
    return nan + infinite === looked ? strings.taps.noneOfItsNumbers(bad) : strings.taps.ofNumbers(bad, looked);
  return low === high && count > 1 ? strings.taps.allAre(figure(low)) : "";
}

/** The bins as heights from 0 to 1; roots, so that the rare ones are seen beside the many. */
export function bars(histogram: readonly number[]): number[] {
  const most = Math.max(0, ...histogram);
  return histogram.map((count) => (most === 0 ? 0 : Math.sqrt(count / most)));
}

/** The text of a bin: `0.1 to 0.2: 37`. */
export function binWords({ low, high, histogram }: Statistics, bin: number): string {
  const width = (high - low) / histogram.length;
  return strings.taps.to(figure(low + width * bin), figure(low + width * (bin + 1)), histogram[bin] ?? 0);
}

/** null where its bytes are not as many as its sides say. */
export function picturePixels({ width, height, rgb }: Of<"picture">): Pixels | null {
  const bytes = toBytes(rgb);
  if (width < 1 || height < 1 || bytes.length !== width * height * 3) return null;
  const rgba = new Uint8ClampedArray(width * height * 4);
  for (let pixel = 0; pixel < width * height; pixel += 1) {
    rgba.set(bytes.subarray(pixel * 3, pixel * 3 + 3), pixel * 4);
    rgba[pixel * 4 + 3] = 255;
  }
  return { width, height, rgba };
}

/** Dark blue over green to yellow: told apart by those who see no red, and in grey. */
const SCALE: readonly (readonly [number, number, number])[] = [
  [38, 20, 78],
  [52, 70, 140],
  [33, 125, 140],
  [70, 178, 108],
  [168, 212, 60],
  [250, 232, 50],
];

export function heatColor(share: number): [number, number, number] {
  const at = Math.max(0, Math.min(1, share)) * (SCALE.length - 1);
  const below = Math.min(SCALE.length - 2, Math.floor(at));
  const [from, to] = [SCALE[below]!, SCALE[below + 1]!];
  const mix = (channel: 0 | 1 | 2) => Math.round(from[channel] + (to[channel] - from[channel]) * (at - below));
  return [mix(0), mix(1), mix(2)];
}

export function heatPixels({ rows, columns, cells }: Of<"heat">): Pixels | null {
  const bytes = toBytes(cells);
  if (rows < 1 || columns < 1 || bytes.length !== rows * columns) return null;
  const rgba = new Uint8ClampedArray(bytes.length * 4);
  bytes.forEach((cell, index) => {
    rgba.set(heatColor(cell / 255), index * 4);
    rgba[index * 4 + 3] = 255;
  });
  return { width: columns, height: rows, rgba };
}

/** Samples in [-1, 1). */
export function soundOf({ pcm }: Of<"sound">): Float32Array<ArrayBuffer> {
  const bytes = toBytes(pcm);
  const view = new DataView(bytes.buffer);
  const samples = new Float32Array(bytes.length >> 1);
  for (let index = 0; index < samples.length; index += 1) samples[index] = view.getInt16(index * 2, true) / 32768;
  return samples;
}

/** Lowest and highest sample of each of `count` blocks, or of each sample where there are fewer. */
export function wave(samples: Float32Array, count: number): [number, number][] {
  const blocks = Math.min(count, samples.length);
  return Array.from({ length: blocks }, (_, block) => {
    const end = Math.floor(((block + 1) * samples.length) / blocks);
    let [low, high] = [1, -1];
    for (let at = Math.floor((block * samples.length) / blocks); at < end; at += 1) {
      low = Math.min(low, samples[at] ?? 0);
      high = Math.max(high, samples[at] ?? 0);
    }
    return [low, high];
  });
}

/** Rows of a preview of numbers. */
export function rowsOf({ values, columns }: Of<"numbers">): (number | null)[][] {
  const wide = Math.max(1, columns);
  return Array.from({ length: Math.ceil(values.length / wide) }, (_, row) =>
    values.slice(row * wide, (row + 1) * wide),
  );
}

const TYPES: readonly (readonly [string, readonly number[], number])[] = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47], 0],
  ["image/jpeg", [0xff, 0xd8, 0xff], 0],
  ["image/webp", [0x57, 0x45, 0x42, 0x50], 8],
  ["audio/wav", [0x57, 0x41, 0x56, 0x45], 8],
  ["video/mp4", [0x66, 0x74, 0x79, 0x70], 4],
  ["video/webm", [0x1a, 0x45, 0xdf, 0xa3], 0],
];

/** By its first bytes; null for what no browser shows. */
export function mimeOf(bytes: Uint8Array): string | null {
  return TYPES.find(([, sign, at]) => sign.every((byte, index) => bytes[at + index] === byte))?.[0] ?? null;
}
