import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { movingPng, pngChunk, pngChunks, pngHead } from "../../src/play/files/png";

const SIGNATURE = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);

/** A PNG of 1 by `height` grey pixels, with its pixels in two pieces. */
function picture(grey: number, height = 1, ...more: Uint8Array[]): Uint8Array {
  const pixels = new Uint8Array(deflateSync(Uint8Array.from({ length: 2 * height }, (_, at) => (at % 2 ? grey : 0))));
  const pieces = [
    SIGNATURE,
    pngChunk("IHDR", Uint8Array.of(0, 0, 0, 1, 0, 0, 0, height, 8, 0, 0, 0, 0)),
    ...more,
    pngChunk("IDAT", pixels.subarray(0, 4)),
    pngChunk("IDAT", pixels.subarray(4)),
    pngChunk("IEND", new Uint8Array()),
  ];
  return Uint8Array.from(pieces.flatMap((piece) => [...piece]));
}

const pixelsOf = (bytes: Uint8Array): string =>
  [...pngChunks(bytes)].flatMap(({ type, content }) => (type === "IDAT" ? [...content] : [])).join();

function moved(...pictures: Uint8Array[]): Uint8Array {
  const bytes = movingPng(pictures, (index) => (index === 1 ? 1200 : 90));
  if (!bytes) throw new Error("these can move");
  return bytes;
}

describe("a PNG that moves", () => {
  it("has its pictures' pixels, each after how long it stays, numbered through", () => {
    const bytes = moved(picture(10), picture(20));
    const chunks = [...pngChunks(bytes)];
    const names = ["IHDR", "acTL", "fcTL", "IDAT", "IDAT", "fcTL", "fdAT", "fdAT", "IEND"];
    expect(chunks.map(({ type }) => type)).toEqual(names);
    expect(pngHead(bytes)).toEqual(SIGNATURE);
    const numbered = chunks.filter(({ type }) => type === "fcTL" || type === "fdAT");
    expect(numbered.map(({ content }) => new DataView(content.buffer, content.byteOffset).getUint32(0))).toEqual([
      0, 1, 2, 3,
    ]);
    const stays = chunks.filter(({ type }) => type === "fcTL").map(({ content }) => [...content.subarray(20, 24)]);
    expect(stays).toEqual([
      [0, 90, 3, 232],
      [4, 176, 3, 232],
    ]);
    const second = chunks.flatMap(({ type, content }) => (type === "fdAT" ? [...content.subarray(4)] : []));
    expect(second.join()).toBe(pixelsOf(picture(20)));
    expect(pixelsOf(bytes)).toBe(pixelsOf(picture(10)));
  });

  it("is made of nothing but PNGs of one size, without palettes", () => {
    const stays = () => 90;
    expect(movingPng([picture(1), picture(1, 2)], stays)).toBeNull();
    expect(movingPng([picture(1), new Uint8Array(30)], stays)).toBeNull();
    expect(movingPng([picture(1, 1, pngChunk("PLTE", Uint8Array.of(1, 2, 3)))], stays)).toBeNull();
    expect(movingPng([], stays)).toBeNull();
  });
});
