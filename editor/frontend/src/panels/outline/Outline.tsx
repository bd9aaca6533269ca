// The whole graph as a tree, in step with the canvas: the keyboard's and the screen reader's way in.
import { ChevronRight } from "lucide-react";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent, type PointerEvent } from "react";
import type { Problem } from "../../messages/answers";
import * as items from "../../document/edits/items";
import { removeMerge } from "../../document/edits/choices";
import { removeNode } from "../../document/edits/nodes";
import { removeStream } from "../../document/edits/streams";
import { removeTask } from "../../document/edits/tasks";
import { removeWalk } from "../../document/edits/walks";
import { mutedOf } from "../../document/edits/mute";
import type { Editor } from "../../store/editor";
import { useEditor, useEditorState } from "../../store/react";
import { plural } from "../../ui/words";
import { ProblemMark } from "../common/bits";
import { KIND_ICONS } from "../common/icons";
import { attempt } from "../common/apply";
import {
  above,
  dropOf,
  isSelected,
  problemsByRow,
  rowsOf,
  stepOf,
  visible,
  type Direction,
  type Row,
} from "./outline";
import { strings } from "../../strings";

interface Drop {
  key: string;
  part: "before" | "inside" | "after";
}

/** The open items of each editor's tree, kept while the panel is closed. */
const unfolded = new WeakMap<Editor, ReadonlySet<string>>();

export function Outline() {
  const editor = useEditor();
  const graph = useEditorState((state) => state.documents.graph);
  const view = useEditorState((state) => state.view);
  const problems = useEditorState((state) => state.checked.problems);
  const rows = useMemo(() => rowsOf(graph), [graph]);
  const [open, setOpen] = useState(() => unfolded.get(editor) ?? new Set(["walks", ...openAround(rows, editor)]));
  useEffect(() => void unfolded.set(editor, open), [editor, open]);
  const [focused, setFocused] = useState<string | null>(null);
  const tree = useRef<HTMLDivElement>(null);

  const muted = useMemo(
    () => new Map(Object.keys(graph.walks ?? {}).map((walk) => [walk, mutedOf(graph, walk)])),
    [graph],
  );
  const shown = useMemo(() => visible(rows, open), [rows, open]);
  const marks = useMemo(() => problemsByRow(shown, problems), [shown, problems]);
  const selected = rows.filter((row) => isSelected(row, view)).map((row) => row.key);
  const chosen = selected.join(" ");
  useEffect(() => {
    if (selected.length === 0) return;
    setOpen((before) => {
      const needed = selected.flatMap((key) => above(rows, key)).filter((key) => !before.has(key));
      return needed.length ? new Set([...before, ...needed]) : before;
    });
    const first = selected[0]!;
    setFocused(first);
    requestAnimationFrame(() => element(tree.current, first)?.scrollIntoView({ block: "nearest" }));
    // `chosen` stands for `selected`; rows only matter at the moment the selection changes.
  }, [chosen]);

  const walk = view.canvas.kind === "walk" ? view.canvas.walk : null;
  useEffect(() => {
    if (walk !== null) setOpen((before) => new Set([...before, "walks", `walk:${walk}`]));
  }, [walk]);

  const toggle = (key: string, on = !open.has(key)) =>
    setOpen((before) => new Set(on ? [...before, key] : [...before].filter((other) => other !== key)));
  const focus = (key: string | undefined) => {
    if (key === undefined) return;
    setFocused(key);
    element(tree.current, key)?.focus();
  };
  const current = shown.find((row) => row.key === focused) ?? shown[0];

  const onKey = (event: KeyboardEvent) => {
    const row = current;
    if (!row) return;
    const at = shown.indexOf(row);
    const moved = movement(event);
    if (moved) {
      moveBy(editor, row, moved);
      // A row that moves in the page loses the focus.
      requestAnimationFrame(() => element(tree.current, row.key)?.focus());
    } else if (event.altKey || event.ctrlKey || event.metaKey) return;
    else if (event.key === "ArrowDown") focus(shown[at + 1]?.key);
    else if (event.key === "ArrowUp") focus(shown[at - 1]?.key);
    else if (event.key === "Home") focus(shown[0]?.key);
    else if (event.key === "End") focus(shown.at(-1)?.key);
    else if (event.key === "ArrowRight")
      row.expandable && !open.has(row.key) ? toggle(row.key, true) : focus(shown[at + 1]?.key);
    else if (event.key === "ArrowLeft")
      row.expandable && open.has(row.key) ? toggle(row.key, false) : focus(row.parent ?? undefined);
    else if (event.key === "Enter" || event.key === " ") show(editor, row, event.shiftKey);
    else if (event.key === "Delete" || event.key === "Backspace") {
      focus(shown[at - 1]?.key);
      remove(editor, row);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const { drop, press } = useReorder(editor, shown, tree);
  return (
    <div className="wg-outline">
      <div
        ref={tree}
        role="tree"
        aria-label={strings.panels.outline(graph.name)}
        aria-multiselectable="true"
        onKeyDown={onKey}
      >
        {shown.map((row) => (
          <RowView
            key={row.key}
            row={row}
            open={open.has(row.key)}
            selected={selected.includes(row.key)}
            current={row === current}
            drop={drop?.key === row.key ? drop.part : null}
            problems={marks.get(row.key) ?? NONE}
            muted={row.item === null ? null : (muted.get(row.walk!)?.get(row.item) ?? null)}
            onToggle={() => toggle(row.key)}
            onPress={(event) => press(event, row)}
            onPick={(event) => {
              setFocused(row.key);
              if (row.canvas === null && row.id === null) toggle(row.key);
              else show(editor, row, event.ctrlKey || event.metaKey || event.shiftKey);
            }}
          />
        ))}
      </div>
    </div>
  );
}

const NONE: readonly Problem[] = [];

interface RowProps {
  row: Row;
  open: boolean;
  selected: boolean;
  current: boolean;
  drop: Drop["part"] | null;
  problems: readonly Problem[];
  muted: "muted" | "bypassed" | null;
  onToggle: () => void;
  onPress: (event: PointerEvent<HTMLElement>) => void;
  onPick: (event: MouseEvent) => void;
}

function RowView({ row, open, selected, current, drop, problems, muted, onToggle, onPress, onPick }: RowProps) {
  const heading = row.level === 1;
  const Icon = heading ? undefined : KIND_ICONS[row.kind];
  return (
    <div
      data-key={row.key}
      role="treeitem"
      aria-level={row.level}
      aria-selected={selected}
      aria-expanded={row.expandable ? open : undefined}
      aria-label={spoken(row, problems, muted)}
      tabIndex={current ? 0 : -1}
      className={["row", heading && "heading", selected && "selected", muted, drop && `drop-${drop}`]
        .filter(Boolean)
        .join(" ")}
      style={{ paddingLeft: 4 + (row.level - 1) * 13 }}
      onPointerDown={onPress}
      onClick={onPick}
    >
      {row.expandable ? (
        <span
          className="fold"
          aria-hidden="true"
          onClick={(event) => {
            event.stopPropagation();
            onToggle();
          }}
        >
          <ChevronRight size={13} className={open ? "open" : ""} />
        </span>
      ) : (
        <span className="fold" />
      )}
      {Icon && <Icon size={13} aria-hidden="true" className={`kind ${row.kind}`} />}
      <span className="label">{row.label}</span>
      {row.times && (
        <code className="times" title={timesOf(row)}>
          {row.kind === "map" ? "≤" : "×"} {row.times}
        </code>
      )}
      {row.detail && <span className="detail">{row.detail}</span>}
      {row.when && (
        <code className="when" title={strings.panels.onlyWhen(row.when)}>
          {strings.panels.if(row.when)}
        </code>
      )}
      {muted && <span className="muted-mark">{muted}</span>}
      <ProblemMark problems={problems} />
    </div>
  );
}

function timesOf({ kind, times }: Row): string {
  return kind === "map" ? strings.panels.runsForItemsAtMost(times) : strings.panels.runsTimes(times);
}

/** The text of a row for screen readers. */
function spoken(row: Row, problems: readonly Problem[], muted: string | null): string {
  const kind = row.level === 1 || row.kind === "choose" || row.kind === "otherwise" ? "" : row.kind;
  return [
    `${kind} ${row.label}`.trim(),
    row.detail,
    row.times && (row.kind === "map" ? strings.panels.itemsAtMost(row.times) : strings.panels.times(row.times)),
    row.when && strings.panels.onlyWhen(row.when),
    muted,
    problems.length ? plural(problems.length, "problem") : "",
  ]
    .filter(Boolean)
    .join(", ");
}

function element(tree: HTMLElement | null, key: string): HTMLElement | null {
  return tree?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`) ?? null;
}

function openAround(rows: readonly Row[], editor: Editor): string[] {
  const { canvas } = editor.state.view;
  return canvas.kind === "walk" ? rows.filter((row) => row.walk === canvas.walk && row.expandable).map(keyOf) : [];
}

function keyOf(row: Row): string {
  return row.key;
}

/** Show what a row is about; `more` adds it to (or takes it from) what is selected. */
function show(editor: Editor, row: Row, more: boolean): void {
  const { selection } = editor.state.view;
  if (row.kind === "task") editor.see({ tab: "tasks", selection: [row.id!] });
  if (row.canvas === null) return;
  const same =
    isSelected({ ...row, id: null }, { ...editor.state.view, selection: [] }) &&
    row.id !== null &&
    selection.length > 0;
  if (!more || !same) return editor.open(row.canvas, row.id === null ? [] : [row.id]);
  const others = selection.filter((id) => id !== row.id);
  editor.select(...(others.length === selection.length ? [...selection, row.id!] : others));
}

function movement(event: KeyboardEvent): Direction | null {
  if (!event.altKey || event.metaKey || event.shiftKey) return null;
  if (event.key === "ArrowUp" && !event.ctrlKey) return "up";
  if (event.key === "ArrowDown" && !event.ctrlKey) return "down";
  if (event.key === "ArrowLeft" && event.ctrlKey) return "out";
  return event.key === "ArrowRight" && event.ctrlKey ? "in" : null;
}

const STUCK: Record<Direction, string> = {
  up: strings.panels.itIsTheFirst,
  down: strings.panels.itIsTheLast,
  out: strings.panels.itIsInNoContainer,
  in: strings.panels.thereIsNoContainerNext,
};

function moveBy(editor: Editor, row: Row, direction: Direction): void {
  if (row.walk === null || row.item === null) return;
  const place = stepOf(editor.graph.walks![row.walk]!, row.item, direction);
  if (place === null) return editor.say(STUCK[direction]);
  move(editor, row, place);
}

function move(editor: Editor, row: Row, place: items.Place): void {
  const { walk, item } = row;
  if (walk === null || item === null) return;
  attempt(editor, strings.panels.move(row.label), (graph) => items.moveItems(graph, walk, [item], place));
}

function remove(editor: Editor, row: Row): void {
  const { walk, item, label, kind } = row;
  attempt(editor, strings.panels.remove(label), (graph) => {
    if (walk !== null && item !== null) return items.removeItems(graph, walk, [item], {});
    if (walk !== null && kind === "merge") return removeMerge(graph, walk, label);
    if (kind === "walk") return removeWalk(graph, label);
    if (kind === "node") return removeNode(graph, label);
    if (kind === "stream") return removeStream(graph, label);
    return kind === "task" ? removeTask(graph, label) : graph;
  });
}

const FAR = 4;

/** Dragging an item's row to another place of its Walk. */
function useReorder(editor: Editor, shown: readonly Row[], tree: React.RefObject<HTMLDivElement | null>) {
  const [drop, setDrop] = useState<Drop | null>(null);
  const stop = useRef<AbortController | null>(null);
  useEffect(() => () => stop.current?.abort(), []);
  const press = (event: PointerEvent<HTMLElement>, row: Row) => {
    if (event.button !== 0 || row.item === null) return;
    const start = event.clientY;
    let at: Drop | null = null;
    const over = (moved: globalThis.PointerEvent) => {
      if (at === null && Math.abs(moved.clientY - start) < FAR) return;
      at = dropAt(tree.current, shown, row, moved.clientY);
      setDrop(at);
    };
    const end = (ended: globalThis.PointerEvent | globalThis.KeyboardEvent) => {
      if ("key" in ended && ended.key !== "Escape") return;
      listening.abort();
      setDrop(null);
      const target = shown.find((other) => other.key === at?.key);
      if (ended.type !== "pointerup" || !at || !target?.item || row.walk === null) return;
      const walk = editor.graph.walks?.[row.walk];
      const place = walk && dropOf(walk, target.item, at.part);
      if (place) move(editor, row, place);
    };
    stop.current?.abort();
    const listening = (stop.current = new AbortController());
    const { signal } = listening;
    window.addEventListener("pointermove", over, { signal });
    window.addEventListener("pointerup", end, { signal });
    window.addEventListener("pointercancel", end, { signal });
    window.addEventListener("keydown", end, { signal, capture: true });
  };
  return { drop, press };
}

function dropAt(tree: HTMLElement | null, shown: readonly Row[], row: Row, y: number): Drop | null {
  for (const other of shown) {
    const box =
      other.walk === row.walk && other.item !== null ? element(tree, other.key)?.getBoundingClientRect() : null;
    if (!box || y < box.top || y > box.bottom || other.key === row.key) continue;
    const part = (y - box.top) / box.height;
    const holds = ["loop", "map", "parallel", "sequence", "choose", "case", "otherwise"].includes(other.kind);
    return { key: other.key, part: holds && part > 0.3 ? "inside" : part < 0.5 ? "before" : "after" };
  }
  return null;
}
