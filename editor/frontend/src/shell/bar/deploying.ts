// What the Deploy button says. Pure.
import type { DeploymentShown } from "../../messages/answers";
import { equal } from "../../document/diff";
import type { GraphDocument } from "../../document/types";

export interface DeployWords {
  label: string;
  title: string;
  kind: "" | "good" | "busy" | "bad" | "warn";
}

/** `deployed`: the graph that the deployment was made from, once known. */
export function deployWords(
  deployment: DeploymentShown | null,
  deployed: GraphDocument | null,
  graph: GraphDocument,
): DeployWords {
  if (!deployment) return { label: "Deploy", title: "Not deployed yet", kind: "" };
  const { state, next, reason } = deployment;
  if (next && next.state !== "failed")
    return {
      label: "Switching…",
      title: "The new version loads; the old one serves until it is ready",
      kind: "busy",
    };
  if (state === "starting") return { label: "Starting…", title: "The deployment loads", kind: "busy" };
  if (state === "draining") return { label: "Stopping…", title: "Its last runs finish", kind: "busy" };
  if (state === "failed") return { label: "Deploy failed", title: reason ?? "See the Deploy tab", kind: "bad" };
  if (next) return { label: "Switch failed", title: next.reason ?? "The old version still serves", kind: "bad" };
  if (state === "degraded")
    return { label: "Degraded", title: reason ?? "A worker is down; see the Deploy tab", kind: "warn" };
  if (deployed && !equal(deployed, graph))
    return { label: "Deploy changes", title: "What runs is an older version of this graph", kind: "warn" };
  return { label: "Deployed", title: "What runs is this graph", kind: "good" };
}
