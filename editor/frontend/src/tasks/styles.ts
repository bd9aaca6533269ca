import declarations from "./request/declarations.css?inline";
import simulator from "./simulator/simulator.css?inline";
import steps from "./steps/steps.css?inline";
import tasks from "./tasks.css?inline";

export const styles = [tasks, steps, declarations, simulator].join("\n");
