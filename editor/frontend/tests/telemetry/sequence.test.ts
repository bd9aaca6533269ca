import { expect, it } from "vitest";
import type { Sent } from "../../src/messages/frames";
import { Sequence } from "../../src/api/sequence";

const welcome = (boot: string, seq: number): Sent => ({ type: "welcome", boot, seq });
const numbered = (seq: number) => ({ type: "run", seq }) as Sent;

it("tells nothing while nothing is missing", () => {
  const sequence = new Sequence();
  expect(sequence.see({ type: "deployment" } as Sent)).toBeNull();
  expect([welcome("a", 4), numbered(5), numbered(6)].map((frame) => sequence.see(frame))).toEqual([null, null, null]);
});

it("tells how many frames are missing in a row, over a new connection, and of a dropped notice once", () => {
  const sequence = new Sequence();
  sequence.see(welcome("a", 4));
  expect(sequence.see(numbered(8))).toEqual({ type: "gap", count: 3 });
  expect(sequence.see(welcome("a", 10))).toEqual({ type: "gap", count: 2 });
  expect(sequence.see({ type: "dropped", count: 5 })).toEqual({ type: "gap", count: 5 });
  expect(sequence.see(numbered(16))).toBeNull();
  expect(sequence.see(welcome("a", 16))).toBeNull();
});

it("knows no count after the service has started anew", () => {
  const sequence = new Sequence();
  sequence.see(welcome("a", 4));
  expect(sequence.see(welcome("b", 4))).toEqual({ type: "gap", count: null });
  expect(sequence.see(numbered(5))).toBeNull();
});
