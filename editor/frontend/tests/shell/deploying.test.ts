import { expect, it } from "vitest";
import type { DeploymentShown } from "../../src/messages/answers";
import { deployWords } from "../../src/shell/bar/deploying";
import { deploymentOf } from "../../src/store/deployments";

const GRAPH = { name: "g", nodes: {}, walks: {} };
const OTHER = { ...GRAPH, nodes: { a: { component: "x.y" } } };
const deployment = (more: Partial<DeploymentShown> = {}) =>
  ({ id: "g", graph: "g", state: "ready", reason: null, next: null, ...more }) as DeploymentShown;
const failed = { state: "failed", reason: "no memory", ranks: [] };

it.each([
  [null, null, "Deploy"],
  [deployment(), GRAPH, "Deployed"],
  [deployment(), { ...GRAPH, layout: { components: {} } }, "Deployed"],
  [deployment(), OTHER, "Deploy changes"],
  [deployment(), null, "Deployed"],
  [deployment({ state: "starting" }), GRAPH, "Starting…"],
  [deployment({ state: "failed" }), OTHER, "Deploy failed"],
  [deployment({ state: "degraded" }), OTHER, "Degraded"],
  [deployment({ next: { state: "starting", reason: null, ranks: [] } }), OTHER, "Switching…"],
  [deployment({ next: failed }), OTHER, "Switch failed"],
])("%o made from %o: %s", (found, deployed, label) => expect(deployWords(found, deployed, GRAPH).label).toBe(label));

it("the deployment of a graph is the one with its name, else the first made from it", () => {
  const [own, twin] = [deployment(), deployment({ id: "a_twin" })];
  expect(deploymentOf({ a_twin: twin, g: own }, "g")).toBe(own);
  expect(deploymentOf({ a_twin: twin }, "g")).toBe(twin);
  expect(deploymentOf({ g: deployment({ graph: "h" }) }, "g")).toBeNull();
});
