// Shared by the lanes: the documents, the plan, the selection, and its actions.
import { createContext, useContext } from "react";
import type { PlanShown, Problem } from "../../messages/answers";
import type { GraphDocument } from "../../document/types";
import type { Action } from "./bits";
import type { Chip, Lanes } from "../model/lanes";
import type { PlacementDocument } from "../../document/placement/schema.generated";
import { strings } from "../../strings";

/** Drop here for a rank of its own. */
export const NEW_RANK = -1;

export interface Board {
  graph: GraphDocument;
  placement: PlacementDocument;
  /** The latest plan; of an older placement while a new one is made. */
  plan: PlanShown | null;
  /** The hosts that it was made for, the one that plans first. */
  hosts: readonly string[];
  lanes: Lanes;
  /** The service chose it: nothing can be moved. */
  fixed: boolean;
  selected: ReadonlySet<string>;
  hovered: string | null;
  /** At the other end of a wire from what is hovered or selected. */
  linked: ReadonlySet<string>;
  problems: { lane: ReadonlyMap<number, Problem[]>; node: ReadonlyMap<string, Problem[]> };
  actions: (problem: Problem) => Action[];
  hover: (chip: string | null) => void;
  select: (chip: Chip, how: "only" | "toggle" | "range") => void;
  selectAll: (chips: readonly Chip[]) => void;
  /** The selected chips with this one; this one alone where it isn't selected. */
  taken: (chip: Chip) => Chip[];
  /** One more rank, on the host of the last lane. */
  add: () => void;
  /** To a rank, or NEW_RANK. */
  move: (chips: readonly Chip[], rank: number) => void;
  /** One more replica on a rank, or on NEW_RANK. */
  replicate: (chips: readonly Chip[], rank: number) => void;
  /** The lanes that the selected chips are divided over once the edge of this one is at a lane. */
  spanned: (chip: Chip, over: number) => number[];
  /** Divide them so. */
  widen: (chip: Chip, over: number) => void;
  menu: (chip: Chip, at: { x: number; y: number }) => void;
}

export const BoardContext = createContext<Board | null>(null);

export function useBoard(): Board {
  const board = useContext(BoardContext);
  if (!board) throw new Error(strings.placement.noPlacementIsShown);
  return board;
}
