// Every edit: pure, `(graph, ...) => graph`, the same object when nothing changes, `EditRefused` for the impossible.
export { EditRefused } from "./parts/records";
export * from "./nodes";
export * from "./walks";
export * from "./items";
export * from "./mute";
export * from "./wrap";
export * from "./choices";
export * from "./heads";
export * from "./edges";
export * from "./streams";
export * from "./tasks";
export * from "./clipboard";
export * from "./parts/layout";
export type { Wish } from "./judge";
