// The board of the open placement: lanes, selection, problems sorted to where they are shown, and the moves.
import { useCallback, useMemo, useRef, useState } from "react";
import type { Problem } from "../api/types";
import { locate } from "../panels/locate";
import { useEditor, useEditorState } from "../store/react";
import { NEW_RANK, type Board } from "./board";
import type { Action } from "./bits";
import { addRank, explicit, nextDevice } from "./edits";
import { fixesOf } from "./fixes";
import { lanesOf, moveChips, type Chip, type Lanes } from "./lanes";
import { spotOf } from "./problems";
import { placementInForce } from "./ranks";
import type { PlacementDocument } from "./schema.generated";

export interface SortedProblems {
  /** About the whole, or the graph. */
  general: Problem[];
  lane: Map<number, Problem[]>;
  group: Map<number, Problem[]>;
  node: Map<string, Problem[]>;
}

export type Edit = (label: string, change: (placement: PlacementDocument) => PlacementDocument) => void;

export interface BoardState {
  board: Board;
  sorted: SortedProblems;
  edit: Edit;
  /** Said to screen readers. */
  told: string;
  /** The chip to focus once it is drawn. */
  focus: { current: string | null };
}

export function useBoardState(scope: readonly string[], openMenu: Board["menu"]): BoardState {
  const editor = useEditor();
  const documents = useEditorState((state) => state.documents);
  const planned = useEditorState((state) => state.planned);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [hovered, hover] = useState<string | null>(null);
  const [told, tell] = useState("");
  const focus = useRef<string | null>(null);
  const anchor = useRef<string | null>(null);
  const { graph } = documents;
  const fixed = documents.placement === null;
  const placement = useMemo(
    () => placementInForce({ documents, planned }) ?? explicit(graph),
    [documents, planned, graph],
  );
  const lanes = useMemo(() => lanesOf(placement, graph, scope), [placement, graph, scope]);
  const sorted = useSorted();
  const edit = useCallback<Edit>(
    (label, change) => editor.editPlacement(label, (current) => (current ? change(current) : current)),
    [editor],
  );
  const move = (chips: readonly Chip[], rank: number) => {
    const known = rank === NEW_RANK || lanes.lanes.some((lane) => lane.rank === rank);
    if (fixed || !known || chips.length === 0) return;
    const names = [...new Set(chips.map((chip) => chip.node))];
    const what = names.length === 1 ? String(names[0]) : `${names.length} components`;
    let target = rank;
    edit(`Move ${what}`, (current) => {
      const grown = rank === NEW_RANK ? addRank(current, nextDevice(current)) : { placement: current, rank };
      target = grown.rank;
      return moveChips(grown.placement, graph, chips, grown.rank);
    });
    setSelected(new Set(names.length > 1 ? names.map((name) => `${name}@${target}`) : []));
    focus.current = `${names[0]}@${target}`;
    tell(`${what} moved to rank ${target}`);
  };
  const board: Board = {
    graph,
    placement,
    plan: planned.plan,
    lanes,
    fixed,
    selected,
    hovered,
    problems: sorted,
    actions: useActions(edit),
    hover,
    select: (chip, how) => {
      const before = how === "range" ? anchor.current : null;
      if (how !== "range") anchor.current = chip.key;
      setSelected((old) => choose(old, chip, how, lanes, before));
    },
    selectAll: (chips) => setSelected(new Set(chips.map((chip) => chip.key))),
    taken: (chip) => (selected.has(chip.key) ? everyChip(lanes).filter((other) => selected.has(other.key)) : [chip]),
    move,
    menu: openMenu,
  };
  return { board, sorted, edit, told, focus };
}

function everyChip({ lanes, unplaced }: Lanes): Chip[] {
  return [...unplaced, ...lanes.flatMap((lane) => lane.chips)];
}

function choose(
  old: ReadonlySet<string>,
  chip: Chip,
  how: "only" | "toggle" | "range",
  lanes: Lanes,
  anchor: string | null,
): ReadonlySet<string> {
  if (how === "toggle") {
    const next = new Set(old);
    if (!next.delete(chip.key)) next.add(chip.key);
    return next;
  }
  if (how === "only" || anchor === null) return old.size === 1 && old.has(chip.key) ? new Set() : new Set([chip.key]);
  const keys = everyChip(lanes).map((other) => other.key);
  const [from, to] = [keys.indexOf(anchor), keys.indexOf(chip.key)].sort((a, b) => a - b);
  return new Set(keys.slice(from, (to ?? 0) + 1));
}

/** The plan's problems, each to one place; what both documents' judges tell is told once. */
function useSorted(): SortedProblems {
  const planned = useEditorState((state) => state.planned);
  const documents = useEditorState((state) => state.documents);
  return useMemo(() => {
    const sorted: SortedProblems = { general: [], lane: new Map(), group: new Map(), node: new Map() };
    const of = planned.of ?? documents;
    const placement = placementInForce({ documents: of, planned }) ?? explicit(of.graph);
    const add = <K>(map: Map<K, Problem[]>, key: K, problem: Problem) =>
      map.set(key, [...(map.get(key) ?? []), problem]);
    for (const problem of planned.plan?.problems ?? []) {
      const spot = spotOf(problem, placement, of.graph);
      if (spot.node !== null) add(sorted.node, spot.node, problem);
      if (spot.rank !== null) add(sorted.lane, spot.rank, problem);
      else if (spot.group !== null && problem.code !== "unavailable") add(sorted.group, spot.group, problem);
      else if (problem.code !== "unavailable") sorted.general.push(problem);
    }
    return sorted;
  }, [planned, documents]);
}

/** What can be done about a problem: certain fixes, and to go where it is. */
function useActions(edit: Edit): (problem: Problem) => Action[] {
  const editor = useEditor();
  const planned = useEditorState((state) => state.planned);
  return useCallback(
    (problem) => {
      const of = planned.of;
      if (!of || !planned.plan) return [];
      if (problem.pointer.startsWith("/graph")) {
        const { tab, canvas, selection } = locate(of.graph, problem.pointer.slice("/graph".length));
        return [{ label: "Show", run: () => editor.see({ tab, canvas, selection }) }];
      }
      if (!of.placement) return [];
      return fixesOf(problem, of.placement, of.graph, planned.plan).map((fix) => ({
        label: fix.label,
        run: () => {
          const { hardware, placement } = fix;
          if (hardware !== undefined) editor.store.setState({ planned: { ...editor.state.planned, hardware } });
          if (placement) edit(fix.label, () => placement);
        },
      }));
    },
    [editor, edit, planned],
  );
}
