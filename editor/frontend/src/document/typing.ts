// Types of edges: a modality, a dtype and a symbolic shape, checked like `walkgraph.graph.ports`.
import { strings } from "../strings";

export const MODALITIES = [
  "text",
  "messages",
  "tokens",
  "image",
  "pixels",
  "audio",
  "waveform",
  "video",
  "bytes",
  "codes",
  "latents",
  "embeddings",
  "features",
  "actions",
  "state",
  "scalar",
  "flag",
  "tensor",
] as const;
/** Modalities whose values are no tensors or texts: they are not stacked, joined or sliced. */
export const MEDIA: ReadonlySet<string> = new Set(["image", "audio", "video", "bytes", "messages"]);
const DTYPES = ["float", "int", "bool", "str", "bytes"] as const;
export const LOOP_INDEX = "scalar: int";

export interface PortType {
  modality: string;
  dtype: string | null;
  /** Numbers are fixed sizes, names are symbols of their owner, `...` stands for any leading sizes. */
  shape: readonly (string | number)[] | null;
  /** A list of such values. */
  many: boolean;
}

const TYPE = /^\s*(list\s+of\s+)?([a-z_]+)\s*(?::\s*([a-z]+)\s*(?:\[([^\]]*)\])?)?\s*$/;
const SIZE = /^(?:[a-z_][a-z0-9_]*|\d+|\.\.\.)$/;
const read = new Map<string, PortType | null>();

/** `latents: float[n, 64]` -> its parts; null for what is no port type. */
export function parseType(text: string): PortType | null {
  let found = read.get(text);
  if (found === undefined) {
    found = readType(text);
    read.set(text, found);
  }
  return found;
}

function readType(text: string): PortType | null {
  const [, list, modality = "", dtype = null, sizes = null] = TYPE.exec(text) ?? [];
  const many = list !== undefined;
  if (!(MODALITIES as readonly string[]).includes(modality)) return null;
  if (dtype !== null && !(DTYPES as readonly string[]).includes(dtype)) return null;
  if (sizes === null) return { modality, dtype, shape: null, many };
  const parts = sizes.trim() ? sizes.split(",").map((size) => size.trim()) : [];
  if (!parts.every((size) => SIZE.test(size))) return null;
  return { modality, dtype, shape: parts.map((size) => (/^\d+$/.test(size) ? Number(size) : size)), many };
}

/** null if a `source` value may enter a `target` port, or either type can't be known; otherwise the reason. */
export function accepts(target: string | PortType | null, source: string | PortType | null): string | null {
  const want = typeof target === "string" ? parseType(target) : target;
  const have = typeof source === "string" ? parseType(source) : source;
  if (!want || !have) return null;
  if (want.modality !== have.modality) return strings.document.doesNotFit(have.modality, want.modality);
  if (want.many !== have.many)
    return have.many ? strings.document.aListDoesNotFit : strings.document.aSingleValueDoesNotFit;
  if (want.dtype && have.dtype && want.dtype !== have.dtype)
    return strings.document.dtypeDoesNotFit(have.dtype, want.dtype);
  if (!want.shape || !have.shape || want.shape.includes("...") || have.shape.includes("...")) return null;
  if (want.shape.length !== have.shape.length)
    return strings.document.shapeHasAxesExpected(listed(have.shape), have.shape.length, want.shape.length);
  for (const [axis, size] of want.shape.entries()) {
    const given = have.shape[axis];
    if (typeof size === "number" && typeof given === "number" && size !== given)
      return strings.document.sizeDoesNotFit(given, size, listed(want.shape));
  }
  return null;
}

function listed(shape: readonly (string | number)[]): string {
  return `[${shape.map((size) => (typeof size === "number" ? size : `'${size}'`)).join(", ")}]`;
}
