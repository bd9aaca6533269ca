import { describe, expect, it } from "vitest";
import { toBase64, toBytes } from "../../src/api/base64";
import { concatenated, mixed, peaks, readWav, riffChunks, writeWav } from "../../src/play/files/wav";

function wav(kind: number, bits: number, channels: number, data: number[], extra: number[] = []): Uint8Array {
  const bytes = new Uint8Array(12 + 24 + extra.length + 8 + data.length);
  const view = new DataView(bytes.buffer);
  const put = (at: number, text: string) => bytes.set(new TextEncoder().encode(text), at);
  put(0, "RIFF");
  view.setUint32(4, bytes.length - 8, true);
  put(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, kind, true);
  view.setUint16(22, channels, true);
  view.setUint32(24, 16_000, true);
  view.setUint16(34, bits, true);
  bytes.set(extra, 36);
  put(36 + extra.length, "data");
  view.setUint32(40 + extra.length, data.length, true);
  bytes.set(data, 44 + extra.length);
  return bytes;
}

describe("reading", () => {
  it("gives back what was written, within a step of 16 bits", () => {
    const samples = Float32Array.from({ length: 101 }, (_, index) => Math.sin(index / 7));
    const sound = readWav(writeWav(samples, 24_000));
    expect(sound?.rate).toBe(24_000);
    expect(sound?.channels).toHaveLength(1);
    sound?.channels[0]?.forEach((sample, index) =>
      expect(Math.abs(sample - (samples[index] ?? 0))).toBeLessThan(1e-4),
    );
  });

  it("reads other widths, floats, channels side by side, and chunks before the samples", () => {
    expect(readWav(wav(1, 8, 1, [128, 255, 0]))?.channels[0]).toEqual(Float32Array.of(0, 127 / 128, -1));
    expect(readWav(wav(1, 24, 1, [0, 0, 0x40, 0, 0, 0xc0]))?.channels[0]).toEqual(Float32Array.of(0.5, -0.5));
    expect(readWav(wav(1, 32, 1, [0, 0, 0, 0x40]))?.channels[0]).toEqual(Float32Array.of(0.5));
    const half = [...new Uint8Array(Float32Array.of(0.5, -0.25).buffer)];
    expect(readWav(wav(3, 32, 2, half))?.channels.map((channel) => channel[0])).toEqual([0.5, -0.25]);
    const note = [0x4c, 0x49, 0x53, 0x54, 3, 0, 0, 0, 1, 2, 3, 0];
    expect(readWav(wav(1, 16, 1, [0, 0x40], note))?.channels[0]).toEqual(Float32Array.of(0.5));
  });

  it("takes what there is of a piece that was cut, and nothing of what is no sound", () => {
    const whole = writeWav(Float32Array.of(0, 0.5, 0.5, 0.5), 8000);
    expect(readWav(whole.subarray(0, whole.length - 3))?.channels[0]).toHaveLength(2);
    for (let end = 0; end < 44; end += 1) expect(() => readWav(whole.subarray(0, end))).not.toThrow();
    expect(readWav(whole.subarray(0, 30))).toBeNull();
    expect(readWav(wav(2, 4, 1, [1, 2]))).toBeNull();
    expect(riffChunks(whole, "WEBP")).toBeNull();
  });

  it("reads a piece of a larger buffer", () => {
    const whole = writeWav(Float32Array.of(0.5), 8000);
    const inside = new Uint8Array(whole.length + 7);
    inside.set(whole, 7);
    expect(readWav(inside.subarray(7))?.channels[0]?.[0]).toBeCloseTo(0.5, 3);
  });
});

it("clamps what is too loud", () => {
  expect(readWav(writeWav(Float32Array.of(3, -3), 8000))?.channels[0]?.map(Math.round)).toEqual(
    Float32Array.of(1, -1),
  );
});

it("puts pieces of one rate after each other and mixes channels", () => {
  const piece = (rate: number, ...samples: number[]) => ({ rate, channels: [Float32Array.from(samples)] });
  const stereo = { rate: 8000, channels: [Float32Array.of(1), Float32Array.of(0)] };
  const all = concatenated([piece(8000, 0.25, 0.5), piece(16_000, 1), stereo]);
  expect(all).toEqual({ rate: 8000, samples: Float32Array.of(0.25, 0.5, 0.5) });
  expect(concatenated([])).toBeNull();
  expect(mixed({ rate: 1, channels: [] })).toHaveLength(0);
});

it("tells the loudest sample of each block", () => {
  expect(peaks(Float32Array.of(0, -0.5, 0.25, 2), 2)).toEqual([0.5, 1]);
  expect(peaks(new Float32Array(0), 2)).toEqual([0, 0]);
});

it("writes and reads base64 of any length", () => {
  for (const length of [0, 1, 2, 3, 100_000]) {
    const bytes = Uint8Array.from({ length }, (_, index) => (index * 7) % 256);
    expect(toBytes(toBase64(bytes))).toEqual(bytes);
  }
});
