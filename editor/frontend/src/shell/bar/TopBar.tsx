// The bar: which document, how it stands, where to go, run and deploy.
import { CircleAlert, Ellipsis, Play, Redo2, Rocket, TriangleAlert, Undo2, Wifi, WifiOff } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { useStore } from "zustand";
import { deploymentOf } from "../../store/deployments";
import { useEditor, useEditorState } from "../../store/react";
import type { Tab } from "../../store/types";
import { useConnection } from "../../api/socket";
import { Button, IconButton, Menu, Tabs, type MenuEntry } from "../../ui/kit";
import { drawnOf } from "../../play/runs/drawn";
import { problemCount } from "../../ui/words";
import type { Commands } from "./commands";
import { deployWords } from "./deploying";
import { hint } from "../../ui/keys";
import { setPanes, useKeys } from "../../store/preferences";
import { SaveState } from "./SaveState";
import { strings } from "../../strings";

const TABS: readonly { value: Tab; label: string; title: string }[] = [
  { value: "graph", label: strings.shell.graph, title: strings.shell.componentsAndWalks },
  { value: "tasks", label: strings.shell.tasks, title: strings.shell.whichWalksAnswerWhichRequest },
  { value: "placement", label: strings.shell.placement, title: strings.shell.whichGpuRunsWhat },
  { value: "deploy", label: strings.shell.deploy, title: strings.shell.whatRunsAndItsState },
  { value: "play", label: strings.shell.play, title: strings.shell.tryTheTasks },
  { value: "trace", label: strings.shell.trace, title: strings.shell.whenEachCallRan },
];

export function TopBar({ commands }: { commands: Commands }) {
  const editor = useEditor();
  const name = useEditorState((state) => state.name);
  const tab = useEditorState((state) => state.view.tab);
  return (
    <header className="wg-topbar">
      <div className="who">
        <h1 title={name}>{name}</h1>
        <SaveState onConflict={commands.conflict} />
      </div>
      <Tabs label={strings.shell.views} value={tab} onChange={(value) => editor.see({ tab: value })} tabs={TABS} />
      <div className="does">
        <History />
        <Problems />
        <Connection />
        <span className="line" aria-hidden />
        <RunButton commands={commands} />
        <DeployButton commands={commands} />
        <More commands={commands} />
      </div>
    </header>
  );
}

function History() {
  const editor = useEditor();
  const keys = useKeys();
  const undo = useEditorState((state) => state.past.at(-1));
  const redo = useEditorState((state) => state.future.at(-1));
  const label = (verb: string, step: { label: string } | undefined, key: string) =>
    step ? `${verb}: ${step.label} (${key})` : strings.shell.nothing(verb.toLowerCase());
  return (
    <>
      <IconButton
        label={label(strings.shell.undo, undo, hint("undo", keys))}
        disabled={!undo}
        onClick={() => editor.undo()}
      >
        <Undo2 size={16} />
      </IconButton>
      <IconButton
        label={label(strings.shell.redo, redo, hint("redo", keys))}
        disabled={!redo}
        onClick={() => editor.redo()}
      >
        <Redo2 size={16} />
      </IconButton>
    </>
  );
}

function Problems() {
  const editor = useEditor();
  const { problems } = useEditorState((state) => state.checked);
  const errors = problems.filter((problem) => problem.severity === "error").length;
  const warnings = problems.length - errors;
  if (problems.length === 0) return null;
  const words = problemCount(errors, warnings);
  const show = () => {
    setPanes({ bottomOpen: true });
    editor.see({ tab: "graph" });
  };
  return (
    <Button kind="quiet" className="wg-count" aria-label={strings.shell.showThem(words)} title={words} onClick={show}>
      {errors > 0 && (
        <span className="bad">
          <CircleAlert size={14} aria-hidden /> {errors}
        </span>
      )}
      {warnings > 0 && (
        <span className="warn">
          <TriangleAlert size={14} aria-hidden /> {warnings}
        </span>
      )}
    </Button>
  );
}

function Connection() {
  const { state, latency } = useConnection();
  if (state === "open") {
    const words =
      latency === undefined
        ? strings.shell.connectedToTheService
        : strings.shell.connectedToTheServiceLatency(latency);
    return (
      <span className="wg-link" title={words}>
        <Wifi size={14} aria-label={words} role="img" />
        {latency !== undefined && <span aria-hidden>{strings.shell.ms(latency)}</span>}
      </span>
    );
  }
  return (
    <span className="wg-link lost" role="status" title={strings.shell.liveFiguresPauseUntil}>
      <WifiOff size={14} aria-hidden />{" "}
      {state === "connecting" ? strings.shell.reconnecting : strings.shell.notConnected}
    </span>
  );
}

function RunButton({ commands }: { commands: Commands }) {
  const keys = useKeys();
  const { preparing } = useStore(drawnOf(useEditor()).store);
  return (
    <Button title={strings.shell.runWhatIsDrawn(hint("run", keys))} aria-busy={preparing} onClick={commands.run}>
      {preparing ? <span className="spinner" aria-hidden /> : <Play size={14} aria-hidden />} {strings.shell.run}
    </Button>
  );
}

function DeployButton({ commands }: { commands: Commands }) {
  const keys = useKeys();
  const name = useEditorState((state) => state.name);
  const deployments = useEditorState((state) => state.deployments);
  const deployed = useEditorState((state) => state.deployed);
  const graph = useEditorState((state) => state.documents.graph);
  const deployment = deploymentOf(deployments, name);
  const words = useMemo(() => deployWords(deployment, deployed, graph), [deployment, deployed, graph]);
  return (
    <Button
      kind={words.kind === "" || words.kind === "warn" ? "primary" : "plain"}
      className={`wg-deploy-button ${words.kind}`}
      title={`${words.title} (${hint("deploy", keys)})`}
      onClick={commands.deploy}
    >
      <Rocket size={14} aria-hidden /> {words.label}
    </Button>
  );
}

function More({ commands }: { commands: Commands }) {
  const keys = useKeys();
  const button = useRef<HTMLSpanElement>(null);
  const [at, open] = useState<{ x: number; y: number } | null>(null);
  const entries: MenuEntry[] = [
    { label: strings.shell.saveAVersion, run: commands.version, keys: hint("version", keys) },
    { label: strings.shell.downloadAsJson, run: commands.download },
    ...(commands.restoreOriginal ? [{ label: strings.shell.restoreTheOriginal, run: commands.restoreOriginal }] : []),
    { label: strings.shell.findAnything, run: commands.find, keys: hint("find", keys), apart: true },
    { label: strings.shell.focusMode, run: commands.focus, keys: hint("focus", keys) },
    { label: strings.shell.keyboard, run: commands.sheet, keys: hint("sheet", keys) },
  ];
  const show = () => {
    const box = button.current?.getBoundingClientRect();
    if (box) open({ x: box.right - 220, y: box.bottom + 4 });
  };
  return (
    <span ref={button}>
      <IconButton label={strings.shell.more} aria-haspopup="menu" aria-expanded={at !== null} onClick={show}>
        <Ellipsis size={16} />
      </IconButton>
      {at && <Menu at={at} entries={entries} onClose={() => open(null)} />}
    </span>
  );
}
