import flow from "@xyflow/react/dist/base.css?inline";
import css from "./canvas.css?inline";
import edges from "./edges/edges.css?inline";
import containers from "./nodes/containers.css?inline";
import nodes from "./nodes/nodes.css?inline";

export const styles = flow + css + edges + nodes + containers;
