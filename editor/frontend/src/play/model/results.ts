// A run's outputs as they come. Pure: every event makes a new result.
import type { RunEvent, Usage } from "../../messages/answers";
import { isPoint } from "./numbers";
import type { Made, NodeTime, OutputShown, Result, ResultState, RunError } from "./types";

/** Pictures and the like kept of one output; of more, those in the middle go first. */
const KEPT = 64;
/** The same of small pictures, of which films are made. */
const KEPT_SMALL = 512;
const SMALL = 16_384;
/** The same of small tensors, of which a row is drawn. */
const KEPT_POINTS = 1000;
export const PREVIEW = "preview";

export function begun(deployment: string, task: string, now: number): Result {
  return {
    deployment,
    task,
    state: "sending",
    run: null,
    seed: null,
    startedAt: now,
    firstOutputAt: null,
    outputs: {},
    seconds: null,
    queued: null,
    times: [],
    error: null,
    faults: [],
  };
}

/** `at`: ms after the start. */
export function after(result: Result, event: RunEvent, at: number): Result {
  switch (event.event) {
    case "accepted":
      return { ...result, state: "waiting", run: event.run, seed: event.seed };
    case "output": {
      const output = result.outputs[event.name] ?? empty(event.name);
      const { index, iteration, passes = [], value } = event;
      const grown =
        value.type === "text"
          ? written(output, value.text ?? "", passes)
          : kept(output, { index, iteration, value, at });
      return {
        ...result,
        state: "running",
        firstOutputAt: result.firstOutputAt ?? at,
        outputs: { ...result.outputs, [event.name]: grown },
      };
    }
    case "approval":
      return { ...result, state: "asked", approval: event };
    case "decision":
      return { ...result, state: "running", approval: null };
    case "done":
      return { ...result, state: "done", ...figures(event) };
    case "error": {
      const error = event.error as RunError;
      const state = error.code === "cancelled" ? "cancelled" : "failed";
      return { ...result, state, error, approval: null, ...figures(event) };
    }
  }
}

/** The connection ended before the run told its end. */
export function broken(result: Result, error: RunError): Result {
  return { ...result, state: error.code === "cancelled" ? "cancelled" : "failed", error };
}

export function isOver({ state }: { state: ResultState }): boolean {
  return state === "done" || state === "cancelled" || state === "failed";
}

/** The answer of `GET /runs/{id}/result` as the same thing. */
export function resultOf(
  answer: {
    state: Result["state"];
    run: string;
    deployment: string;
    task: string;
    seed: number | null;
    outputs: Record<string, Made["value"][]>;
    seconds: number | null;
    queued: number | null;
    times: unknown[];
    usage?: Usage | null;
  },
  row: { created_at: number; error: unknown },
): Result {
  const outputs = Object.fromEntries(
    Object.entries(answer.outputs).map(([name, values]) => {
      const add = (output: OutputShown, value: Made["value"], index: number) =>
        value.type === "text"
          ? written(output, value.text ?? "", [index])
          : kept(output, { index, iteration: null, value, at: 0 });
      return [name, values.reduce(add, empty(name))];
    }),
  );
  const { state, run, deployment, task, seed, seconds, queued, usage = null } = answer;
  const times = answer.times as NodeTime[];
  const error = (row.error ?? null) as RunError | null;
  const startedAt = row.created_at * 1000;
  return { ...begun(deployment, task, startedAt), state, run, seed, outputs, seconds, queued, times, usage, error };
}

/** The newest picture of a result: the final one before a preview. */
export function pictureOf(result: Result): Made | null {
  const pictures = Object.values(result.outputs).filter((output) => output.made[0]?.value.type === "image");
  const final = pictures.find((output) => output.name !== PREVIEW) ?? pictures[0];
  return final?.made.at(-1) ?? null;
}

export function textOf(result: Result): string {
  return Object.values(result.outputs).find((output) => output.text)?.text ?? "";
}

function empty(name: string): OutputShown {
  return { name, text: "", passes: [], made: [], left: 0 };
}

function written(output: OutputShown, piece: string, passes: readonly number[]): OutputShown {
  const goesOn = output.text === "" || output.passes.join() === passes.join();
  return { ...output, text: output.text + (goesOn ? "" : "\n") + piece, passes };
}

function kept(output: OutputShown, made: Made): OutputShown {
  const all = [...output.made, made];
  // A sound is the sum of its pieces; of other things the first and the newest say most.
  const most = isPoint(made.value) ? KEPT_POINTS : (made.value.data?.length ?? SMALL) < SMALL ? KEPT_SMALL : KEPT;
  if (made.value.type === "audio" || all.length <= most) return { ...output, made: all };
  all.splice(Math.floor(most / 2), 1);
  return { ...output, made: all, left: output.left + 1 };
}

function figures(event: { seconds: number; queued: number; times: unknown[]; usage?: Usage }) {
  const { seconds, queued, times, usage = null } = event;
  return { seconds, queued, times: times as NodeTime[], usage };
}
