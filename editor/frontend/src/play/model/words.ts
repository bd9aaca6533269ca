// Errors, figures and differences in words. Pure.
import { showSeconds } from "../../ui/words";
import type { Given, Result, RunError, TaskShown } from "./types";

/** What to do about an error of a run, by its code. */
const ADVICE: Record<string, string> = {
  invalid_input: "Change that and run again.",
  not_found: "Choose another deployment or task; this one is gone.",
  conflict: "Wait until the other change is through, then run again.",
  refused: "The deployment can't do this. Lower the parameters, or deploy it with other settings.",
  overloaded: "The queue is full. Wait a moment and run again.",
  cancelled: "It was stopped. Run it again when you like.",
  deadline_exceeded: "It took longer than allowed. Ask for less: fewer steps, fewer tokens, smaller pictures.",
  worker_lost: "A worker ended. It is started anew; wait until the deployment is ready and run again.",
  stalled: "It waited for a value that can't come any more. Run it again; report it if it stays.",
  out_of_memory: "Ask for less at once: smaller pictures, fewer tokens, a smaller context.",
  numeric_error: "A node made numbers that are none. Try another seed or milder parameters.",
  node_error: "A node failed. Open it in the graph and look at its parameters and inputs.",
  stream_error: "A stream between nodes ended early. Run again; if it stays, look at the stream in the graph.",
  shutting_down: "The service is stopping. Start it again, then run again.",
  internal_error: "The service failed. Its log says more; run again, and report it if it stays.",
  offline: "The service does not answer. Start it with `walkgraph up`, then run again.",
};

export function adviceFor(error: RunError): string {
  return ADVICE[error.code] ?? (error.retryable ? "Trying again can help." : "Look at the service's log.");
}

/** `in llm, Walk decode, iteration 3 · 1, rank 0`. */
export function placeOf(error: RunError): string {
  const at = [
    error.node ? `node ${error.node}` : "",
    error.walk ? `Walk ${error.walk}` : "",
    error.iteration?.length ? `iteration ${error.iteration.map((index) => index + 1).join(" · ")}` : "",
    typeof error.rank === "number" ? `rank ${error.rank}` : "",
  ];
  return at.filter(Boolean).join(", ");
}

/** Of a run that is done, why no output is shown. */
export function whyNothing(task: Pick<TaskShown, "outputs"> | null, { lost }: Pick<Result, "lost">): string {
  if (task?.outputs.length === 0) return "This task has no outputs: it changes what its session keeps.";
  if (lost) return "Its outputs are no longer kept. Run it again with the same seed to see them.";
  return "It sent none of its outputs: with these inputs and parameters nothing led to one.";
}

/** What went in, in one line. */
export function saidOf(given: Given): string {
  const words = given.parts.flatMap((part) =>
    part.media ? [part.media.name] : part.text.trim() ? [part.text.trim()] : [],
  );
  return words.join(" · ").slice(0, 200);
}

/** Rows of parameters where two results were asked for different things: name, left, right. */
export function differing(left: { given: Given; result: Result }, right: { given: Given; result: Result }) {
  const rows = ({ given, result }: { given: Given; result: Result }): Record<string, string> => ({
    task: result.task,
    deployment: result.deployment,
    input: saidOf(given),
    ...Object.fromEntries(Object.entries(given.params).map(([name, value]) => [name, String(value)])),
    seed: result.seed === null ? "" : String(result.seed),
    seconds: result.seconds === null ? "" : showSeconds(result.seconds),
  });
  const [a, b] = [rows(left), rows(right)];
  return [...new Set([...Object.keys(a), ...Object.keys(b)])]
    .filter((name) => a[name] !== b[name])
    .map((name) => ({ name, left: a[name] ?? "default", right: b[name] ?? "default" }));
}
