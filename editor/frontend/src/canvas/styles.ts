import flow from "@xyflow/react/dist/base.css?inline";
import css from "./canvas.css?inline";
import containers from "./nodes/containers.css?inline";
import nodes from "./nodes/nodes.css?inline";

export const styles = flow + css + nodes + containers;
