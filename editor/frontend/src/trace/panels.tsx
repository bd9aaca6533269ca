// Beside the picture: the lane that is chosen, why the run took its time, what each node did.
import { useMemo, useState, type ReactNode } from "react";
import { Button, Empty, Prose } from "../ui/kit";
import { Table } from "../ui/Table";
import { endWords, insideWords, playedWords, plural, showSeconds } from "../ui/words";
import { blockWords, differences, figuresOf, type Difference, type LaneFigures } from "./model/figures";
import type { Lane, Model } from "./model/model";
import type { Shown } from "./model/session";
import { showAt, showMicros } from "./model/span";
import type {
  CalledShown,
  KeptShown,
  LoopReasonShown,
  StatisticsShown,
  TraceShown,
  WhyKind,
  WhyPiece,
} from "./model/types";
import { KINDS, showMs } from "./model/words";
import type { PlayedShown } from "../messages/answers";
import { strings } from "../strings";

const MOST_CALLED = 50;

interface CalledProps {
  called: readonly CalledShown[];
  onRun: (run: string) => void;
}

/** The tasks that a run called, each the way to the trace of its own run. */
export function CalledPanel({ called, onRun }: CalledProps) {
  if (called.length === 0) return null;
  return (
    <section className="wg-trace-called" aria-label={strings.trace.calledTasks}>
      <h3>{strings.trace.calledTasks}</h3>
      <ul>
        {called.slice(0, MOST_CALLED).map((one, index) => {
          const words = strings.trace.calledWords(one.use, one.task, showMicros(one.answered - one.asked));
          const shown = one.failed ? `${words}, ${strings.trace.calledFailed}` : words;
          return (
            <li key={index}>
              {one.run === "" ? (
                shown
              ) : (
                <button type="button" className="wg-trace-link" onClick={() => onRun(one.run)}>
                  {shown}
                </button>
              )}
            </li>
          );
        })}
      </ul>
      {called.length > MOST_CALLED && <p className="about">{strings.trace.more(called.length - MOST_CALLED)}</p>}
    </section>
  );
}

/** Why the loops that a value can end were over. */
export function EndsPanel({ ends }: { ends: readonly LoopReasonShown[] }) {
  if (ends.length === 0) return null;
  return (
    <section className="wg-trace-kept" aria-label={strings.trace.loopsEnded}>
      <h3>{strings.trace.loopsEnded}</h3>
      <ul>
        {ends.map((end, index) => (
          <li key={index}>{endWords(end)}</li>
        ))}
      </ul>
    </section>
  );
}

/** Says whether what is played came in time for a player that began with the first of it. */
export function PlaybackPanel({ played }: { played: PlayedShown | null | undefined }) {
  if (!played) return null;
  return (
    <section aria-label={strings.trace.playback}>
      <h3>{strings.trace.playback}</h3>
      <p className="about">{playedWords(played)}</p>
    </section>
  );
}

/** The nodes that were not run, as their outputs were kept from an earlier run. They have no lane: they took no time. */
export function KeptPanel({ kept }: { kept: readonly KeptShown[] }) {
  if (kept.length === 0) return null;
  const calls = new Map<string, number>();
  for (const { use } of kept) calls.set(use, (calls.get(use) ?? 0) + 1);
  const uses = [...calls];
  return (
    <section className="wg-trace-kept" aria-label={strings.trace.keptNodes}>
      <h3>{strings.trace.keptNodes}</h3>
      <p className="about">{strings.trace.keptWhy}</p>
      <ul>
        {uses.slice(0, MOST_CALLED).map(([use, count]) => (
          <li key={use}>{count === 1 ? use : `${use} ×${count}`}</li>
        ))}
      </ul>
      {uses.length > MOST_CALLED && <p className="about">{strings.trace.more(uses.length - MOST_CALLED)}</p>}
    </section>
  );
}

const PAGE = 100;

interface LaneProps {
  model: Model;
  lane: Lane;
  selected: number | null;
  /** So that a growing model is read anew. */
  version: number;
  onBlock: (block: number) => void;
}

/** A lane's blocks as a table: the way for who can't see the picture. */
export function LanePanel({ model, lane, selected, version, onBlock }: LaneProps) {
  const blocks = useMemo(() => model.inLane(lane), [model, lane, version]);
  const [asked, setAsked] = useState<number | null>(null);
  const own = selected === null ? -1 : blocks.indexOf(selected);
  const last = Math.max(0, Math.ceil(blocks.length / PAGE) - 1);
  const page = Math.min(asked ?? (own >= 0 ? Math.floor(own / PAGE) : 0), last);
  const rows = blocks.slice(page * PAGE, (page + 1) * PAGE);
  return (
    <section className="wg-trace-lane" aria-label={strings.trace.blocks(lane.name)}>
      <header>
        <h3>{strings.trace.rankWithBlocks(lane.name, lane.rank, plural(blocks.length, "block"))}</h3>
        {last > 0 && (
          <span className="pages">
            <Button kind="quiet" disabled={page === 0} onClick={() => setAsked(page - 1)}>
              {strings.trace.earlier}
            </Button>
            {page + 1} / {last + 1}
            <Button kind="quiet" disabled={page === last} onClick={() => setAsked(page + 1)}>
              {strings.trace.later}
            </Button>
          </span>
        )}
      </header>
      <Table
        columns={[
          strings.trace.what,
          strings.trace.walk,
          strings.trace.start,
          strings.trace.took,
          strings.trace.waited,
          strings.trace.rows,
        ]}
      >
        <tbody>
          {rows.map((id) => (
            <tr key={id} aria-current={id === selected}>
              <td>
                <button type="button" className="wg-trace-link" onClick={() => onBlock(id)}>
                  {blockWords(model, id)}
                </button>
              </td>
              <td>{model.names[model.walk.at(id)]}</td>
              <td>{showAt(model.started.at(id))}</td>
              <td>{showMicros(model.busy.at(id))}</td>
              <td>{showMicros(model.queued.at(id))}</td>
              <td>{model.batch.at(id)}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </section>
  );
}

// ── why slow ────────────────────────────────────────────────────────────────────────────────────

interface WhyProps {
  shown: Shown;
  path: boolean;
  onPath: (shown: boolean) => void;
  onPiece: (piece: WhyPiece) => void;
}

export function WhyPanel({ shown, path, onPath, onPiece }: WhyProps) {
  const { why, unknown, trace } = shown;
  if (!why) return <Empty title={strings.trace.nothingToAnalyseYet}>{unknown}</Empty>;
  const kinds = (Object.keys(KINDS) as WhyKind[]).filter((kind) => why.shares[kind] > 0);
  const longest = [...why.path].sort((a, b) => b.ended - b.began - (a.ended - a.began)).slice(0, 12);
  return (
    <section className="wg-trace-why" aria-label={strings.trace.whySlow}>
      <p className="says">
        <Prose text={why.says} />
      </p>
      <div
        className="shares"
        role="img"
        aria-label={kinds.map((kind) => shareWords(kind, why.shares, why.seconds)).join(", ")}
      >
        {kinds.map((kind) => (
          <i
            key={kind}
            className={kind}
            style={{ width: `${(why.shares[kind] / Math.max(why.seconds, 1e-9)) * 100}%` }}
            title={KINDS[kind].about}
          />
        ))}
      </div>
      <ul className="legend">
        {kinds.map((kind) => (
          <li key={kind} title={KINDS[kind].about}>
            <i className={kind} aria-hidden />
            {shareWords(kind, why.shares, why.seconds)}
          </li>
        ))}
      </ul>
      {why.bottleneck && (
        <p>
          {strings.trace.bottleneck}{" "}
          <strong>{why.bottleneck.loop ? `↻ ${why.bottleneck.lane}` : why.bottleneck.lane}</strong>{" "}
          {strings.trace.onRank(
            why.bottleneck.rank,
            showSeconds(why.bottleneck.seconds),
            Math.round(why.bottleneck.share * 100),
            KINDS[why.bottleneck.kind].label.toLowerCase(),
          )}
        </p>
      )}
      {why.path.length === 0 ? (
        <p className="about">
          {strings.trace.telemetryWasSet} <code>{trace.level}</code>
          {strings.trace.sharesAreSumsSet} <code>{strings.trace.full}</code> {strings.trace.beforeTheNextRun}
        </p>
      ) : (
        <>
          <label className="check">
            <input type="checkbox" checked={path} onChange={(event) => onPath(event.target.checked)} />{" "}
            {strings.trace.drawTheCriticalPath(plural(why.path.length, "piece"))}
          </label>
          <h3>{strings.trace.itsLongestPieces}</h3>
          <ol>
            {longest.map((piece) => (
              <li key={`${piece.began} ${piece.kind}`}>
                <button type="button" className="wg-trace-link" onClick={() => onPiece(piece)}>
                  {KINDS[piece.kind].label} {placeOf(trace, piece)} <b>{showMicros(piece.ended - piece.began)}</b>
                </button>
              </li>
            ))}
          </ol>
        </>
      )}
    </section>
  );
}

/** The node or loop it is of, else the edge. */
function placeOf(trace: TraceShown, { lane, hop }: WhyPiece): string {
  const edge = hop === null ? undefined : trace.names[trace.hops.edge[hop] ?? -1];
  return trace.lanes[lane]?.name ?? edge ?? "";
}

function shareWords(kind: WhyKind, shares: Record<WhyKind, number>, seconds: number): string {
  const share = Math.round((shares[kind] / Math.max(seconds, 1e-9)) * 100);
  return `${KINDS[kind].label} ${showMicros(shares[kind] * 1e6)} (${share} %)`;
}

// ── nodes ───────────────────────────────────────────────────────────────────────────────────────

interface NodesProps {
  model: Model;
  version: number;
  other: Model | null;
  statistics: StatisticsShown | null;
  onLane: (lane: { rank: number; name: string; loop: boolean }) => void;
}

export function NodesPanel({ model, version, other, statistics, onLane }: NodesProps) {
  const figures = useMemo(() => figuresOf(model), [model, version]);
  const compared = useMemo(() => other && differences(figures, figuresOf(other)), [figures, other]);
  return (
    <section className="wg-trace-nodes" aria-label={strings.trace.nodes}>
      {compared ? <Differences rows={compared} onLane={onLane} /> : <Figures rows={figures} onLane={onLane} />}
      {!compared && statistics && statistics.runs > 0 && <Kept statistics={statistics} onLane={onLane} />}
    </section>
  );
}

interface NamedProps {
  row: { rank: number; name: string; loop: boolean; nodes?: readonly string[]; spans?: boolean };
  /** There are several: its own is told. */
  ranks: boolean;
  onLane: NodesProps["onLane"];
}

function Named({ row, ranks, onLane }: NamedProps) {
  return (
    <button type="button" className="wg-trace-link" title={titleOf(row)} onClick={() => onLane(row)}>
      {row.loop && <span aria-label={strings.trace.loop}>↻ </span>}
      {row.name} {ranks && <small>{strings.trace.rankWithRank(row.rank)}</small>}
    </button>
  );
}

interface NodeRowsProps<R> {
  rows: readonly R[];
  onLane: NodesProps["onLane"];
  /** The cells after the name. */
  children: (row: R) => ReactNode;
}

function NodeRows<R extends NamedProps["row"]>({ rows, onLane, children }: NodeRowsProps<R>) {
  const ranks = new Set(rows.map((row) => row.rank)).size > 1;
  return (
    <tbody>
      {rows.map((row) => (
        <tr key={`${row.rank} ${row.loop} ${row.name}`}>
          <td>
            <Named row={row} ranks={ranks} onLane={onLane} />
          </td>
          {children(row)}
        </tr>
      ))}
    </tbody>
  );
}

function titleOf({ rank, loop, nodes, spans }: NamedProps["row"]): string {
  return strings.trace.onRankWithValue(rank, loop && nodes ? `. ${insideWords(nodes, spans)}` : "");
}

function Figures({ rows, onLane }: { rows: readonly LaneFigures[]; onLane: NodesProps["onLane"] }) {
  const all = [...rows].sort((a, b) => b.busy - a.busy);
  return (
    <Table
      caption={strings.trace.theVisibleRangePerNode}
      columns={[
        strings.trace.node,
        strings.trace.calls2,
        { title: strings.trace.medianOfOneCall, children: "p50" },
        "p95",
        strings.trace.busy,
        strings.trace.queued,
        { title: strings.trace.meanRowsOfItsBatches, children: strings.trace.batch },
      ]}
    >
      <NodeRows rows={all} onLane={onLane}>
        {(row) => (
          <>
            {" "}
            <td>{row.calls}</td>
            <td title={row.p50 === null ? strings.trace.summaryTelemetryDoesntSeparateCalls : undefined}>
              {row.p50 === null ? `ø ${showMs(row.mean)}` : showMs(row.p50)}
            </td>
            <td>{showMs(row.p95)}</td>
            <td>{showMs(row.busy)}</td>
            <td>{showMs(row.queued)}</td>
            <td>{row.batch.toFixed(1)}</td>
          </>
        )}
      </NodeRows>
    </Table>
  );
}

function Both({ a, b }: { a: string; b: string }) {
  return (
    <td>
      <span>{a}</span> <span>→ {b}</span>
    </td>
  );
}

function Differences({ rows, onLane }: { rows: readonly Difference[]; onLane: NodesProps["onLane"] }) {
  return (
    <Table
      className="wg-table both"
      caption={strings.trace.theSecondRunAgainst}
      columns={[
        strings.trace.node,
        strings.trace.calls2,
        strings.trace.busy,
        strings.trace.change,
        strings.trace.oneCall,
      ]}
    >
      <NodeRows rows={rows} onLane={onLane}>
        {(row) => (
          <>
            {" "}
            <Both a={String(row.a?.calls ?? "–")} b={String(row.b?.calls ?? "–")} />
            <Both a={showMs(row.a?.busy ?? null)} b={showMs(row.b?.busy ?? null)} />
            <td
              className={row.busy > 0.001 ? "more" : row.busy < -0.001 ? "less" : ""}
            >{`${row.busy > 0 ? "+" : ""}${showMs(row.busy)}`}</td>
            <Both a={showMs(row.a?.mean ?? null)} b={showMs(row.b?.mean ?? null)} />
          </>
        )}
      </NodeRows>
    </Table>
  );
}

function Kept({ statistics, onLane }: { statistics: StatisticsShown; onLane: NodesProps["onLane"] }) {
  const sorted = [...statistics.nodes].sort((a, b) => b.share - a.share || b.busy - a.busy);
  const all = sorted.map((row) => ({ ...row, name: row.node }));
  return (
    <Table
      caption={strings.trace.overTheLast(plural(statistics.runs, "run"))}
      columns={[
        strings.trace.node,
        strings.trace.calls2,
        "p50",
        "p95",
        "p99",
        strings.trace.queuedP95,
        { title: strings.trace.shareOfTheCriticalPaths, children: strings.trace.share },
      ]}
    >
      <NodeRows rows={all} onLane={onLane}>
        {(row) => (
          <>
            {" "}
            <td>{row.calls}</td>
            <td>{showMs(row.p50)}</td>
            <td>{showMs(row.p95)}</td>
            <td>{showMs(row.p99)}</td>
            <td>{showMs(row.queued_p95)}</td>
            <td>{Math.round(row.share * 100)} %</td>
          </>
        )}
      </NodeRows>
    </Table>
  );
}
