import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { concatenated, readWav, writeWav } from "../../src/play/files/wav";
import { Player } from "../../src/play/files/media";

const RATE = 24_000;
let now = 0;
/** Start in seconds, and length in samples, of each piece that was given to the loudspeaker. */
let played: [at: number, length: number][] = [];

/** Made, and whether they are connected to the loudspeaker. */
let contexts = 0;
let gains: boolean[] = [];

class FakeAudio {
  destination = {};
  constructor() {
    contexts += 1;
  }
  get currentTime() {
    return now;
  }
  createGain() {
    const at = gains.push(false) - 1;
    return {
      gain: { value: 1 },
      connect: () => (gains[at] = true),
      disconnect: () => (gains[at] = false),
    };
  }
  createBuffer(_: number, length: number, rate: number) {
    if (length < 1) throw new DOMException("no samples", "NotSupportedError");
    return { length, duration: length / rate, copyToChannel: () => undefined };
  }
  createBufferSource() {
    const source = {
      buffer: { length: 0 },
      connect: () => undefined,
      start: (at: number) => void played.push([at, source.buffer.length]),
    };
    return source;
  }
  resume = () => Promise.resolve();
  suspend = () => Promise.resolve();
}

beforeEach(() => {
  now = 0;
  played = [];
  contexts = 0;
  gains = [];
  vi.stubGlobal("AudioContext", FakeAudio);
});
afterEach(() => vi.unstubAllGlobals());

const piece = (samples: number) => readWav(writeWav(new Float32Array(samples).fill(0.5), RATE))!;

it("pieces sound in their order without a gap, and one without samples is none", () => {
  const player = new Player();
  player.ready();
  player.add(piece(0));
  expect(played).toEqual([]);
  player.add(piece(2400));
  player.add(piece(0));
  // Just in time: it is not put off.
  now = 0.15;
  player.add(piece(4800));
  // Too late: there is a gap, and a little time for the next.
  now = 1;
  player.add(piece(2400));
  expect(played.map(([at, length]) => [Number(at.toFixed(6)), length])).toEqual([
    [0.06, 2400],
    [0.16, 4800],
    [1.06, 2400],
  ]);
});

it("nothing sounds once it was stopped, until it is readied anew", () => {
  const player = new Player();
  player.ready();
  player.stop();
  player.add(piece(2400));
  expect(played).toEqual([]);
  player.ready();
  player.add(piece(2400));
  expect(played).toEqual([[0.06, 2400]]);
});

it("the device is opened once, and what sounded before a stop is cut from it", () => {
  const player = new Player();
  for (let run = 0; run < 3; run += 1) {
    player.stop();
    player.ready();
  }
  expect(contexts).toBe(1);
  expect(gains).toEqual([false, false, true]);
});

it("a whole sound is all pieces, empty ones at any place", () => {
  const whole = concatenated([piece(0), piece(3), piece(0), piece(2)]);
  expect([whole?.rate, whole?.samples.length]).toEqual([RATE, 5]);
  expect(concatenated([piece(0)])?.samples).toHaveLength(0);
});
