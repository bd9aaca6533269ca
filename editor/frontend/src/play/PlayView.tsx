// The playground: a deployment's tasks as forms, their outputs as they come, what was run before.
import { Braces, History as HistoryIcon, Play as PlayIcon, Rocket } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import { useStore } from "zustand";
import { call } from "../api/client";
import { equal } from "../document/diff";
import type { DeploymentShown } from "../messages/answers";
import { replayEntries } from "../debug/model/replay";
import { debuggingOf, useDebugging } from "../debug/model/state";
import { UpTo } from "../debug/UpTo";
import { standingOf } from "../session/queue";
import { useQueue } from "../session/react";
import type { Editor } from "../store/editor";
import { useDeploymentShown, useEditor, useEditorState } from "../store/react";
import { focusRun, showRun } from "../telemetry/activity";
import { download } from "../ui/handing";
import { shown } from "../ui/keys";
import { Badge, Button, Empty, IconButton, Select, Tabs } from "../ui/kit";
import { toBytes } from "../api/base64";
import { withGraph } from "./files/carry";
import { ComparePane } from "./ComparePane";
import { fresh, labelOf, pictureInput } from "./model/form";
import { HistoryPane } from "./HistoryPane";
import { wholeSound } from "./files/media";
import { QueuePane } from "./QueuePane";
import { ResultPane } from "./ResultPane";
import { drawnOf } from "./runs/drawn";
import { keyOf, playOf, type Play, type PlayState, type RunOptions } from "./runs/session";
import { SnippetDialog } from "./calls/SnippetDialog";
import { suffixOf } from "./model/suffixes";
import { traceOf } from "../trace/model/session";
import { TaskForm } from "./form/TaskForm";
import type { Made, OutputShown, Result, TaskShown } from "./model/types";
import { strings } from "../strings";

/** `alone`: on a page of its own, without an open graph. */
export function PlayView({ alone = false }: { alone?: boolean }) {
  const editor = useEditor();
  const play = playOf(editor);
  const chosen = useStore(play.store, (state) => state.chosen);
  const deployment = useDeploymentShown(chosen, alone);
  if (!deployment) return <NotDeployed play={play} alone={alone} />;
  return <Deployed key={deployment.id} deployment={deployment} play={play} alone={alone} />;
}

function NotDeployed({ play, alone }: { play: Play; alone: boolean }) {
  const editor = useEditor();
  const name = useEditorState((state) => state.name);
  const others = Object.values(useEditorState((state) => state.deployments));
  if (alone) {
    return (
      <div className="wg-view wg-play">
        <Empty title={strings.play.nothingIsDeployedYet}>{strings.play.openAGraph}</Empty>
      </div>
    );
  }
  return (
    <div className="wg-view wg-play">
      <Empty title={strings.play.isNotDeployedYet(name)}>
        <p>{strings.play.deployItToRun}</p>
        <Button kind="primary" onClick={() => void drawnOf(editor).run()}>
          <PlayIcon size={14} aria-hidden /> {strings.play.runWhatIsDrawn}
        </Button>
        <Button onClick={() => editor.see({ tab: "deploy" })}>
          <Rocket size={14} aria-hidden /> {strings.play.deploy}
        </Button>
        {others.length > 0 && (
          <p>
            {strings.play.orUseWhatAlreadyRuns}{" "}
            {others.map((other) => (
              <Button key={other.id} onClick={() => play.choose(other.id)}>
                {other.id}
              </Button>
            ))}
          </p>
        )}
      </Empty>
    </div>
  );
}

function Deployed({ deployment, play, alone }: { deployment: DeploymentShown; play: Play; alone: boolean }) {
  const { id, digest } = deployment;
  const serves = deployment.tasks.length > 0;
  const state = useStore(play.store);
  const [listed, setListed] = useState(true);
  useEffect(() => {
    if (serves) void play.load(id);
    void play.loadRows(id);
  }, [play, id, digest, serves]);
  useEffect(() => play.watch(id), [play, id]);
  const tasks = state.tasks?.of === id ? state.tasks : null;
  const task = tasks?.list.find((found) => found.name === state.task[id]) ?? tasks?.list[0] ?? null;
  return (
    <div className={`wg-view wg-play ${listed ? "listed" : ""}`}>
      <Bar deployment={deployment} task={task} tasks={tasks?.list ?? []} play={play}>
        <IconButton
          label={listed ? strings.play.hideTheRuns : strings.play.showTheRuns}
          aria-pressed={listed}
          onClick={() => setListed(!listed)}
        >
          <HistoryIcon size={16} />
        </IconButton>
      </Bar>
      {tasks?.problem && <Empty title={strings.play.itsTasksCantBeRead}>{tasks.problem}</Empty>}
      {task && (
        <Table
          key={keyOf(task)}
          task={task}
          deployment={deployment}
          play={play}
          state={state}
          listed={listed}
          alone={alone}
        />
      )}
      {!task && !tasks?.problem && <Waiting deployment={deployment} loading={serves} alone={alone} />}
    </div>
  );
}

/** True if the graph's deployment serves another graph than the one that is drawn. */
function isOlder(editor: Editor): boolean {
  const { deployed } = editor.state;
  return deployed !== null && !equal(deployed, editor.graph);
}

function nameOf({ id, scratch }: DeploymentShown): string {
  return scratch ? strings.play.whatIsDrawn : id;
}

interface BarProps {
  deployment: DeploymentShown;
  task: TaskShown | null;
  tasks: readonly TaskShown[];
  play: Play;
  children: React.ReactNode;
}

const KINDS: Record<string, string> = {
  ready: "good",
  degraded: "warn",
  starting: "busy",
  failed: "bad",
  draining: "warn",
};

function Bar({ deployment, task, tasks, play, children }: BarProps) {
  const deployments = useEditorState((state) => state.deployments);
  const ids = useMemo(() => Object.keys(deployments).sort(), [deployments]);
  const label = (found: TaskShown) => found.label || labelOf(found.name);
  return (
    <header className="wg-view-bar wg-play-bar">
      {ids.length > 1 && (
        <div className="deployment">
          <Select
            aria-label={strings.play.deployment}
            value={deployment.id}
            options={ids.map((id) => ({ value: id, label: nameOf(deployments[id]!) }))}
            onChange={(id) => play.choose(id)}
          />
        </div>
      )}
      <Badge kind={KINDS[deployment.state] ?? ""} title={deployment.reason ?? undefined}>
        {deployment.state}
      </Badge>
      {task && (
        <Tabs
          label={strings.play.tasks}
          value={task.name}
          onChange={(name) => play.see(deployment.id, name)}
          tabs={tasks.map((found) => ({ value: found.name, label: label(found), title: found.name }))}
        />
      )}
      <span className="spring" />
      {children}
    </header>
  );
}

function Waiting({ deployment, loading, alone }: { deployment: DeploymentShown; loading: boolean; alone: boolean }) {
  const editor = useEditor();
  if (loading) return <div className="wg-play-skeleton" aria-label={strings.play.loadingItsTasks} />;
  const title =
    deployment.state === "failed" ? strings.play.theDeploymentFailed : strings.play.theDeploymentHasNoTasks;
  return (
    <Empty title={title}>
      <p>{deployment.reason ?? strings.play.itIsStartingItsTasks}</p>
      {!alone && <Button onClick={() => editor.see({ tab: "deploy" })}>{strings.play.openTheDeployment}</Button>}
    </Empty>
  );
}

// ── a task ──────────────────────────────────────────────────────────────────────────────────────

interface TableProps {
  task: TaskShown;
  deployment: DeploymentShown;
  play: Play;
  state: PlayState;
  listed: boolean;
  /** There is no graph to go to. */
  alone: boolean;
}

function Table({ task, deployment, play, state, listed, alone }: TableProps) {
  const editor = useEditor();
  const key = keyOf(task);
  const given = state.forms[key] ?? fresh(task);
  const last = state.results[key] ?? null;
  const [calling, setCalling] = useState(false);
  const { queue, told } = useQueue(deployment.id);
  const run = last?.result.run ?? null;
  useEffect(() => {
    if (run !== null) queue.loadSoon();
  }, [queue, run]);
  const upTo = useDebugging((now) => now.upTo);
  const serving = deployment.state === "ready" || deployment.state === "degraded";
  const labels = useMemo(
    () => Object.fromEntries((state.tasks?.list ?? []).map((found) => [found.name, found.label])),
    [state.tasks],
  );
  const uses = useMemo(
    () =>
      (state.tasks?.list ?? []).filter(pictureInput).map((found) => ({
        label: found.label || labelOf(found.name),
        run: ({ value }: Made) =>
          play.hand(found, { mime: value.mime ?? "image/png", data: value.data ?? "", name: "picture" }),
      })),
    [state.tasks, play],
  );
  const attempt = (doing: Promise<void>) => void doing.catch((error: Error) => editor.say(error.message, "error"));
  const again = async (id: string, options: RunOptions = {}) => {
    const { result, complete } = await play.entry(id);
    await play.open(id);
    if (complete === false) return;
    const found = play.state.tasks?.list.find((one) => one.name === result.task);
    if (found) await play.run(found, options);
  };
  const busy = play.isRunning(key);
  return (
    <div className="wg-play-table">
      <div className="wg-play-left">
        <TaskForm
          task={task}
          given={given}
          busy={busy}
          blocked={serving ? null : strings.play.theDeploymentIsWaitUntil(deployment.state)}
          onChange={(change) => play.give(task, change)}
          onReset={() => play.reset(task)}
          onRun={(options) => {
            debuggingOf(editor).setState({ upTo: null });
            if (deployment.scratch || (!alone && state.chosen === null && isOlder(editor)))
              return void drawnOf(editor).run({ ...options, upTo });
            focusRun(null);
            attempt(play.run(task, { ...options, upTo }));
          }}
          onStop={() => attempt(play.stop(key))}
        >
          <UpTo />
        </TaskForm>
        <div className="call">
          <Button kind="quiet" onClick={() => setCalling(true)}>
            <Braces size={14} aria-hidden /> {strings.play.callItFromYourCode}
          </Button>
        </div>
      </div>
      <main className="wg-play-main">
        {state.compared ? (
          <ComparePane entries={state.compared} onClose={() => play.endComparing()} />
        ) : last ? (
          <ResultPane
            task={task}
            result={last.result}
            standing={standingOf(told, run)}
            muted={state.muted}
            onMute={(muted) => play.mute(muted)}
            onSave={(output, made) => attempt(save(last.result, output, made))}
            uses={uses}
            onSameSeed={() => last.result.run && attempt(again(last.result.run))}
            onRecord={() => last.result.run && attempt(again(last.result.run, { record: true }))}
            onTrace={alone ? null : () => onTrace(last.result, editor)}
            onCanvas={alone ? null : () => onCanvas(last.result, editor)}
            onNode={alone ? null : (node) => editor.open({ kind: "components" }, [`node:${node}`])}
          />
        ) : (
          <Empty title={task.label || labelOf(task.name)}>
            <p>
              {strings.play.theOutputsAppearHereFill(task.outputs.map(labelOf).join(", ").toLowerCase())}{" "}
              <kbd>{shown("Mod+Enter")}</kbd>.
            </p>
          </Empty>
        )}
      </main>
      {listed && (
        <HistoryPane
          deployment={deployment.id}
          heads={state.heads}
          rows={state.rows}
          queue={told}
          shown={run}
          comparing={state.comparing}
          labels={labels}
          onOpen={(id) => attempt(play.open(id))}
          onAgain={(id) => attempt(again(id))}
          onCompare={(id) => attempt(play.compare(id))}
          onRemove={(ids) => attempt(play.remove(ids))}
          replays={(run) =>
            replayEntries(editor, { run, deployment: deployment.id }, (made) => {
              attempt(play.loadRows(made.deployment));
              attempt(play.open(made.run));
            })
          }
        >
          <QueuePane
            queue={queue}
            told={told}
            labels={labels}
            onRefused={({ message }) => editor.say(message, "error")}
          />
        </HistoryPane>
      )}
      {calling && (
        <SnippetDialog task={task} given={given} version={deployment.digest} onClose={() => setCalling(false)} />
      )}
    </div>
  );
}

function onTrace({ run, deployment }: Result, editor: Editor): void {
  if (run !== null) traceOf(editor).lookAt(deployment, run);
  editor.see({ tab: "trace" });
}

/** The run's figures at the nodes of the graph. */
function onCanvas(result: Result, editor: Editor): void {
  const { run, deployment, task, seed, seconds, queued, times } = result;
  const state = result.state === "failed" || result.state === "cancelled" ? result.state : "done";
  const error = result.error && { ...result.error };
  const created_at = result.startedAt / 1000;
  showRun({ id: run ?? "", deployment, task, state, created_at, seconds, queued, seed, params: {}, error, times });
  editor.see({ tab: "graph" });
}

/** To a file that carries the graph of the deployment, so that dropping it on the library opens that graph. */
async function save(result: Result, output: OutputShown, made: Made): Promise<void> {
  const graph = await graphOf(result.deployment);
  const sound = made.value.type === "audio" ? wholeSound(output.made.map((piece) => piece.value)) : null;
  const bytes = sound?.bytes ?? toBytes(made.value.data ?? "");
  const mime = sound?.mime ?? made.value.mime ?? "application/octet-stream";
  const step = output.name === "preview" && made.iteration ? `-${made.iteration.join("-")}` : "";
  const name = `${result.task}-${result.seed ?? "run"}${step}${suffixOf(mime)}`;
  download(name, (graph ? withGraph(bytes, graph) : null) ?? bytes, mime);
}

/** null: the deployment is gone, and the file goes without. */
async function graphOf(deployment: string): Promise<unknown> {
  try {
    return (await call(`/api/v1/deployments/${encodeURIComponent(deployment)}/graph`)).value;
  } catch {
    return null;
  }
}
