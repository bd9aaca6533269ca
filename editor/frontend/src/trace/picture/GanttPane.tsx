// One picture of a model with the names of its rows; the keyboard's way through it, and what a screen reader hears.
import { ChevronDown, ChevronRight } from "lucide-react";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { useStore } from "zustand";
import { highlight } from "../../store/highlight";
import { rankColor } from "../../placement/model/ranks";
import type { Link } from "../model/find";
import { Gantt, type Hover, type Shown } from "./gantt";
import type { Model } from "../model/model";
import { TOP, type Piece } from "./paint";
import { act, KEYS } from "./pressing";
import type { Row, Rows } from "./rows";
import type { TraceSession, Which } from "../model/session";
import { showMicros } from "../model/span";
import type { Timeline } from "../model/timeline";
import { factsOf, sentenceOf } from "../model/words";
import { strings } from "../../strings";

interface Props {
  session: TraceSession;
  of: Which;
  model: Model;
  timeline: Timeline;
  label: string;
  devices: readonly string[];
  path: readonly Piece[] | null;
  live: boolean;
}

export function GanttPane({ session, of, model, timeline, label, devices, path, live }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const gantt = useRef<Gantt | null>(null);
  const [rows, setRows] = useState<Rows>({ list: [], height: 0 });
  const [closed, setClosed] = useState<ReadonlySet<number>>(new Set());
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const [hover, setHover] = useState<Hover | null>(null);
  const selection = useStore(session.store, (state) => state.selected);
  const lane = useStore(session.store, (state) => (state.lane?.of === of ? state.lane.index : null));
  const follow = useStore(session.store, (state) => state.follow);
  const lit = useStore(highlight, (state) => state.nodes);
  const selected = selection?.of === of && selection.block < model.size ? selection.block : null;
  // Taken when the selection is made: later hops of a live model aren't drawn.
  const links = useMemo<readonly Link[]>(
    () => (selected === null ? [] : session.linksOf(selected, of)),
    [session, selected, of],
  );
  const shown = useMemo<Shown>(
    () => ({ selected, lane, lit, path, links, closed, opened, live, follow: live && follow }),
    [selected, lane, lit, path, links, closed, opened, live, follow],
  );
  const latest = useRef({ model, shown });
  latest.current = { model, shown };

  useEffect(() => {
    const made = new Gantt(scroller.current!, canvas.current!, timeline, latest.current.model, latest.current.shown, {
      onSelect: (block) => session.select(block, of),
      onHover: setHover,
      onRows: setRows,
      onMoved: () => session.setFollow(false),
    });
    gantt.current = made;
    session.told.add(made.invalidate);
    return () => {
      session.told.delete(made.invalidate);
      gantt.current = null;
      made.dispose();
    };
  }, [session, of, timeline]);
  useEffect(() => gantt.current?.show(model, shown), [model, shown]);
  useEffect(() => {
    if (selected === null) return;
    const first = latest.current.model.laneAt(selected).of;
    if (first !== null) setOpened((before) => (before.has(first) ? before : new Set([...before, first])));
    gantt.current?.reveal(selected);
  }, [selected]);

  const press = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!act(event.key, { session, of, model, timeline, rows, selected, lane })) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const toggle = (rank: number) => setClosed(toggled(closed, rank));

  return (
    <div className="wg-gantt">
      <div ref={scroller} className="scroll">
        <div className="names" style={{ height: rows.height + TOP }}>
          <div className="corner" style={{ height: TOP }} title={label}>
            {label}
          </div>
          {rows.list.map((row) => (
            <Name
              key={`${row.kind} ${row.rank} ${row.kind === "lane" ? row.lane.index : ""}`}
              row={row}
              model={model}
              device={devices[row.rank] ?? ""}
              closed={row.kind === "lane" ? !opened.has(row.lane.index) : closed.has(row.rank)}
              chosen={row.kind === "lane" && row.lane.index === lane}
              onToggle={toggle}
              onOpen={(index) => setOpened(toggled(opened, index))}
              onChoose={(index) => (index === lane ? session.unselect() : session.selectLane(index, of))}
            />
          ))}
        </div>
        <div className="plot">
          <canvas
            ref={canvas}
            tabIndex={0}
            role="application"
            aria-roledescription="timeline"
            aria-label={strings.trace.theTableBelowHas(label, KEYS)}
            title=""
            onKeyDown={press}
          />
        </div>
      </div>
      {hover && <Card model={model} hover={hover} />}
      <div className="visually-hidden" role="status">
        {selected !== null && sentenceOf(model, selected)}
      </div>
    </div>
  );
}

interface NameProps {
  row: Row;
  model: Model;
  device: string;
  /** The lanes of the rank, or the shards of the lane, are hidden. */
  closed: boolean;
  chosen: boolean;
  onToggle: (rank: number) => void;
  onOpen: (lane: number) => void;
  onChoose: (lane: number) => void;
}

function toggled(set: ReadonlySet<number>, member: number): ReadonlySet<number> {
  const next = new Set(set);
  if (!next.delete(member)) next.add(member);
  return next;
}

function Name({ row, model, device, closed, chosen, onToggle, onOpen, onChoose }: NameProps) {
  const style = { top: row.top + TOP, height: row.height, "--tint": rankColor(row.rank) } as React.CSSProperties;
  if (row.kind === "rank") {
    return (
      <button type="button" className="rank" style={style} aria-expanded={!closed} onClick={() => onToggle(row.rank)}>
        {closed ? <ChevronRight size={13} aria-hidden /> : <ChevronDown size={13} aria-hidden />}
        <b>{strings.trace.rank2(row.rank)}</b> <small>{device}</small>
        {row.serving !== null && <small>{strings.trace.shardOfRank(row.serving)}</small>}
      </button>
    );
  }
  if (row.kind === "strip") {
    const pages = (model.counters.get(row.rank)?.pagesTotal ?? 0) > 0;
    const title = strings.trace.filledShareOfTheTime(pages ? strings.trace.andPagesInUse : "");
    return (
      <div className="strip" style={style} title={title}>
        {strings.trace.busyQueue(pages ? " · pages" : "")}
      </div>
    );
  }
  const { lane } = row;
  const title = lane.loop ? strings.trace.loopOnTheDevice(lane.name, lane.nodes.join(", ")) : lane.name;
  const choose = {
    title,
    "aria-pressed": chosen,
    onClick: () => onChoose(lane.index),
  };
  const name = (
    <>
      {lane.loop && <span aria-label={strings.trace.loop}>↻</span>} {lane.name}
    </>
  );
  if (lane.of !== null)
    return (
      <button type="button" className="lane shard" style={style} {...choose}>
        <span className="visually-hidden">{lane.name}, </span>
        {strings.trace.shardRank(lane.rank)} <small>{device}</small>
      </button>
    );
  if (row.shards === 0)
    return (
      <button type="button" className="lane" style={style} {...choose}>
        {name}
      </button>
    );
  return (
    <div className="lane divided" style={style}>
      <button
        type="button"
        className="open"
        aria-label={strings.trace.shardsOf(lane.name)}
        aria-expanded={!closed}
        onClick={() => onOpen(lane.index)}
      >
        {closed ? <ChevronRight size={13} aria-hidden /> : <ChevronDown size={13} aria-hidden />}
      </button>
      <button type="button" className="name" {...choose}>
        {name}
      </button>
      <small>{strings.trace.countOfShards(row.shards + 1)}</small>
    </div>
  );
}

const CARD = { width: 240, height: 250 };

function Card({ model, hover }: { model: Model; hover: Hover }) {
  const { x, y } = hover;
  const root = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState({ width: 0, height: 0 });
  useEffect(() => {
    const around = root.current?.parentElement;
    if (around) setRoom({ width: around.clientWidth, height: around.clientHeight });
  }, []);
  const left = 200 + x + 16 + CARD.width > room.width ? 200 + x - CARD.width - 16 : 200 + x + 16;
  const top = Math.max(4, Math.min(y + 12, room.height - CARD.height));
  return (
    <div ref={root} className="card" style={{ left, top, width: CARD.width }} aria-hidden>
      {"marks" in hover ? (
        hover.marks.map((words) => <div key={words}>{words}</div>)
      ) : hover.block < model.size ? (
        <>
          <strong>{sentenceOf(model, hover.block)}</strong>
          <dl>
            {factsOf(model, hover.block).map(({ name, value }) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </>
      ) : null}
    </div>
  );
}

/** Beside the picture: how long the piece shown is. */
export function SpanWords({ timeline }: { timeline: Timeline }) {
  const words = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    const show = () => {
      if (words.current) words.current.textContent = showMicros(timeline.span.to - timeline.span.from);
    };
    timeline.listeners.add(show);
    show();
    return () => void timeline.listeners.delete(show);
  }, [timeline]);
  return <span ref={words} className="spanned" title={strings.trace.lengthOfTheVisibleRange} />;
}
