// A component in a lane: to be dragged, or moved by keys.
import { CircleAlert, Columns2, GitFork, TriangleAlert } from "lucide-react";
import type { KeyboardEvent, MouseEvent } from "react";
import { NEW_RANK, useBoard, type Board } from "./board";
import type { Chip } from "../model/lanes";
import type { DragSource } from "./useDrag";
import { strings } from "../../strings";

interface ChipProps {
  chip: Chip;
  /** Those of its lane. */
  among: readonly Chip[];
  /** The one of the lane that Tab comes to. */
  entry: boolean;
  source: DragSource;
  dragged: boolean;
}

export function ChipView({ chip, among, entry, source, dragged }: ChipProps) {
  const board = useBoard();
  const { component, node, partial, walks, byDefault, replica, shard, key } = chip;
  const problems = board.problems.node.get(node) ?? [];
  const grave = problems.some((problem) => problem.severity === "error");
  const marks = { "by-default": byDefault, dragged, linked: board.linked.has(key) };
  const classes = ["chip", ...Object.entries(marks).flatMap(([name, on]) => (on ? [name] : []))].join(" ");
  const click = (event: MouseEvent) =>
    board.select(chip, event.shiftKey ? "range" : event.ctrlKey || event.metaKey ? "toggle" : "only");
  return (
    <div
      role="option"
      aria-selected={board.selected.has(key)}
      aria-label={labelOf(chip)}
      aria-keyshortcuts="0 1 2 3 4 5 6 7 8 9 Shift+ArrowRight Shift+ArrowLeft Enter"
      tabIndex={entry ? 0 : -1}
      data-chip={key}
      className={classes}
      onClick={click}
      onPointerDown={(event) => source.onPointerDown(event, chip)}
      onPointerEnter={() => board.hover(key)}
      onPointerLeave={() => board.hover(null)}
      onFocus={() => board.hover(key)}
      onBlur={() => board.hover(null)}
      onKeyDown={(event) => press(event, board, chip, among)}
      onContextMenu={(event) => {
        event.preventDefault();
        board.menu(chip, { x: event.clientX, y: event.clientY });
      }}
    >
      <span className="name">{node}</span>
      {problems.length > 0 && (
        <span className={grave ? "bad" : "warn"} title={problems.map((problem) => problem.message).join("\n")}>
          {grave ? (
            <CircleAlert size={13} aria-label={strings.placement.error} />
          ) : (
            <TriangleAlert size={13} aria-label={strings.placement.warning} />
          )}
        </span>
      )}
      {replica && (
        <span className="replica" title={strings.placement.replicaOf(replica.number, replica.of)}>
          {replica.number}/{replica.of}
        </span>
      )}
      {shard && (
        <span className="shard" title={strings.placement.shardOf(shard.number, shard.of)}>
          <Columns2 size={10} aria-hidden />
          {shard.number}/{shard.of}
        </span>
      )}
      <span className="component">{component}</span>
      {partial && (
        <span className="walks" title={strings.placement.hereInElsewhereInOther(walks.join(", "))}>
          <GitFork size={11} aria-hidden />
          {walks.join(", ")}
        </span>
      )}
      {!board.fixed && chip.rank !== null && (
        <span
          className="edge"
          title={strings.placement.dragOverMoreRanks}
          aria-hidden
          onPointerDown={(event) => source.onPointerDown(event, chip, true)}
        />
      )}
    </div>
  );
}

function labelOf({ node, component, rank, partial, walks, byDefault, replica, shard }: Chip): string {
  const where = rank === null ? strings.placement.notPlaced : strings.placement.rankWithRank(rank);
  const when = partial ? strings.placement.only(walks.join(", ")) : "";
  const which = replica ? `, ${strings.placement.replicaOf(replica.number, replica.of)}` : "";
  const part = shard ? `, ${strings.placement.shardOf(shard.number, shard.of)}` : "";
  return `${node}, ${component}, ${where}${which}${part}${when}${byDefault ? strings.placement.byDefault : ""}`;
}

function press(event: KeyboardEvent<HTMLElement>, board: Board, chip: Chip, among: readonly Chip[]): void {
  const act = event.altKey ? undefined : actionOf(event, board, chip, among);
  if (!act) return;
  event.preventDefault();
  event.stopPropagation();
  act();
}

function actionOf(
  event: KeyboardEvent<HTMLElement>,
  board: Board,
  chip: Chip,
  among: readonly Chip[],
): (() => void) | undefined {
  const element = event.currentTarget;
  if (event.ctrlKey || event.metaKey) return event.key === "a" ? () => board.selectAll(among) : undefined;
  if (event.shiftKey && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
    const lane = edgeLane(board, chip, event.key === "ArrowRight" ? 1 : -1);
    return lane === undefined ? undefined : () => board.widen(chip, lane);
  }
  if (/^\d$/.test(event.key)) return () => board.move(board.taken(chip), Number(event.key));
  switch (event.key) {
    case "+":
      return () => board.move(board.taken(chip), NEW_RANK);
    case " ":
      return () => board.select(chip, "toggle");
    case "Enter":
    case "ContextMenu": {
      const { left, bottom } = element.getBoundingClientRect();
      return () => board.menu(chip, { x: left + 12, y: bottom });
    }
    case "Escape":
      return board.selected.size > 0 ? () => board.selectAll([]) : undefined;
    case "ArrowDown":
    case "ArrowUp":
      return () => beside(element, event.key === "ArrowDown" ? 1 : -1)?.focus();
    case "ArrowRight":
    case "ArrowLeft":
      return () => inNextLane(element, event.key === "ArrowRight" ? 1 : -1)?.focus();
    default:
      return undefined;
  }
}

/** The lane beside the last one that a chip is divided over: where its edge goes with one press. */
export function edgeLane(board: Board, chip: Chip, step: 1 | -1): number | undefined {
  const order = [...board.lanes.lanes.map((lane) => lane.rank), NEW_RANK];
  const last = Math.max(...chip.span.map((rank) => order.indexOf(rank)));
  return step === -1 && chip.span.length < 2 ? undefined : order[last + step];
}

function beside(element: HTMLElement, step: number): HTMLElement | undefined {
  const chips = [...(element.parentElement?.querySelectorAll<HTMLElement>("[data-chip]") ?? [])];
  return chips[chips.indexOf(element) + step];
}

/** The chip at the same height in the next lane that has any. */
function inNextLane(element: HTMLElement, step: number): HTMLElement | undefined {
  const here = element.closest("[data-lane]");
  const lanes = [...(here?.parentElement?.querySelectorAll("[data-lane]") ?? [])];
  const at = [...(here?.querySelectorAll("[data-chip]") ?? [])].indexOf(element);
  for (let lane = lanes.indexOf(here as Element) + step; lane >= 0 && lane < lanes.length; lane += step) {
    const chips = [...(lanes[lane]?.querySelectorAll<HTMLElement>("[data-chip]") ?? [])];
    if (chips.length > 0) return chips[Math.min(at, chips.length - 1)];
  }
  return undefined;
}
