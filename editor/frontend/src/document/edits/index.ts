// Every edit: pure, `(graph, ...) => graph`, the same object when nothing changes, `EditRefused` for the impossible.
export { EditRefused } from "./records";
export * from "./nodes";
export * from "./walks";
export * from "./items";
export * from "./edges";
export * from "./streams";
export * from "./tasks";
export * from "./clipboard";
export * from "./layout";
export type { Wish } from "./judge";
