// The trace page: what ran when, on which rank; live, or of one run, or of two beside each other; why it took its time.
import { Download, Maximize2, Pause, Play, ZoomIn, ZoomOut } from "lucide-react";
import { useEffect, useMemo, useReducer, useState } from "react";
import { useStore } from "zustand";
import { send } from "../api/client";
import type { DeploymentShown } from "../messages/answers";
import { ask } from "../store/ask";
import { mark, selectedNodes } from "../store/highlight";
import { useDeploymentShown, useEditor, useEditorState } from "../store/react";
import { useWatch, watchOf } from "../store/watch";
import type { Level } from "../messages/frames";
import { download } from "../ui/handing";
import { Badge, Button, Empty, IconButton, Menu, Prose, Select, Tabs } from "../ui/kit";
import { showSeconds } from "../ui/words";
import { GanttPane, SpanWords } from "./picture/GanttPane";
import type { Piece } from "./picture/paint";
import { CalledPanel, EndsPanel, KeptPanel, LanePanel, NodesPanel, PlaybackPanel, WhyPanel } from "./panels";
import { BlockPanel } from "./BlockPanel";
import { Clocks } from "./Clocks";
import { ProfilePanel } from "./ProfilePanel";
import { RunsPane } from "./RunsPane";
import { traceOf, type Shown, type Side, type TraceSession, type TraceState, type Which } from "./model/session";
import { around, showMicros } from "./model/span";
import type { Timeline } from "./model/timeline";
import type { WhyPiece } from "./model/types";
import { LEVELS } from "./model/words";
import { strings } from "../strings";

/** Tables of live work are made anew so often. */
const TABLE_MS = 1000;

/** `alone`: on a page of its own, without an open graph. */
export function TraceView({ alone = false }: { alone?: boolean }) {
  const editor = useEditor();
  const session = traceOf(editor);
  const name = useEditorState((state) => state.name);
  const chosen = useStore(session.store, (state) => state.chosen);
  const deployment = useDeploymentShown(chosen, alone);
  if (deployment) return <Traced key={deployment.id} deployment={deployment} session={session} alone={alone} />;
  return (
    <div className="wg-view wg-trace">
      <Empty title={alone ? strings.trace.nothingIsDeployedYet : strings.trace.isNotDeployedYet(name)}>
        <p>{strings.trace.theCallsOfRunningRequests}</p>
        {!alone && (
          <Button kind="primary" onClick={() => editor.see({ tab: "deploy" })}>
            {strings.trace.deploy}
          </Button>
        )}
      </Empty>
    </div>
  );
}

interface TracedProps {
  deployment: DeploymentShown;
  session: TraceSession;
  alone: boolean;
}

function Traced({ deployment, session, alone }: TracedProps) {
  const editor = useEditor();
  const { id } = deployment;
  const state = useStore(session.store);
  useEffect(() => session.open(id), [session, id]);
  const [path, drawPath] = useState(true);
  const live = state.run === null;
  const { timeline } = session;
  const version = useVersion(session, live);
  useCanvasSelection(alone);
  const devices = useDevices(deployment, state.shown);
  const piecesA = useMemo(() => pieces(state.shown), [state.shown]);
  const model = session.modelOf("a");
  const go = (block: number, of: Which) => {
    const target = session.modelOf(of);
    session.select(block, of);
    session.setFollow(false);
    timeline.set(around(timeline.span, { from: target.started.at(block), to: target.finished.at(block) }));
  };
  return (
    <div className="wg-view wg-trace">
      <Bar deployment={deployment} session={session} state={state} timeline={timeline} />
      <div className="wg-trace-table">
        <RunsPane session={session} state={state} deployment={id} editor={editor} />
        <main className="wg-trace-main">
          {state.shown && <Head shown={state.shown} />}
          {live && model.size === 0 && <Waiting deployment={id} />}
          {state.refused ? (
            <Empty title={strings.trace.thisRunsTraceCant}>{state.refused}</Empty>
          ) : state.loading && !state.shown ? (
            <div className="wg-trace-skeleton" role="status" aria-label={strings.trace.theTraceIsBeingRead} />
          ) : (
            <>
              <GanttPane
                key={`a ${live}`}
                session={session}
                of="a"
                model={model}
                timeline={timeline}
                label={
                  state.shown
                    ? labelOf(state.shown)
                    : live
                      ? strings.trace.liveAllRuns2
                      : strings.trace.run(state.run?.slice(0, 8))
                }
                devices={devices}
                path={path && state.side === "why" ? piecesA : null}
                live={live}
              />
              {state.other && (
                <GanttPane
                  key="b"
                  session={session}
                  of="b"
                  model={state.other.model}
                  timeline={timeline}
                  label={labelOf(state.other)}
                  devices={devices}
                  path={null}
                  live={false}
                />
              )}
            </>
          )}
        </main>
        <SidePane
          session={session}
          state={state}
          version={version}
          path={path}
          drawPath={drawPath}
          go={go}
          alone={alone}
        />
      </div>
    </div>
  );
}

// ── the bar ─────────────────────────────────────────────────────────────────────────────────────

interface BarProps {
  deployment: DeploymentShown;
  session: TraceSession;
  state: TraceState;
  timeline: Timeline;
}

function Bar({ deployment, session, state, timeline }: BarProps) {
  const deployments = useEditorState((all) => all.deployments);
  const ids = useMemo(() => Object.keys(deployments).sort(), [deployments]);
  const live = state.run === null;
  const still = (move: () => void) => () => {
    session.setFollow(false);
    move();
  };
  return (
    <header className="wg-view-bar wg-trace-bar">
      {ids.length > 1 && (
        <div className="deployment">
          <Select
            aria-label={strings.trace.deployment}
            value={deployment.id}
            options={ids}
            onChange={(id) => session.choose(id)}
          />
        </div>
      )}
      <LevelSwitch deployment={deployment.id} />
      <span className="spring" />
      {live && (
        <Button aria-pressed={state.follow} onClick={() => session.setFollow(!state.follow)}>
          {state.follow ? <Pause size={14} aria-hidden /> : <Play size={14} aria-hidden />}
          {state.follow ? strings.trace.hold : strings.trace.follow}
        </Button>
      )}
      <SpanWords timeline={timeline} />
      <IconButton label={strings.trace.zoom} onClick={still(() => timeline.zoom(1 / 1.6))}>
        <ZoomIn size={16} />
      </IconButton>
      <IconButton label={strings.trace.zoomOut} onClick={still(() => timeline.zoom(1.6))}>
        <ZoomOut size={16} />
      </IconButton>
      <IconButton label={strings.trace.showAllOfIt0} onClick={still(() => timeline.fit())}>
        <Maximize2 size={15} />
      </IconButton>
      <Export run={state.shown?.trace.run ?? null} />
    </header>
  );
}

function LevelSwitch({ deployment }: { deployment: string }) {
  const editor = useEditor();
  const { level, problem } = useWatch(deployment);
  const set = (value: Level) => void ask(editor, () => watchOf(deployment).setLevel(value));
  return (
    <div className="wg-trace-level">
      <span className="label">{strings.trace.telemetry2}</span>
      <Tabs
        label={strings.trace.telemetry2}
        value={level ?? ("" as Level)}
        onChange={set}
        tabs={(["off", "summary", "full"] as const).map((value) => ({ value, label: value, title: LEVELS[value] }))}
      />
      <small title={problem ?? undefined}>{level ? LEVELS[level] : (problem ?? "")}</small>
    </div>
  );
}

const EXPORTS = [
  { label: strings.trace.perfettoChromeJson, query: "?format=perfetto", name: "perfetto.json" },
  { label: strings.trace.opentelemetryOtlpJson, query: "?format=otlp", name: "otlp.json" },
  { label: strings.trace.traceAsJson, query: "", name: "trace.json" },
];

function Export({ run }: { run: string | null }) {
  const editor = useEditor();
  const [at, open] = useState<{ x: number; y: number } | null>(null);
  const save = (query: string, name: string) =>
    ask(editor, async () => {
      const answer = await send(`/api/v1/runs/${encodeURIComponent(run ?? "")}/trace${query}`);
      download(`${run?.slice(0, 8)}.${name}`, await answer.blob(), "application/json");
    });
  return (
    <>
      <Button
        disabled={run === null}
        title={run === null ? strings.trace.chooseARunToExport : strings.trace.saveThisRunsTrace}
        aria-haspopup="menu"
        onClick={(event) => {
          const { left, bottom } = event.currentTarget.getBoundingClientRect();
          open({ x: left, y: bottom });
        }}
      >
        <Download size={14} aria-hidden /> {strings.trace.export}
      </Button>
      {at && (
        <Menu
          at={at}
          entries={EXPORTS.map(({ label, query, name }) => ({ label, run: () => void save(query, name) }))}
          onClose={() => open(null)}
        />
      )}
    </>
  );
}

/** Over the empty picture. */
function Waiting({ deployment }: { deployment: string }) {
  const { level } = useWatch(deployment);
  return (
    <p className="wg-trace-waiting" role="status">
      {level === "off" ? strings.trace.telemetryIsOffSet : strings.trace.runsAreDrawnHereWhile}
    </p>
  );
}

/** `started after 20 ms, first output after 61 ms`. */
function phaseWords({ started, first_output: first }: Record<string, number>): string {
  const words = [
    // Else it did not wait.
    started !== undefined && started >= 1000 && strings.trace.startedAfter(showMicros(started)),
    first !== undefined && strings.trace.firstOutputAfter(showMicros(first)),
  ];
  return words.filter(Boolean).join(", ");
}

function Head({ shown: { trace } }: { shown: Shown }) {
  return (
    <div className="wg-trace-head">
      <strong>{trace.task}</strong> <code>{trace.run.slice(0, 8)}</code>
      <span>{showSeconds(trace.seconds)}</span>
      <small>{phaseWords(trace.phases)}</small>
      {trace.state !== "done" && (
        <Badge kind={trace.state === "failed" ? "bad" : trace.state === "running" ? "busy" : "warn"}>
          {trace.error ?? trace.state}
        </Badge>
      )}
      {trace.level !== "full" && (
        <Badge title={strings.trace.callsAreSummedNotReported}>{strings.trace.telemetryWithLevel(trace.level)}</Badge>
      )}
      {trace.lost > 0 && (
        <Badge kind="warn" title={strings.trace.eventsThatWereDroppedDuring}>
          {strings.trace.lost(trace.lost)}
        </Badge>
      )}
      {trace.cut && (
        <Badge kind="warn" title={strings.trace.theRunHasMoreBlocks}>
          {strings.trace.cut}
        </Badge>
      )}
      <Clocks trace={trace} />
    </div>
  );
}

// ── the side ────────────────────────────────────────────────────────────────────────────────────

const SIDES: readonly { value: Side; label: string }[] = [
  { value: "details", label: strings.trace.details },
  { value: "why", label: strings.trace.whySlow },
  { value: "nodes", label: strings.trace.nodes },
];

interface SideProps {
  session: TraceSession;
  state: TraceState;
  version: number;
  path: boolean;
  drawPath: (shown: boolean) => void;
  go: (block: number, of: Which) => void;
  alone: boolean;
}

function SidePane({ session, state, version, path, drawPath, go, alone }: SideProps) {
  const editor = useEditor();
  const { side, selected, shown } = state;
  const of = state.lane?.of ?? "a";
  const model = session.modelOf(of);
  const lane = state.lane === null ? null : (model.lanes[state.lane.index] ?? null);
  const onCanvas = (nodes: readonly string[]) => {
    editor.open(
      { kind: "components" },
      nodes.map((node) => `node:${node}`),
    );
    mark(nodes);
  };
  const onPiece = (piece: WhyPiece) => {
    const block = piece.block ?? (piece.hop === null ? null : session.blockOfHop(piece.hop));
    if (block !== null) go(block, "a");
  };
  /** In the first of two runs, where it is there. */
  const onLane = ({ rank, name, loop }: { rank: number; name: string; loop: boolean }) => {
    for (const side of ["a", "b"] as const) {
      const { lanes } = session.modelOf(side);
      const found = lanes.find((each) => each.rank === rank && each.name === name && each.loop === loop);
      if (found) return session.selectLane(found.index, side);
    }
  };
  return (
    <aside className="wg-trace-side" aria-label={strings.trace.aboutTheTrace}>
      <Tabs label={strings.trace.aboutTheTrace} value={side} onChange={(value) => session.see(value)} tabs={SIDES} />
      <div className="inside">
        {side === "why" &&
          (shown ? (
            <>
              {shown.why && <ProfilePanel profile={shown.why.profile} />}
              <WhyPanel shown={shown} path={path} onPath={drawPath} onPiece={onPiece} />
            </>
          ) : (
            <Empty title={strings.trace.whySlow}>{strings.trace.chooseAFinishedRun}</Empty>
          ))}
        {side === "nodes" && (
          <NodesPanel
            model={session.modelOf("a")}
            version={version}
            other={state.other?.model ?? null}
            statistics={state.statistics}
            onLane={onLane}
          />
        )}
        {side === "details" && selected && selected.block < model.size && (
          <BlockPanel
            model={model}
            block={selected.block}
            links={session.linksOf(selected.block, of)}
            onBlock={(block) => go(block, of)}
            onCanvas={alone ? null : onCanvas}
          />
        )}
        {side === "details" && (
          <CalledPanel
            called={(shown?.trace.called ?? []).filter(({ node }) => lane === null || lane.nodes.includes(node))}
            onRun={(run) => void session.show(run)}
          />
        )}
        {side === "details" && lane === null && <EndsPanel ends={shown?.trace.ends ?? []} />}
        {side === "details" && lane === null && <PlaybackPanel played={shown?.trace.played} />}
        {side === "details" && lane === null && <KeptPanel kept={shown?.trace.kept ?? []} />}
        {side === "details" && lane && (
          <LanePanel
            key={`${of} ${lane.index}`}
            model={model}
            lane={lane}
            version={version}
            selected={selected?.block ?? null}
            onBlock={(block) => go(block, of)}
          />
        )}
        {side === "details" && !selected && !lane && (
          <Empty title={strings.trace.nothingChosen}>
            <Prose text={strings.trace.selectABlock} />
          </Empty>
        )}
      </div>
    </aside>
  );
}

// ── inside ──────────────────────────────────────────────────────────────────────────────────────

/** Grows with live events, once a second. */
function useVersion(session: TraceSession, live: boolean): number {
  const [version, next] = useReducer((before: number) => before + 1, 0);
  useEffect(() => {
    if (!live) return;
    const timer = setInterval(next, TABLE_MS);
    return () => clearInterval(timer);
  }, [session, live]);
  return version;
}

/** Marks the selection of the canvas. */
function useCanvasSelection(alone: boolean): void {
  const graph = useEditorState((state) => state.documents.graph);
  const view = useEditorState((state) => state.view);
  useEffect(() => {
    if (alone) return;
    const nodes = selectedNodes(graph, view);
    if (nodes.length) mark(nodes);
  }, [alone, graph, view]);
}

function useDevices(deployment: DeploymentShown, shown: Shown | null): readonly string[] {
  return useMemo(() => {
    if (shown?.trace.devices?.length) return shown.trace.devices;
    const devices: string[] = [];
    for (const { rank, device } of deployment.ranks) devices[rank] = device ?? "";
    return devices;
  }, [deployment, shown]);
}

function labelOf({ trace: { run, seconds } }: Shown): string {
  return strings.trace.runWithSeconds(run.slice(0, 8), showSeconds(seconds));
}

function pieces(shown: Shown | null): readonly Piece[] {
  return (shown?.why?.path ?? []).map(({ began, ended, block, kind }) => ({ from: began, to: ended, block, kind }));
}
