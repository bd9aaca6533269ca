// The state machine of a task as a table: one row a step, blocks indented, lane after lane.
import { Plus, Rows3 } from "lucide-react";
import { useMemo, useRef, useState, type DragEvent } from "react";
import type { Problem } from "../../messages/answers";
import { split } from "../../document/pointer";
import type { GraphDocument, Pointer, Step, Task } from "../../document/types";
import { Button, Menu, type MenuEntry } from "../../ui/kit";
import { useTaskEdits } from "../model/actions";
import { ApproveLine } from "./ApproveRow";
import { BlockRow, PartHeader } from "./BlockRow";
import { BranchHeader, ChooseLine } from "./ChoiceRows";
import { LoopLine } from "./LoopRows";
import { isMove, landed } from "../model/moves";
import { byPlace } from "../model/problems";
import { branchOf } from "../../document/edits/parts/steps";
import { isInTurn, kindsOf, lanesOf, mayHold, neighbour, stepKind, type Row, type Slot } from "../model/rows";
import type { Lit } from "../model/simulate";
import { indent, type RowHandle } from "./handle";
import { StepRow } from "./StepRow";
import { ProblemLines, TextCell } from "../cells/widgets";
import { strings } from "../../strings";

interface StepTableProps {
  graph: GraphDocument;
  name: string;
  task: Task;
  problems: readonly Problem[];
  lit: ReadonlyMap<Pointer, Lit>;
}

export function StepTable({ graph, name, task, problems, lit }: StepTableProps) {
  const edits = useTaskEdits(name);
  const lanes = useMemo(() => lanesOf(task), [task]);
  const rows = useMemo(() => lanes.flatMap((lane) => lane.rows), [lanes]);
  const placed = useMemo(
    () =>
      byPlace(
        problems,
        rows.map((row) => row.pointer),
      ),
    [problems, rows],
  );
  const [menu, setMenu] = useState<{ at: { x: number; y: number }; entries: MenuEntry[] } | null>(null);
  const { slot, over, dropped, handle, table } = useMoving(rows, edits.moveStep, (row, at) =>
    setMenu({ at, entries: rowMenu(row, rows, edits, handleMove, (slot) => choose(slot, at)) }),
  );
  function handleMove(row: Row, direction: -1 | 1) {
    handle.move(row, direction);
  }
  const streams = (graph.streams?.length ?? 0) > 0;
  const perChunk = streams || rows.some((row) => row.kind === "walk" && row.step.per);
  const columns = perChunk ? 7 : 6;
  function choose(slot: Slot, at: { x: number; y: number }) {
    setMenu({ at, entries: addMenu(slot, graph, edits, lanes.length > 1) });
  }
  const add = (row: Row, at: { x: number; y: number }) => choose({ list: row.list, index: row.index }, at);

  return (
    <div className="wg-steps-frame">
      <table
        className={`wg-steps ${perChunk ? "per-chunk" : ""}`}
        ref={table}
        onDragOver={over}
        onDrop={dropped}
        aria-label={strings.tasks.stepsWithName(name)}
      >
        <thead>
          <tr>
            <th className="grip" aria-label={strings.tasks.order} />
            <th>{strings.tasks.walk2}</th>
            <th>{strings.tasks.when}</th>
            <th>{strings.tasks.takes}</th>
            <th>{strings.tasks.known}</th>
            {perChunk && <th>{strings.tasks.perChunk}</th>}
            <th aria-label={strings.tasks.actions} />
          </tr>
        </thead>
        {lanes.map((lane) => (
          <tbody key={lane.name}>
            {lane.name !== "" && (
              <tr className="lane">
                <th colSpan={columns} scope="rowgroup">
                  <Rows3 size={14} aria-hidden />
                  <TextCell
                    label={strings.tasks.nameOfTheLane(lane.name)}
                    value={lane.name}
                    onCommit={(value) => edits.renameLane(lane.name, value)}
                  />
                  <span className="note">{strings.tasks.runsBesideTheOtherLanes}</span>
                  {lanes.length > 1 && (
                    <Button kind="quiet" onClick={() => edits.removeLane(lane.name)}>
                      {strings.tasks.removeLane}
                    </Button>
                  )}
                </th>
              </tr>
            )}
            {lane.rows.map((row) => (
              <AnyRow
                key={row.pointer}
                {...{ graph, task, name, row, rows, perChunk, columns, handle, add, edits }}
                problems={placed.get(row.pointer) ?? []}
                lit={lit.get(row.pointer)}
                drop={dropClass(row, slot)}
              />
            ))}
          </tbody>
        ))}
      </table>
      {streams && (
        <div className="wg-lane-actions">
          <Button kind="quiet" onClick={() => edits.addLane()}>
            <Plus size={14} aria-hidden />{" "}
            {lanes.length === 1 && lanes[0]?.name === "" ? strings.tasks.splitIntoLanes : strings.tasks.lane}
          </Button>
        </div>
      )}
      {menu && <Menu at={menu.at} entries={menu.entries} onClose={() => setMenu(null)} />}
    </div>
  );
}

type AnyRowProps = {
  graph: GraphDocument;
  task: Task;
  name: string;
  row: Row;
  rows: readonly Row[];
  perChunk: boolean;
  columns: number;
  handle: RowHandle;
  add: (row: Row, at: { x: number; y: number }) => void;
  edits: ReturnType<typeof useTaskEdits>;
  problems: readonly Problem[];
  lit: Lit | undefined;
  drop: string;
};

function AnyRow(props: AnyRowProps) {
  const { row, columns, handle, add, drop, problems, edits } = props;
  switch (row.kind) {
    case "walk":
      return <StepRow {...props} row={row} />;
    case "for":
    case "first":
      return <BlockRow {...{ row, columns, handle, drop, problems, edits }} />;
    case "choose":
      return <ChooseLine {...props} row={row} />;
    case "loop":
      return <LoopLine {...props} row={row} />;
    case "approve":
      return <ApproveLine {...props} row={row} />;
    case "branch":
      return <BranchHeader {...{ row, columns, drop, problems, edits }} />;
    case "part":
      return <PartHeader {...{ row, columns, drop, problems, edits }} />;
    case "unknown":
      return (
        <tr data-pointer={row.pointer} className={drop}>
          <td className="grip" />
          <td colSpan={columns - 2}>
            {strings.tasks.thisStepHasNone} <code>{strings.tasks.walk3}</code>, <code>{strings.tasks.for}</code>{" "}
            {strings.tasks.and} <code>{strings.tasks.first}</code>.
            <ProblemLines problems={problems} />
          </td>
          <td>
            <Button kind="quiet" onClick={() => edits.removeStep(row.pointer)}>
              {strings.tasks.remove}
            </Button>
          </td>
        </tr>
      );
    case "end":
      return (
        <tr data-pointer={row.pointer} className={`end ${drop}`}>
          <td className="grip" />
          <td colSpan={columns - 1} style={{ paddingLeft: indent(row.depth) }}>
            <Button
              kind="quiet"
              aria-haspopup="menu"
              aria-label={strings.tasks.addAStepWithValue(
                (row.part ?? row.turn)
                  ? strings.tasks.forEach(row.part ?? strings.tasks.turnOf(row.turn ?? ""))
                  : row.choice
                    ? strings.tasks.toTheChoice
                    : row.list.endsWith("/loop")
                      ? strings.tasks.toTheLoop
                      : row.branches.length
                        ? strings.tasks.toTheCase(branchName(row.branches.at(-1)!))
                        : strings.tasks.atTheEnd,
                row.lane && strings.tasks.ofWithLane(row.lane),
              )}
              onClick={(event) => {
                const box = event.currentTarget.getBoundingClientRect();
                add(row, { x: box.left, y: box.bottom + 2 });
              }}
            >
              <Plus size={13} aria-hidden />{" "}
              {row.choice
                ? strings.tasks.choice
                : (row.part ?? row.turn)
                  ? strings.tasks.stepWithPart(row.part ?? strings.tasks.turnOf(row.turn ?? ""))
                  : strings.tasks.step2}
            </Button>
            {row.index === 0 && row.depth === 0 && <span className="note">{strings.tasks.noStepsYetAStep}</span>}
          </td>
        </tr>
      );
  }
}

/** The case that a branch's pointer names. */
function branchName(pointer: Pointer): string {
  return split(pointer).at(-1) ?? "";
}

function dropClass(row: Row, slot: Slot | null): string {
  return slot && row.list === slot.list && row.index === slot.index && row.kind !== "part" && row.kind !== "branch"
    ? "drop-here"
    : "";
}

// ── moving ────────────────────────────────────────────────────────────────────────────────────

function useMoving(
  rows: readonly Row[],
  moveStep: (from: Pointer, slot: Slot) => boolean,
  menu: (row: Row, at: { x: number; y: number }) => void,
) {
  const table = useRef<HTMLTableElement>(null);
  const [held, setHeld] = useState<Row | null>(null);
  const [slot, setSlot] = useState<Slot | null>(null);

  const focus = (pointer: Pointer) =>
    requestAnimationFrame(() =>
      table.current?.querySelector<HTMLElement>(`tr[data-pointer="${CSS.escape(pointer)}"] .wg-grip`)?.focus(),
    );
  const put = (row: Row, to: Slot) => {
    if (isMove(row.pointer, to) && moveStep(row.pointer, to)) focus(landed(row.pointer, to));
  };
  const handle: RowHandle = {
    dragging: held !== null,
    grab: setHeld,
    release: () => {
      setHeld(null);
      setSlot(null);
    },
    move: (row, direction) => {
      const to = neighbour(rows, row, direction);
      if (to) put(row, to);
    },
    menu,
  };
  const over = (event: DragEvent) => {
    if (!held) return;
    const target = (event.target as Element).closest<HTMLElement>("tr[data-pointer]");
    const row = rows.find((other) => other.pointer === target?.dataset["pointer"]);
    const found = row && target ? slotAt(row, held, rows, isLower(target, event.clientY)) : null;
    if (found) event.preventDefault();
    setSlot(found);
  };
  const dropped = (event: DragEvent) => {
    if (!held || !slot) return;
    event.preventDefault();
    put(held, slot);
  };
  return { slot, over, dropped, handle, table };
}

function isLower(row: HTMLElement, y: number): boolean {
  const box = row.getBoundingClientRect();
  return y > box.top + box.height / 2;
}

/** Where a held step goes when it is over this row: before it, after it, or into the block that it heads. */
function slotAt(row: Row, held: Row, rows: readonly Row[], lower: boolean): Slot | null {
  const kind = "step" in held ? stepKind(held.step) : "unknown";
  const into =
    row.kind === "part" || row.kind === "branch"
      ? row.pointer
      : (row.kind === "first" || row.kind === "loop") && lower
        ? `${row.pointer}/${row.kind}`
        : null;
  const inside = rows.find((other) => other.list === into);
  const slot =
    inside && into
      ? { list: into, index: 0 }
      : { list: row.list, index: row.index + Number(lower && (row.kind === "walk" || row.kind === "approve")) };
  if ((row.kind === "for" || row.kind === "choose") && lower) return null;
  return mayHold(slot.list, kind) && isMove(held.pointer, slot) ? slot : null;
}

// ── menus ─────────────────────────────────────────────────────────────────────────────────────

type Edits = ReturnType<typeof useTaskEdits>;

/** Steps for the texts of every turn that most clients send. */
function forTurns(): Step {
  const texts = (): Step[] => [{ for: "parts", text: [] }];
  return { for: "turns", system: texts(), user: texts(), assistant: texts() };
}

/** `lanes`: the task has several lists. */
function addMenu(slot: Slot, graph: GraphDocument, edits: Edits, lanes: boolean): MenuEntry[] {
  const blocks: MenuEntry[] = [];
  if (mayHold(slot.list, "for"))
    blocks.push({
      label: strings.tasks.forEachPart2,
      apart: true,
      run: () => edits.insertStep(slot, { for: "parts", text: [] }),
    });
  if (mayHold(slot.list, "for") && !isInTurn(slot.list))
    blocks.push({
      label: strings.tasks.forEachTurn2,
      run: () => edits.insertStep(slot, forTurns()),
    });
  const walk = Object.keys(graph.walks ?? {})[0];
  if (mayHold(slot.list, "first") && walk !== undefined)
    blocks.push({ label: strings.tasks.firstMatch2, run: () => edits.insertStep(slot, { first: [{ walk }] }) });
  if (mayHold(slot.list, "choose"))
    blocks.push({ label: strings.tasks.choiceByAValue, run: () => edits.insertChoice(slot) });
  if (mayHold(slot.list, "loop") && walk !== undefined)
    blocks.push({ label: strings.tasks.loop, run: () => edits.insertLoop(slot, walk) });
  if (mayHold(slot.list, "approve") && !lanes)
    blocks.push({ label: strings.tasks.waitForApproval, run: () => edits.insertApproval(slot) });
  const walks = Object.entries(graph.walks ?? {}).map(([name]) => ({
    label: name,
    run: () => edits.insertWalk(slot, name),
  }));
  return walks.length > 0
    ? [...walks, ...blocks]
    : [{ label: strings.tasks.theGraphHasNoWalk, disabled: true, run: () => undefined }, ...blocks];
}

function rowMenu(
  row: Row,
  rows: readonly Row[],
  edits: Edits,
  move: (row: Row, direction: -1 | 1) => void,
  choose: (slot: Slot) => void,
): MenuEntry[] {
  if (row.kind === "part" || row.kind === "branch" || row.kind === "end" || row.kind === "unknown") return [];
  const { step } = row;
  const above = { list: row.list, index: row.index };
  const below = { list: row.list, index: row.index + 1 };
  const entries: MenuEntry[] = [
    { label: strings.tasks.moveUp, keys: "↑", disabled: !neighbour(rows, row, -1), run: () => move(row, -1) },
    { label: strings.tasks.moveDown, keys: "↓", disabled: !neighbour(rows, row, 1), run: () => move(row, 1) },
    { label: strings.tasks.insertAbove, apart: true, run: () => choose(above) },
    { label: strings.tasks.insertBelow, run: () => choose(below) },
    { label: strings.tasks.duplicate, run: () => edits.insertStep(below, step) },
  ];
  if (row.kind === "walk" && mayHold(row.list, "first"))
    entries.push({
      label: strings.tasks.makeItAChoice,
      run: () => edits.replaceStep(row.pointer, { first: [row.step] }),
    });
  if (mayHold(row.list, "choose"))
    entries.push({
      label: strings.tasks.putItIntoAChoice,
      run: () => edits.replaceStep(row.pointer, { choose: "", cases: { a: [row.step], b: [] } }),
    });
  if (mayHold(row.list, "loop"))
    entries.push({
      label: strings.tasks.putItIntoALoop,
      run: () => edits.replaceStep(row.pointer, { loop: [row.step], times: "3" }),
    });
  if (row.kind === "for")
    for (const [index, kind] of kindsOf(row.step)
      .filter((kind) => branchOf(row.step, kind) === undefined)
      .entries())
      entries.push({
        label: strings.tasks.stepsWithKind(kind),
        apart: index === 0,
        run: () => edits.addPart(row.pointer, kind),
      });
  entries.push({ label: strings.tasks.delete, keys: "Del", apart: true, run: () => edits.removeStep(row.pointer) });
  return entries;
}
