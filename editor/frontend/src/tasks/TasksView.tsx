// The tasks of a graph: what clients may ask, as a list, a table of steps each, and a simulator.
import { Copy, Plus, Trash2 } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import type { Task } from "../document/types";
import type { Editor } from "../store/editor";
import { useEditor, useEditorState } from "../store/react";
import { Badge, Button, Empty, IconButton } from "../ui/kit";
import { useTaskEdits } from "./model/actions";
import { Inputs, Outputs, Session } from "./request/Declarations";
import { Params } from "./request/Params";
import { ofTask } from "./model/problems";
import { firstChoice, litSteps, placeOf, type Choice } from "./model/simulate";
import { Simulator } from "./simulator/Simulator";
import { StepTable } from "./steps/StepTable";
import { useSimulation } from "./simulator/useSimulation";
import { ProblemLines, TextCell } from "./cells/widgets";
import { strings } from "../strings";

/** State that is kept while the tab is closed. */
interface Memory {
  open: string | undefined;
  /** Task -> what was simulated. */
  choices: Map<string, Choice>;
}

const memories = new WeakMap<Editor, Memory>();

function memoryOf(editor: Editor): Memory {
  const known = memories.get(editor) ?? { open: undefined, choices: new Map() };
  memories.set(editor, known);
  return known;
}

export function TasksView() {
  const editor = useEditor();
  const graph = useEditorState((state) => state.documents.graph);
  const selection = useEditorState((state) => state.view.selection);
  const tasks = graph.tasks ?? {};
  const selected = selection.find((id) => id.startsWith("task:"))?.slice("task:".length);
  const name = [selected, memoryOf(editor).open, ...Object.keys(tasks)].find(
    (each) => each !== undefined && each in tasks,
  );
  const open = (task: string) => {
    editor.select(`task:${task}`);
  };
  useEffect(() => {
    memoryOf(editor).open = name;
  }, [editor, name]);
  const task = name === undefined ? undefined : tasks[name];
  return (
    <div className="wg-tasks">
      <div className="panes">
        <TaskList name={name} onOpen={open} />
        {name !== undefined && task ? (
          <OpenTask key={name} name={name} task={task} onOpen={open} />
        ) : (
          <NoTask onOpen={open} />
        )}
      </div>
    </div>
  );
}

function NoTask({ onOpen }: { onOpen: (task: string) => void }) {
  const edits = useTaskEdits("");
  const add = () => {
    const name = edits.addTask();
    if (name) onOpen(name);
  };
  return (
    <Empty title={strings.tasks.noTaskYet}>
      <p>{strings.tasks.aTaskIsWhatAClient}</p>
      <Button kind="primary" onClick={add}>
        <Plus size={14} aria-hidden /> {strings.tasks.addATask}
      </Button>
    </Empty>
  );
}

function TaskList({ name, onOpen }: { name: string | undefined; onOpen: (task: string) => void }) {
  const tasks = useEditorState((state) => state.documents.graph.tasks);
  const problems = useEditorState((state) => state.checked.problems);
  const edits = useTaskEdits(name ?? "");
  const add = () => {
    const made = edits.addTask();
    if (made) onOpen(made);
  };
  return (
    <nav className="wg-task-list" aria-label={strings.tasks.tasks}>
      <header>
        <h2>{strings.tasks.tasks}</h2>
        <IconButton label={strings.tasks.addATask} onClick={add}>
          <Plus size={15} />
        </IconButton>
      </header>
      <ul>
        {Object.entries(tasks ?? {}).map(([each, task]) => {
          const own = ofTask(problems, each);
          const errors = own.filter((problem) => problem.severity === "error").length;
          return (
            <li key={each}>
              <button type="button" aria-current={each === name} onClick={() => onOpen(each)}>
                <span className="name">{each}</span>
                {task.label && <span className="label">{task.label}</span>}
                {own.length > 0 && (
                  <Badge kind={errors ? "bad" : "warn"} title={strings.tasks.problems(own.length)}>
                    ! {own.length}
                  </Badge>
                )}
              </button>
            </li>
          );
        })}
      </ul>
    </nav>
  );
}

interface OpenTaskProps {
  name: string;
  task: Task;
  onOpen: (task: string) => void;
}

function OpenTask({ name, task, onOpen }: OpenTaskProps) {
  const graph = useEditorState((state) => state.documents.graph);
  const checked = useEditorState((state) => state.checked.problems);
  const problems = useMemo(() => ofTask(checked, name), [checked, name]);
  const edits = useTaskEdits(name);
  const { choices } = memoryOf(useEditor());
  const [choice, setChoice] = useState<Choice>(() => choices.get(name) ?? firstChoice(task));
  const choose = (changed: Choice) => {
    choices.set(name, changed);
    setChoice(changed);
  };
  const placement = useEditorState((state) => state.documents.placement);
  const hardware = useEditorState((state) => state.planned.hardware);
  const place = useMemo(() => placeOf(placement, hardware), [placement, hardware]);
  const simulation = useSimulation(graph, name, task, choice, place);
  const lit = useMemo(() => (simulation.last ? litSteps(simulation.last, name) : new Map()), [simulation.last, name]);
  const here = problems.filter((problem) => problem.pointer.split("/").length <= 1);
  return (
    <>
      <main className="wg-task" aria-label={strings.tasks.task(name)}>
        <TaskHead {...{ name, task, edits, onOpen }} />
        <ProblemLines problems={here} />
        <section className="wg-card" aria-label={strings.tasks.steps}>
          <header>
            <h2>{strings.tasks.steps}</h2>
            <span className="note">{strings.tasks.runInThisOrderMarks}</span>
          </header>
          <StepTable
            {...{ graph, name, task, lit }}
            problems={problems.filter((p) => p.pointer.startsWith("/steps"))}
          />
        </section>
        <Outputs {...{ graph, task, problems, edits }} />
        <Inputs {...{ task, problems, edits }} />
        <Params {...{ task, problems, edits }} />
        <Session {...{ task, problems, edits }} />
      </main>
      <Simulator {...{ name, task, choice, simulation }} onChoose={choose} />
    </>
  );
}

function TaskHead({ name, task, edits, onOpen }: OpenTaskProps & { edits: ReturnType<typeof useTaskEdits> }) {
  const rename = (to: string) => {
    if (edits.renameTask(to)) onOpen(to);
  };
  const duplicate = () => {
    const made = edits.duplicateTask();
    if (made) onOpen(made);
  };
  return (
    <header className="wg-task-head">
      <label>
        <span>{strings.tasks.name}</span>
        <TextCell mono label={strings.tasks.nameOfTheTask} value={name} onCommit={rename} />
      </label>
      <label>
        <span>{strings.tasks.title}</span>
        <TextCell
          live
          label={strings.tasks.titleOfTheTask}
          value={task.label ?? ""}
          placeholder={strings.tasks.whatItDoesInAFew}
          onCommit={(text) => edits.setTask({ label: text || undefined }, "title")}
        />
      </label>
      <div className="buttons">
        <Button onClick={duplicate}>
          <Copy size={14} aria-hidden /> {strings.tasks.duplicate}
        </Button>
        <Button kind="danger" onClick={edits.removeTask}>
          <Trash2 size={14} aria-hidden /> {strings.tasks.delete}
        </Button>
      </div>
    </header>
  );
}
