// The text of the Deploy button. Pure.
import type { DeploymentShown } from "../../messages/answers";
import { equal } from "../../document/diff";
import type { GraphDocument } from "../../document/types";
import { strings } from "../../strings";

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
  if (!deployment) return { label: strings.shell.deploy, title: strings.shell.notDeployedYet, kind: "" };
  const { state, next, reason } = deployment;
  if (next && next.state !== "failed")
    return {
      label: strings.shell.switching,
      title: strings.shell.theNewVersionLoads,
      kind: "busy",
    };
  if (state === "starting")
    return { label: strings.shell.starting, title: strings.shell.theDeploymentLoads, kind: "busy" };
  if (state === "draining")
    return { label: strings.shell.stopping, title: strings.shell.itsLastRunsAreFinishing, kind: "busy" };
  if (state === "failed")
    return { label: strings.shell.deployFailed, title: reason ?? strings.shell.seeTheDeployTab, kind: "bad" };
  if (next)
    return {
      label: strings.shell.switchFailed,
      title: next.reason ?? strings.shell.theOldVersionStillServes,
      kind: "bad",
    };
  if (state === "degraded")
    return { label: strings.shell.degraded, title: reason ?? strings.shell.aWorkerIsDownSee, kind: "warn" };
  if (deployed && !equal(deployed, graph))
    return { label: strings.shell.deployChanges, title: strings.shell.whatRunsIsAnOlder, kind: "warn" };
  return { label: strings.shell.deployed, title: strings.shell.whatRunsIsThisGraph, kind: "good" };
}
