// Errors, figures and differences in words. Pure.
import { showSeconds } from "../../ui/words";
import type { Given, Result, RunError, TaskShown } from "./types";
import { strings } from "../../strings";

/** Advice for the error of a run, by code. */
const ADVICE: Record<string, string> = {
  invalid_input: strings.play.changeThatAndRunAgain,
  not_found: strings.play.chooseAnotherDeploymentOrTask,
  conflict: strings.play.waitUntilTheOtherChange,
  refused: strings.play.theDeploymentCantDoThis,
  overloaded: strings.play.theQueueIsFullWait,
  cancelled: strings.play.itWasStoppedRun,
  not_approved: strings.play.changeThatAndRunAgain,
  expired: strings.play.changeThatAndRunAgain,
  deadline_exceeded: strings.play.itTookLongerThanAllowed,
  worker_lost: strings.play.aWorkerProcessEnded,
  stalled: strings.play.itWaitedForAValue,
  out_of_memory: strings.play.askForLessAtOnce,
  numeric_error: strings.play.aNodeComputedNan,
  node_error: strings.play.aNodeFailedOpen,
  no_call: strings.play.changeThatAndRunAgain,
  stream_error: strings.play.aStreamBetweenNodesEnded,
  shutting_down: strings.play.theServiceIsStoppingStart,
  internal_error: strings.play.theServiceFailedSee,
  offline: strings.play.theServiceDoesNotAnswer,
};

export function adviceFor(error: RunError): string {
  return (
    ADVICE[error.code] ?? (error.retryable ? strings.play.tryingAgainCanHelp : strings.play.lookAtTheServicesLog)
  );
}

/** `in llm, Walk decode, iteration 3 · 1, rank 0`. */
export function placeOf(error: RunError): string {
  const at = [
    error.node ? strings.play.nodeWithNode(error.node) : "",
    error.walk ? strings.play.walk(error.walk) : "",
    error.iteration?.length ? strings.play.iteration(error.iteration.map((index) => index + 1).join(" · ")) : "",
    typeof error.rank === "number" ? strings.play.rankWithRank(error.rank) : "",
  ];
  return at.filter(Boolean).join(", ");
}

/** Says why a finished run shows no output. */
export function whyNothing(task: Pick<TaskShown, "outputs"> | null, { lost }: Pick<Result, "lost">): string {
  if (task?.outputs.length === 0) return strings.play.thisTaskHasNoOutputs;
  if (lost) return strings.play.itsOutputsAreNoLonger;
  return strings.play.itSentNoOutputs;
}

/** The inputs, in one line. */
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
