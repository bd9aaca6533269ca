// How a deployment and its workers are, in words. Pure.
import type { DeploymentShown, WorkerShown } from "../messages/answers";
import { strings } from "../strings";

export type Tone = "good" | "busy" | "warn" | "bad" | "";

export interface Phase {
  label: string;
  tone: Tone;
  /** How far, 0 to 1, while it gets ready; null: not known, or done. */
  fraction: number | null;
}

const STATES: Record<string, Phase> = {
  starting: { label: strings.deploy.starting, tone: "busy", fraction: null },
  ready: { label: strings.deploy.ready, tone: "good", fraction: null },
  degraded: { label: strings.deploy.degradedAWorkerIsDown, tone: "warn", fraction: null },
  draining: { label: strings.deploy.stoppingFinishingItsLastRuns, tone: "busy", fraction: null },
  failed: { label: strings.deploy.failed, tone: "bad", fraction: null },
  stopped: { label: strings.deploy.stopped, tone: "", fraction: null },
};

export function deploymentPhase(state: string): Phase {
  return STATES[state] ?? { label: state, tone: "", fraction: null };
}

export function workerPhase(worker: WorkerShown): Phase {
  const fraction = typeof worker["fraction"] === "number" ? worker["fraction"] : null;
  switch (worker.state) {
    case "starting":
      return { label: strings.deploy.startingItsProcess, tone: "busy", fraction: null };
    case "loading":
      return { label: strings.deploy.loadingWeights, tone: "busy", fraction };
    case "warming":
      return { label: strings.deploy.warmingUp, tone: "busy", fraction };
    case "ready":
      return { label: strings.deploy.ready, tone: "good", fraction: null };
    case "lost":
      return { label: strings.deploy.lostRestarting, tone: "warn", fraction: null };
    case "failed":
      return { label: strings.deploy.failed, tone: "bad", fraction: null };
    default:
      return { label: worker.state, tone: "", fraction: null };
  }
}

export type Step = "process" | "weights" | "warm" | "ready";

export const STEPS: { step: Step; label: string }[] = [
  { step: "process", label: strings.deploy.startProcesses },
  { step: "weights", label: strings.deploy.loadWeights },
  { step: "warm", label: strings.deploy.warmUp },
  { step: "ready", label: strings.deploy.ready2 },
];

/** The step that the slowest worker is in, or came to: one that can't load had a process. */
export function stepOf(ranks: readonly WorkerShown[]): Step {
  const order: Record<string, number> = { loading: 1, warming: 2, ready: 3 };
  if (ranks.length === 0) return "process";
  const slowest = Math.min(
    ...ranks.map((rank) => order[rank.state] ?? (rank.reason?.includes("can't load") ? 1 : 0)),
  );
  return STEPS[slowest]?.step ?? "process";
}

/** Progress of all workers together, 0 to 1. */
export function progressOf(ranks: readonly WorkerShown[]): number {
  if (ranks.length === 0) return 0;
  const parts = ranks.map((rank) => {
    if (rank.state === "ready") return 1;
    const { fraction } = workerPhase(rank);
    if (rank.state === "loading") return 0.05 + 0.75 * (fraction ?? 0);
    return rank.state === "warming" ? 0.8 + 0.2 * (fraction ?? 0) : 0;
  });
  return parts.reduce((total, part) => total + part, 0) / parts.length;
}

/** Advice about a failure, if its reason suggests any. */
export function advice(reason: string | null): string {
  const text = (reason ?? "").toLowerCase();
  if (text.includes("memory") || text.includes("signal 9")) return strings.deploy.putFewerComponents;
  if (text.includes("weights") || text.includes("checkpoint")) return strings.deploy.checkThatTheSource;
  if (text.includes("network") || text.includes("component")) return strings.deploy.useComponentsThatHaveNetworks;
  return strings.deploy.tryAgainIfItFails;
}

/** True if it answers requests. */
export function serves(deployment: DeploymentShown): boolean {
  return deployment.state === "ready" || deployment.state === "degraded";
}
