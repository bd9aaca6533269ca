// Numbers that a person types or pastes, and tensors that come out. Pure.
import { toBytes } from "../../api/base64";
import type { ValueShown } from "../../messages/answers";
import { strings } from "../../strings";

const MOST = 100_000;

export type Numbers = { ok: true; value: unknown[]; shape: number[] } | { ok: false; message: string };

/** JSON (nested lists of one shape), or lines of numbers with spaces or commas between: one line a row. */
export function parseNumbers(text: string): Numbers {
  const trimmed = text.trim();
  if (trimmed === "") return { ok: false, message: strings.play.typeNumbers0102 };
  let value: unknown;
  if (trimmed.startsWith("[")) {
    try {
      value = JSON.parse(trimmed);
    } catch {
      return { ok: false, message: strings.play.thisIsNotAJsonList };
    }
  } else {
    const rows = trimmed.split("\n").map((line) =>
      line
        .trim()
        .split(/[\s,;]+/)
        .filter(Boolean)
        .map(Number),
    );
    const kept = rows.filter((row) => row.length > 0);
    value = kept.length === 1 ? kept[0] : kept;
  }
  const shape = shapeOf(value);
  if (!shape) return { ok: false, message: strings.play.theseMustBeNumbersAll };
  const count = shape.reduce((product, side) => product * side, 1);
  if (count === 0) return { ok: false, message: strings.play.typeAtLeastOneNumber };
  if (count > MOST) return { ok: false, message: strings.play.atMostNumbersCan(MOST) };
  return { ok: true, value: value as unknown[], shape };
}

function shapeOf(value: unknown): number[] | null {
  if (!Array.isArray(value)) return null;
  if (value.every((entry) => typeof entry === "number" && Number.isFinite(entry))) return [value.length];
  const [first, ...rest] = value.map(shapeOf);
  if (!first || rest.some((shape) => !shape || shape.join() !== first.join())) return null;
  return [value.length, ...first];
}

/** `[4, 7]` -> `4 × 7 numbers`. */
export function shapeWords(shape: readonly number[]): string {
  return shape.length === 1 && shape[0] === 1 ? "1 number" : strings.play.numbers(shape.join(" × "));
}

export interface Tensor {
  values: Float32Array;
  shape: number[];
}

/** The numbers of an output value; null for what has none. Holes (no finite number) are NaN. */
export function tensorOf(value: ValueShown): Tensor | null {
  const shape = Array.isArray(value["shape"]) ? (value["shape"] as number[]) : null;
  if (!shape) return null;
  if (typeof value["base64"] === "string") {
    const values = decode(value["base64"], String(value["dtype"]));
    return values && { values, shape };
  }
  const data = (value as { data?: unknown }).data;
  if (!Array.isArray(data)) return typeof data === "number" ? { values: Float32Array.of(data), shape: [1] } : null;
  const flat = (data as unknown[]).flat(8) as (number | boolean | null)[];
  return { values: Float32Array.from(flat, (number) => (number === null ? Number.NaN : Number(number))), shape };
}

/** More than that is a picture of its own, not a point of a row. */
const POINT = 32;

/** True if a value has few numbers, so that many of them fit into a row. */
export function isPoint({ shape }: ValueShown): boolean {
  return Array.isArray(shape) && (shape as number[]).reduce((product, side) => product * side, 1) <= POINT;
}

/** Values of one shape that came one after another, as rows of one tensor; null for one alone, and for others. */
export function rowOf(values: readonly ValueShown[]): Tensor | null {
  if (values.length < 2 || !values.every(isPoint)) return null;
  const tensors = values.map(tensorOf);
  const size = tensors[0]?.values.length ?? 0;
  if (size === 0 || tensors.some((tensor) => tensor?.values.length !== size)) return null;
  const all = new Float32Array(values.length * size);
  tensors.forEach((tensor, row) => tensor && all.set(tensor.values, row * size));
  return { values: all, shape: [values.length, size] };
}

function decode(text: string, dtype: string): Float32Array | null {
  const bytes = toBytes(text);
  const view = new DataView(bytes.buffer);
  const read = (size: number, at: (offset: number) => number) =>
    Float32Array.from({ length: Math.floor(bytes.length / size) }, (_, index) => at(index * size));
  switch (dtype) {
    case "float32":
      return read(4, (offset) => view.getFloat32(offset, true));
    case "float64":
      return read(8, (offset) => view.getFloat64(offset, true));
    case "float16":
      return read(2, (offset) => half(view.getUint16(offset, true)));
    case "bfloat16":
      return read(2, (offset) => brain(view.getUint16(offset, true)));
    case "int64":
      return read(8, (offset) => Number(view.getBigInt64(offset, true)));
    case "int32":
      return read(4, (offset) => view.getInt32(offset, true));
    case "uint8":
    case "bool":
      return read(1, (offset) => view.getUint8(offset));
    default:
      return null;
  }
}

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const scratch = new DataView(new ArrayBuffer(4));

function brain(bits: number): number {
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

/** A tensor as rows and columns: leading sides of 1 fall away, the last side are the columns. */
export function matrixOf({ values, shape }: Tensor): { values: Float32Array; rows: number; columns: number } {
  const sides = shape.filter((side, index) => side !== 1 || index === shape.length - 1);
  const columns = sides.length > 1 ? (sides.at(-1) ?? 1) : 1;
  return { values, rows: columns > 0 ? values.length / columns : 0, columns };
}

/** An SVG path of one column in a box of `width` by `height`, its values between `low` and `high`. */
export function curve(
  matrix: { values: Float32Array; rows: number; columns: number },
  column: number,
  box: { width: number; height: number; low: number; high: number },
): string {
  const { values, rows, columns } = matrix;
  const across = rows > 1 ? box.width / (rows - 1) : 0;
  const span = box.high - box.low || 1;
  let path = "";
  let pen = "M";
  for (let row = 0; row < rows; row += 1) {
    const value = values[row * columns + column] ?? Number.NaN;
    if (!Number.isFinite(value)) {
      pen = "M";
      continue;
    }
    const y = box.height - ((value - box.low) / span) * box.height;
    path += `${pen}${(row * across).toFixed(2)} ${y.toFixed(2)}`;
    pen = "L";
  }
  return path;
}

/** Least and largest finite number; 0 and 0 where there is none. */
export function bounds(values: Float32Array): [number, number] {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high && value !== Number.POSITIVE_INFINITY) high = value;
  }
  return low <= high ? [low, high] : [0, 0];
}

/** Means of `most` or fewer blocks a side, so that a large matrix fits a small picture. */
export function shrunk(matrix: { values: Float32Array; rows: number; columns: number }, most: number) {
  const rows = Math.min(matrix.rows, most);
  const columns = Math.min(matrix.columns, most);
  if (rows === matrix.rows && columns === matrix.columns) return matrix;
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      values[row * columns + column] = mean(
        matrix,
        span(row, rows, matrix.rows),
        span(column, columns, matrix.columns),
      );
    }
  }
  return { values, rows, columns };
}

function span(index: number, of: number, all: number): [number, number] {
  return [Math.floor((index * all) / of), Math.floor(((index + 1) * all) / of)];
}

function mean(
  matrix: { values: Float32Array; columns: number },
  [top, bottom]: [number, number],
  [left, right]: [number, number],
): number {
  let sum = 0;
  for (let row = top; row < bottom; row += 1)
    for (let column = left; column < right; column += 1) sum += matrix.values[row * matrix.columns + column] ?? 0;
  return sum / ((bottom - top) * (right - left));
}
