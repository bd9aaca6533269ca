// From afar only blocks, names and problems are shown; ports can't be aimed at, so they are not mounted.
import type { ReactFlowState } from "@xyflow/react";
import { createContext } from "react";

const FAR = 0.4;

export const Far = createContext(false);

export function isFar(state: ReactFlowState): boolean {
  return state.transform[2] < FAR;
}
