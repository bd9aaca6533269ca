// Runs what is drawn: on the page's scratch deployment, with the task and the form that Play shows.
import { createStore, type StoreApi } from "zustand/vanilla";
import { ApiError, call } from "../../api/client";
import { split } from "../../document/pointer";
import type { GraphDocument } from "../../document/types";
import { serve } from "../../session/scratch";
import { deploymentOf } from "../../store/deployments";
import type { Editor } from "../../store/editor";
import { go, locate } from "../../store/locate";
import { focusRun } from "../../telemetry/activity";
import { fresh, judge, labelOf } from "../model/form";
import type { Result, TaskShown } from "../model/types";
import { keyOf, playOf, type Play, type RunOptions } from "./session";
import { strings } from "../../strings";

/** Shown while the service takes longer to serve a graph than a person notices. */
const NOTICED_MS = 300;

interface DrawnState {
  /** The service is making what is drawn ready. */
  preparing: boolean;
}

export class Drawn {
  readonly store: StoreApi<DrawnState> = createStore(() => ({ preparing: false }));
  private asked = false;

  constructor(
    private readonly editor: Editor,
    private readonly play: Play,
  ) {}

  /** Never raises: what is wrong is shown at its place. */
  async run(options: RunOptions = {}): Promise<void> {
    if (this.asked) return;
    const { checked, documents } = this.editor.state;
    const known = checked.problems.find((problem) => problem.severity === "error");
    if (known && checked.of === documents.graph) return this.showProblem(`/graph${known.pointer}`, known.message);
    this.asked = true;
    const noticed = setTimeout(() => this.store.setState({ preparing: true }), NOTICED_MS);
    let task: TaskShown | null = null;
    try {
      task = await this.ready();
    } catch (error) {
      this.refused(error);
    } finally {
      clearTimeout(noticed);
      this.store.setState({ preparing: false });
      this.asked = false;
    }
    if (task) await this.start(task, options);
  }

  /** The task to run, once what is drawn is served; null: there is none, or its form lacks something. */
  private async ready(): Promise<TaskShown | null> {
    const { editor, play } = this;
    const wanted = this.taskInPlay();
    const before = editor.state.scratch?.graph;
    const { documents } = editor.state;
    const { id, state, reason } = await serve(editor, documents);
    if (state === "failed") throw new Error(reason ?? strings.play.theDeploymentFailed);
    const known = play.state.tasks;
    const same = known?.of === id && !known.problem && before && haveSameTasks(before, documents.graph);
    const tasks = same ? known.list : (await call<TaskShown[]>(`/v1/tasks/${encodeURIComponent(id)}`)).value;
    play.choose(id);
    if (!same) play.know(id, tasks);
    const task = tasks.find((found) => found.name === wanted) ?? tasks[0] ?? null;
    if (!task) {
      editor.see({ tab: "tasks" });
      editor.say(strings.play.thereIsNoTaskToRun, "error");
      return null;
    }
    play.see(id, task.name);
    if (Object.keys(judge(task, play.state.forms[keyOf(task)] ?? fresh(task))).length === 0) return task;
    editor.see({ tab: "play" });
    editor.say(strings.play.fillInTheForm(task.label || labelOf(task.name)));
    return null;
  }

  private async start(task: TaskShown, options: RunOptions): Promise<void> {
    focusRun(null);
    // A changed graph ends the run that was under way.
    await this.play.over(keyOf(task));
    await this.play.run(task, options);
    const made = this.play.state.results[keyOf(task)];
    if (made && this.editor.state.view.tab !== "play") this.tell(task, made.result);
  }

  private tell(task: TaskShown, { state, seconds, error }: Result): void {
    const name = task.label || labelOf(task.name);
    if (state === "done") this.editor.say(strings.play.isDoneSeePlay(name, seconds));
    else if (error && error.code !== "cancelled") this.editor.say(error.message, "error");
  }

  /** The name of the task that Play shows or showed last: of the scratch deployment, or of the graph's own. */
  private taskInPlay(): string | undefined {
    const { scratch, deployments, name } = this.editor.state;
    const { task, chosen } = this.play.state;
    const own = deploymentOf(deployments, name)?.id ?? name;
    return [chosen, scratch?.id, own].flatMap((id) => (id ? (task[id] ?? []) : []))[0];
  }

  private refused(error: unknown): void {
    const [problem] = error instanceof ApiError ? error.problems : [];
    if (problem) this.showProblem(problem.pointer, problem.message);
    else this.editor.say(error instanceof Error ? error.message : String(error), "error");
  }

  /** `pointer`: starts with `/graph` or `/placement`. */
  private showProblem(pointer: string, message: string): void {
    const { editor } = this;
    if (split(pointer)[0] === "graph") go(editor, locate(editor.graph, pointer.slice("/graph".length)));
    else editor.see({ tab: "placement" });
    editor.say(message, "error");
  }
}

/** Only what no task is told by differs: parameters of nodes, places on the canvas, nodes that are new. */
function haveSameTasks(before: GraphDocument, now: GraphDocument): boolean {
  if (before === now) return true;
  const { nodes: were = {}, layout: _was, ...others } = before;
  const { nodes = {}, layout: _is, ...rest } = now;
  const keys = [...new Set([...Object.keys(others), ...Object.keys(rest)])] as (keyof typeof rest)[];
  return (
    keys.every((key) => others[key] === rest[key]) &&
    Object.entries(were).every(([name, { component }]) => nodes[name]?.component === component)
  );
}

const all = new WeakMap<Editor, Drawn>();

/** The object that runs the graph of an editor: the same each time. */
export function drawnOf(editor: Editor): Drawn {
  let drawn = all.get(editor);
  if (!drawn) all.set(editor, (drawn = new Drawn(editor, playOf(editor))));
  return drawn;
}
