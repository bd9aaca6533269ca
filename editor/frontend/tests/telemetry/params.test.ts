import { expect, it, vi } from "vitest";
import { Params } from "../../src/telemetry/params";

it("are asked for once, four runs at a time, and are none until they have come or where nobody answers", async () => {
  const answers = new Map<string, (value: Record<string, unknown> | null) => void>();
  const ask = vi.fn(
    (run: string) =>
      new Promise<Record<string, unknown>>((done, fail) =>
        answers.set(run, (value) => (value ? done(value) : fail(new Error("gone")))),
      ),
  );
  const params = new Params(ask);
  expect(params.of(null)).toEqual({});
  for (const run of ["a", "a", "b", "c", "d", "e"]) expect(params.of(run)).toEqual({});
  expect(ask.mock.calls.map(([run]) => run)).toEqual(["a", "b", "c", "d"]);
  answers.get("a")?.({ steps: 8 });
  answers.get("b")?.(null);
  await vi.waitFor(() => expect(params.of("a")).toEqual({ steps: 8 }));
  await vi.waitFor(() => expect((params.of("e"), ask.mock.calls.length)).toBe(5));
  expect(params.of("b")).toEqual({});
  expect(ask).toHaveBeenCalledTimes(5);
});
