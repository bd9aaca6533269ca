// The forms as the browser keeps them from page to page. The scratch deployment of a page has another name on the next
// one: what was given there is kept as the graph's.
import { PREFIX } from "../../session/scratch";
import { deploymentOf } from "../../store/deployments";
import type { Editor } from "../../store/editor";
import { fitted, fresh } from "../model/form";
import type { Given, TaskShown } from "../model/types";
import type { Kept } from "./kept";

/** `deployment/task` -> form. */
type Forms = Readonly<Record<string, Given>>;

export class LastingForms {
  constructor(
    private readonly editor: Editor,
    private readonly kept: Kept,
  ) {}

  isScratch(deployment: string): boolean {
    return deployment === this.editor.state.scratch?.id;
  }

  /** The values that an earlier page gave for a task; on a scratch deployment, what was given on one before it that has ended, or
   *  on the graph's own one. */
  private earlier({ deployment, name }: TaskShown, forms: Forms): Given | null {
    if (!this.isScratch(deployment)) return this.kept.form(`${deployment}/${name}`);
    const { deployments, name: graph } = this.editor.state;
    const own = `${deploymentOf(deployments, graph)?.id ?? graph}/${name}`;
    const ended = Object.keys(forms).findLast((key) => key.startsWith(PREFIX) && key.endsWith(`/${name}`));
    return (ended === undefined ? undefined : forms[ended]) ?? forms[own] ?? this.kept.form(own);
  }

  /** With a form for every task: the present one, an earlier page's, or a fresh one. */
  filled(tasks: readonly TaskShown[], forms: Forms): Forms {
    const filled = { ...forms };
    for (const task of tasks) {
      const key = `${task.deployment}/${task.name}`;
      const given = filled[key] ?? this.earlier(task, filled);
      filled[key] = given ? fitted(task, given) : fresh(task);
    }
    return filled;
  }

  write(forms: Forms): void {
    const { name: graph } = this.editor.state;
    const renamed = (key: string) => {
      const [deployment = "", task = ""] = key.split("/");
      return this.isScratch(deployment) ? `${graph}/${task}` : key;
    };
    this.kept.write(Object.fromEntries(Object.entries(forms).map(([key, given]) => [renamed(key), given])));
  }
}
