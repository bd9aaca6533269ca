import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { graphFrom, withGraph } from "../../src/play/files/carry";
import { crc } from "../../src/play/files/png";
import { readWav, riffChunks, writeWav } from "../../src/play/files/wav";

const SIGNATURE = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);
const GRAPH = { format: "walkgraph/graph@1", name: "fächer ☃", nodes: { llm: { component: "a" } } };

function types(png: Uint8Array): string[] {
  const found = [];
  const view = new DataView(png.buffer, png.byteOffset);
  for (let at = 8; at < png.length;) {
    const length = view.getUint32(at);
    const type = new TextDecoder().decode(png.subarray(at + 4, at + 8));
    expect(view.getUint32(at + 8 + length), `checksum of ${type}`).toBe(crc(png.subarray(at + 4, at + 8 + length)));
    found.push(type);
    at += 12 + length;
  }
  return found;
}

/** One white pixel. */
function picture(): Uint8Array {
  const chunk = (type: string, content: Uint8Array) => {
    const bytes = new Uint8Array(12 + content.length);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, content.length);
    bytes.set(new TextEncoder().encode(type), 4);
    bytes.set(content, 8);
    view.setUint32(8 + content.length, crc(bytes.subarray(4, 8 + content.length)));
    return bytes;
  };
  const head = Uint8Array.of(0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0);
  const pieces = [
    SIGNATURE,
    chunk("IHDR", head),
    chunk("IDAT", new Uint8Array(deflateSync(Uint8Array.of(0, 255)))),
    chunk("IEND", new Uint8Array()),
  ];
  return Uint8Array.from(pieces.flatMap((piece) => [...piece]));
}

describe("pictures", () => {
  it("knows the checksum of PNG's end", () => {
    expect(crc(new TextEncoder().encode("IEND"))).toBe(0xae426082);
  });

  it("carry a graph before their pixels, and give it back", () => {
    const made = withGraph(picture(), GRAPH);
    if (!made) throw new Error("a PNG can carry a graph");
    expect(types(made)).toEqual(["IHDR", "iTXt", "IDAT", "IEND"]);
    expect(graphFrom(made, "image/png")).toEqual(GRAPH);
  });

  it("carry the newest graph alone", () => {
    const once = withGraph(picture(), { name: "old" }) ?? new Uint8Array();
    const twice = withGraph(once, GRAPH) ?? new Uint8Array();
    expect(types(twice).filter((type) => type === "iTXt")).toHaveLength(1);
    expect(graphFrom(twice)).toEqual(GRAPH);
  });

  it("without a graph give none, nor do those that are cut or broken", () => {
    expect(graphFrom(picture())).toBeNull();
    const made = withGraph(picture(), GRAPH) ?? new Uint8Array();
    for (let end = 0; end < 60; end += 1) expect(graphFrom(made.subarray(0, end))).toBeNull();
    expect(withGraph(picture().subarray(0, 20), GRAPH)).toBeNull();
  });
});

describe("sounds", () => {
  it("carry a graph and sound the same", () => {
    const wav = writeWav(Float32Array.of(0, 0.5, -0.5), 24_000);
    const made = withGraph(wav, GRAPH);
    if (!made) throw new Error("a WAV can carry a graph");
    expect(riffChunks(made, "WAVE")?.map((chunk) => chunk.id)).toEqual(["fmt ", "data", "wgph"]);
    expect(new DataView(made.buffer).getUint32(4, true)).toBe(made.length - 8);
    expect(graphFrom(made, "audio/wav")).toEqual(GRAPH);
    expect(readWav(made)?.channels[0]).toEqual(readWav(wav)?.channels[0]);
    const again = withGraph(made, { name: "new" }) ?? new Uint8Array();
    expect(graphFrom(again)).toEqual({ name: "new" });
  });
});

describe("other files", () => {
  it("are read as a graph where they say that they are JSON", () => {
    const json = new TextEncoder().encode(JSON.stringify(GRAPH));
    expect(graphFrom(json, "application/json; charset=utf-8")).toEqual(GRAPH);
    expect(graphFrom(json, "text/plain")).toBeNull();
    expect(graphFrom(new TextEncoder().encode("[1]"), "application/json")).toBeNull();
    expect(graphFrom(Uint8Array.of(0xff, 0xfe), "application/json")).toBeNull();
  });

  it("that can't carry a graph stay without", () => {
    expect(withGraph(Uint8Array.of(0xff, 0xd8, 0xff), GRAPH)).toBeNull();
  });
});
