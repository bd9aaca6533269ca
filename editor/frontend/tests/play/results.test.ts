import { describe, expect, it } from "vitest";
import { after, begun, broken, isOver, pictureOf, resultOf, textOf } from "../../src/play/model/results";
import type { Result } from "../../src/play/model/types";
import type { RunEvent, ValueShown } from "../../src/messages/answers";

const output = (name: string, value: ValueShown, index = 0, iteration: number[] | null = null): RunEvent => ({
  event: "output",
  run: "r",
  name,
  index,
  iteration,
  value,
});
const run = (...events: RunEvent[]) =>
  events.reduce((result, event, index) => after(result, event, (index + 1) * 10), begun("shapes", "draw", 1000));
const accepted: RunEvent = { event: "accepted", run: "r", seed: 7 };
const figures = { run: "r", seconds: 1.5, queued: 0.1, times: [] };
const image = (data: string): ValueShown => ({ type: "image", mime: "image/png", data });

describe("a run", () => {
  it("goes from sending to done, with its seed, its first output and its figures", () => {
    const states = [[], [accepted], [accepted, output("text", { type: "text", text: "a " })]].map(
      (events) => run(...events).state,
    );
    expect(states).toEqual(["sending", "waiting", "running"]);
    const done = run(
      accepted,
      output("text", { type: "text", text: "a " }),
      output("text", { type: "text", text: "b" }),
      {
        event: "done",
        ...figures,
      },
    );
    expect(done).toMatchObject({ state: "done", seed: 7, firstOutputAt: 20, seconds: 1.5, queued: 0.1 });
    expect(textOf(done)).toBe("a b");
    expect(isOver(done)).toBe(true);
  });

  it("waits for a person with what is asked, and goes on once somebody has answered", () => {
    const approval = { run: "r", number: 0, label: "Fit?", goes_on: false, expires_at: 9, values: { "a.b": null } };
    const asked = run(accepted, { event: "approval", ...approval });
    expect(asked).toMatchObject({ state: "asked", approval });
    expect(isOver(asked)).toBe(false);
    const decision: RunEvent = { event: "decision", run: "r", number: 0, approved: true, note: "", at: 1 };
    expect(after(asked, decision, 50)).toMatchObject({ state: "running", approval: null });
    const error = { code: "not_approved", message: "a person has refused" };
    expect(after(asked, { event: "error", ...figures, error }, 50)).toMatchObject({
      state: "failed",
      approval: null,
    });
  });

  it("tells how many tokens were read, and found in caches", () => {
    const usage = { read: 40, cached_tokens: 32 };
    expect(run(accepted, { event: "done", ...figures, usage }).usage).toEqual(usage);
    expect(run(accepted).usage ?? null).toBeNull();
  });

  it("begins a line with the text of each pass of a loop of steps", () => {
    const piece = (text: string, passes: number[]) => ({ ...output("text", { type: "text", text }), passes });
    const said = [piece("a ", [0]), piece("b", [0]), piece("c", [1])];
    expect(textOf(run(accepted, ...said))).toBe("a b\nc");
    const times = { run: "r", deployment: "d", task: "t", seed: 1, seconds: 1, queued: 0, times: [] };
    const texts = ["a b", "c"].map((text): ValueShown => ({ type: "text", text }));
    const found = resultOf({ ...times, state: "done", outputs: { text: texts } }, { created_at: 0, error: null });
    expect(textOf(found)).toBe("a b\nc");
  });

  it("shows the final picture before previews, whichever came last", () => {
    const events = [accepted, output("preview", image("p"), 0, [3]), output("image", image("final"))];
    expect(pictureOf(run(...events))?.value.data).toBe("final");
    expect(pictureOf(run(...events.slice(0, 2)))?.value.data).toBe("p");
    expect(pictureOf(run(accepted))).toBeNull();
  });

  it("keeps a bounded number of pictures, the first and the newest among them, and every piece of a sound", () => {
    const shown = (count: number, size: number) => {
      const many = Array.from({ length: count }, (_, index) =>
        output("preview", image(String(index).padStart(size, " ")), index),
      );
      const made = run(accepted, ...many).outputs["preview"];
      return [
        made?.made.length,
        made?.made[0]?.value.data?.trim(),
        made?.made.at(-1)?.value.data?.trim(),
        made?.left,
      ];
    };
    expect(shown(100, 20_000)).toEqual([64, "0", "99", 36]);
    // Small ones are kept for longer: films are made of them.
    expect(shown(600, 4)).toEqual([512, "0", "599", 88]);
    const pieces = Array.from({ length: 100 }, () => output("audio", { type: "audio", mime: "audio/wav", data: "" }));
    expect(run(accepted, ...pieces).outputs["audio"]?.made).toHaveLength(100);
    const points = Array.from({ length: 100 }, () =>
      output("sum", { type: "tensor", shape: [1], base64: "AAAAAA==" }),
    );
    expect(run(accepted, ...points).outputs["sum"]?.made).toHaveLength(100);
  });

  it("tells a stopped run from a failed one", () => {
    const ended = (code: string) =>
      run(accepted, { event: "error", ...figures, error: { code, message: "m" } }).state;
    expect([ended("cancelled"), ended("node_error")]).toEqual(["cancelled", "failed"]);
    expect(broken(run(accepted), { code: "offline", message: "gone" }).state).toBe("failed");
  });

  it("leaves the results before it as they were", () => {
    const before = run(accepted, output("text", { type: "text", text: "a" }));
    after(before, output("text", { type: "text", text: "b" }), 5);
    expect(textOf(before)).toBe("a");
  });
});

it("reads what the service remembers of a run as the same thing", () => {
  const answer = {
    state: "done" as Result["state"],
    run: "r",
    deployment: "shapes",
    task: "draw",
    seed: 7,
    outputs: { text: [{ type: "text", text: "hello" }], image: [image("x")] },
    seconds: 1,
    queued: 0,
    times: [],
  };
  const result = resultOf(answer, { created_at: 5, error: null });
  expect(result).toMatchObject({ state: "done", startedAt: 5000, seed: 7, error: null });
  expect(textOf(result)).toBe("hello");
  expect(pictureOf(result)?.value.data).toBe("x");
});
