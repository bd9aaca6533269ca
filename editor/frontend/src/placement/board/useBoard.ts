// The board of the open placement: lanes, selection, problems sorted to where they are shown, and the moves.
import { useCallback, useMemo, useRef, useState } from "react";
import type { Problem } from "../../messages/answers";
import { locate, go } from "../../store/locate";
import { useEditor, useEditorState } from "../../store/react";
import { NEW_RANK, type Board } from "./board";
import type { Action } from "./bits";
import { broadcasts, crossingsOf, movesOf, type Crossing } from "../model/crossings";
import { ANY, hostOf } from "../../document/placement/hosts";
import { addRank, explicit, nextDevice } from "../../document/placement/edits";
import { fixesOf } from "../model/fixes";
import { devicesOf, hostsOf } from "../model/memory";
import { lanesOf, moveChips, replicateChips, spanTo, widenChips, type Chip, type Lanes } from "../model/lanes";
import { spotOf } from "../model/problems";
import { placementInForce } from "../model/ranks";
import type { PlacementDocument } from "../../document/placement/schema.generated";
import { strings } from "../../strings";

/** Told by chips, and by the lane of what is not placed. */
const NOTHING = { routes: [], handed: [] };
const ON_CHIPS = new Set(["unavailable", "unplaced"]);

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
  /** All that goes from one rank to another, and of it what is lit now. */
  crossings: readonly Crossing[];
  lit: readonly Crossing[];
  sorted: SortedProblems;
  edit: Edit;
  /** Said to screen readers. */
  told: string;
  /** The chip to focus once it is drawn. */
  focus: { current: string | null };
}

/** `wire`: key of the crossing under the pointer elsewhere. */
export function useBoardState(scope: readonly string[], wire: string | null, openMenu: Board["menu"]): BoardState {
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
  const hosts = useMemo(() => hostsOf(planned.plan), [planned.plan]);
  const lanes = useMemo(() => {
    const chosen = new Map(planned.plan?.ranks.map(({ rank, host }) => [rank, host]));
    return lanesOf(placement, graph, scope, hosts[0], chosen);
  }, [placement, graph, scope, hosts, planned.plan]);
  const sorted = useSorted();
  const crossings = useMemo(
    () => crossingsOf((planned.of ?? documents).graph, planned.plan ?? NOTHING),
    [planned, documents],
  );
  const moves = useMemo(
    () => movesOf((planned.of ?? documents).graph, planned.plan?.copies ?? [], lanes),
    [planned, documents, lanes],
  );
  const lit = useMemo(() => {
    const found = [...crossings, ...moves].filter(
      (crossing) => crossing.key === wire || touches(crossing, hovered, selected),
    );
    return [...found, ...broadcasts(found, lanes)];
  }, [crossings, moves, lanes, hovered, selected, wire]);
  const linked = useMemo(() => new Set(lit.flatMap(chipsAt)), [lit]);
  const edit = useCallback<Edit>(
    (label, change) => editor.editPlacement(label, (current) => (current ? change(current) : current)),
    [editor],
  );
  const grow = (current: PlacementDocument, beside: number | undefined) => {
    const host = hostOf(current, beside ?? NaN);
    const there = host === ANY ? lanes.lanes.find((lane) => lane.rank === beside)?.host : host;
    const devices = planned.plan ? devicesOf(planned.plan, there ?? hosts[0]) : [];
    const device = nextDevice(
      current,
      devices.map(({ name }) => name),
      host,
    );
    return addRank(current, device, host);
  };
  const last = lanes.lanes.at(-1)?.rank;
  const change = (chips: readonly Chip[], rank: number, more: boolean) => {
    const known = rank === NEW_RANK || lanes.lanes.some((lane) => lane.rank === rank);
    if (fixed || !known || chips.length === 0) return;
    const names = [...new Set(chips.map((chip) => chip.node))];
    const what = names.length === 1 ? String(names[0]) : strings.placement.componentsWithCount(names.length);
    let target = rank;
    edit(more ? strings.placement.replicate(what) : strings.placement.move(what), (current) => {
      const grown = rank === NEW_RANK ? grow(current, last) : { placement: current, rank };
      target = grown.rank;
      return (more ? replicateChips : moveChips)(grown.placement, graph, chips, grown.rank);
    });
    setSelected(new Set(names.length > 1 ? names.map((name) => `${name}@${target}`) : []));
    focus.current = `${names[0]}@${target}`;
    tell((more ? strings.placement.alsoOnRank : strings.placement.movedToRank)(what, target));
  };
  const order = [...lanes.lanes.map((lane) => lane.rank), NEW_RANK];
  const taken = (chip: Chip) =>
    selected.has(chip.key) ? everyChip(lanes).filter((other) => selected.has(other.key)) : [chip];
  const widen = (chip: Chip, over: number) => {
    const span = spanTo(order, chip.span, over);
    if (fixed || span.join() === chip.span.join()) return;
    const chips = taken(chip);
    const names = [...new Set(chips.map((other) => other.node))];
    const what = names.length === 1 ? String(names[0]) : strings.placement.componentsWithCount(names.length);
    edit(strings.placement.divide(what, span.length), (current) => {
      if (!span.includes(NEW_RANK)) return widenChips(current, graph, chips, span);
      const { placement: grown, rank } = grow(current, span[0]);
      const ranks = span.map((other) => (other === NEW_RANK ? rank : other));
      return widenChips(grown, graph, chips, ranks);
    });
    focus.current = `${chip.node}@${chip.span[0]}`;
    tell((span.length > 1 ? strings.placement.dividedOver : strings.placement.wholeAgain)(what, span.length));
  };
  const board: Board = {
    graph,
    placement,
    plan: planned.plan,
    hosts,
    lanes,
    fixed,
    selected,
    hovered,
    linked,
    problems: sorted,
    actions: useActions(edit),
    hover,
    select: (chip, how) => {
      const before = how === "range" ? anchor.current : null;
      if (how !== "range") anchor.current = chip.key;
      setSelected((old) => choose(old, chip, how, lanes, before));
    },
    selectAll: (chips) => setSelected(new Set(chips.map((chip) => chip.key))),
    taken,
    add: () => edit(strings.placement.addARank, (current) => grow(current, last).placement),
    move: (chips, rank) => change(chips, rank, false),
    replicate: (chips, rank) => change(chips, rank, true),
    spanned: (chip, over) => spanTo(order, chip.span, over),
    widen,
    menu: openMenu,
  };
  return { board, crossings, lit, sorted, edit, told, focus };
}

function chipsAt({ fromNode, toNode, source, target }: Crossing): string[] {
  return [`${fromNode}@${source}`, `${toNode}@${target}`];
}

function touches(crossing: Crossing, hovered: string | null, selected: ReadonlySet<string>): boolean {
  return chipsAt(crossing).some((key) => key === hovered || selected.has(key));
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
      else if (!ON_CHIPS.has(problem.code)) sorted.general.push(problem);
    }
    return sorted;
  }, [planned, documents]);
}

/** Actions for a problem: certain fixes, and a jump to its place. */
function useActions(edit: Edit): (problem: Problem) => Action[] {
  const editor = useEditor();
  const planned = useEditorState((state) => state.planned);
  return useCallback(
    (problem) => {
      const of = planned.of;
      if (!of || !planned.plan) return [];
      if (problem.pointer.startsWith("/graph")) {
        const place = locate(of.graph, problem.pointer.slice("/graph".length));
        return [{ label: strings.placement.show, run: () => go(editor, place) }];
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
