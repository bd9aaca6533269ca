import declarations from "./declarations.css?inline";
import simulator from "./simulator.css?inline";
import steps from "./steps.css?inline";
import tasks from "./tasks.css?inline";

export const styles = [tasks, steps, declarations, simulator].join("\n");
