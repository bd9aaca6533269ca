import { describe, expect, it } from "vitest";
import { toBase64 } from "../../src/api/base64";
import type { SampleEvent, Statistics } from "../../src/messages/frames";
import {
  alarm,
  bars,
  binWords,
  figure,
  heatColor,
  heatPixels,
  mimeOf,
  picturePixels,
  rowsOf,
  soundOf,
  typeWords,
  wave,
  whereWords,
} from "../../src/taps/looks";

const statistics = (fields: Partial<Statistics> = {}): Statistics => ({
  count: 8,
  nan: 0,
  infinite: 0,
  low: -1,
  high: 1,
  mean: 0,
  std: 0.5,
  histogram: [1, 4, 0, 3],
  every: 1,
  ...fields,
});

describe("words", () => {
  it("of figures are short, but whole where they are whole: tokens have numbers", () => {
    const shown = [0, 3.14159, -0.012345, 151643, 12345678, 1.2e-7, null, Infinity].map(figure);
    expect(shown).toEqual(["0", "3.142", "−0.01235", "151643", "1.23e+7", "1.2e-7", "–", "–"]);
  });

  it("say what it is and where, counted from one", () => {
    expect(typeWords({ dtype: "bfloat16", shape: [16, 4] })).toBe("bfloat16 [16, 4]");
    expect(typeWords({ dtype: "float32", shape: [] })).toBe("float32 []");
    expect([typeWords({ dtype: "text", shape: [] }), typeWords({ dtype: "absent", shape: [] })]).toEqual([
      "text",
      "nothing was sent",
    ]);
    const sample = { run: "0123456789", step: 1, iteration: [2, 17], rank: 0 } as SampleEvent;
    expect(whereWords(sample)).toBe("run 01234567 · step 2 · iteration 3.18 · rank 0");
    expect(whereWords({ ...sample, iteration: [] })).toBe("run 01234567 · step 2 · rank 0");
  });

  it("warn of what is not finite, empty or all alike", () => {
    expect(alarm(statistics())).toBe("");
    expect(alarm(statistics({ nan: 2, infinite: 1 }))).toBe("2 NaN, 1 infinite of 8 numbers.");
    expect(alarm(statistics({ nan: 8 }))).toBe("None of its numbers is finite: 8 NaN.");
    expect(alarm(statistics({ low: 0, high: 0 }))).toBe("All are 0.");
    expect(alarm(statistics({ count: 0 }))).toBe("It is empty.");
    expect(alarm(statistics({ count: 1, low: 3, high: 3 }))).toBe("");
  });
});

describe("histograms", () => {
  it("are as high as the fullest bin, and say what a bin holds", () => {
    expect(bars([1, 4, 0, 3])).toEqual([0.5, 1, 0, Math.sqrt(3) / 2]);
    expect(bars([0, 0])).toEqual([0, 0]);
    expect(bars([])).toEqual([]);
    expect(binWords(statistics(), 1)).toBe("−0.5 to 0: 4");
  });
});

describe("pixels", () => {
  it("of pictures are opaque, and none where the bytes don't fit the sides", () => {
    const rgb = toBase64(new Uint8Array([1, 2, 3, 4, 5, 6]));
    expect([...picturePixels({ kind: "picture", width: 2, height: 1, rgb })!.rgba]).toEqual([
      1, 2, 3, 255, 4, 5, 6, 255,
    ]);
    expect(picturePixels({ kind: "picture", width: 3, height: 1, rgb })).toBeNull();
    expect(picturePixels({ kind: "picture", width: 0, height: 1, rgb: "" })).toBeNull();
  });

  it("of heat maps go from the lowest to the highest colour, brighter all the way", () => {
    const cells = toBase64(new Uint8Array([0, 255]));
    const { width, height, rgba } = heatPixels({ kind: "heat", rows: 2, columns: 1, cells, low: 0, high: 1 })!;
    expect([width, height]).toEqual([1, 2]);
    expect([...rgba]).toEqual([...heatColor(0), 255, ...heatColor(1), 255]);
    const light = Array.from({ length: 256 }, (_, cell) => {
      const [red, green, blue] = heatColor(cell / 255);
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    });
    expect(light.every((value, cell) => cell === 0 || value >= light[cell - 1]! - 0.5)).toBe(true);
    expect(heatPixels({ kind: "heat", rows: 2, columns: 2, cells, low: 0, high: 1 })).toBeNull();
  });
});

describe("sounds", () => {
  it("are little-endian, and drawn by their extremes", () => {
    const pcm = new Uint8Array(new Int16Array([0, 16384, -32768, 8192]).buffer);
    const samples = soundOf({ kind: "sound", rate: 8000, pcm: toBase64(pcm) });
    expect([...samples]).toEqual([0, 0.5, -1, 0.25]);
    expect(wave(samples, 2)).toEqual([
      [0, 0.5],
      [-1, 0.25],
    ]);
    expect(wave(samples, 100)).toHaveLength(4);
    expect(wave(new Float32Array(0), 10)).toEqual([]);
  });
});

it("numbers stand in rows, the last one short", () => {
  const values = [1, 2, 3, null, 5];
  expect(rowsOf({ kind: "numbers", values, columns: 2 })).toEqual([[1, 2], [3, null], [5]]);
  expect(rowsOf({ kind: "numbers", values: [], columns: 0 })).toEqual([]);
});

it("media are known by their first bytes", () => {
  const riff = (form: string) => new TextEncoder().encode(`RIFF0000${form}`);
  expect([riff("WAVE"), riff("WEBP"), riff("AVI ")].map(mimeOf)).toEqual(["audio/wav", "image/webp", null]);
  expect(mimeOf(new Uint8Array([0xff, 0xd8, 0xff, 0xe0]))).toBe("image/jpeg");
  expect(mimeOf(new Uint8Array([0x1a, 0x45, 0xdf, 0xa3]))).toBe("video/webm");
  expect(mimeOf(new Uint8Array([0, 0, 0, 0x20, 0x66, 0x74, 0x79, 0x70]))).toBe("video/mp4");
  expect(mimeOf(new Uint8Array(0))).toBeNull();
});

it("says of large tensors what was looked at, and of caches what they hold", () => {
  expect(alarm(statistics({ count: 1000, every: 10, nan: 100 }))).toBe("None of its numbers is finite: 100 NaN.");
  expect(alarm(statistics({ count: 1000, every: 10, nan: 3 }))).toBe("3 NaN of 100 numbers.");
  expect(typeWords({ dtype: "cache", shape: [1, 120, 8] })).toBe("120 tokens on 8 pages");
  expect(typeWords({ dtype: "cache", shape: [3, 1, 1] })).toBe("3 sequences of up to 1 token on 1 page");
});
