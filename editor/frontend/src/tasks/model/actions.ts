// The edits of one task as the views call them: undoable, with a label; what is impossible is said, not thrown.
import { useMemo } from "react";
import { caseName } from "../../document/edits/heads";
import * as edits from "../../document/edits/tasks";
import { EditRefused } from "../../document/edits/parts/records";
import { freshName } from "../../document/names";
import { at } from "../../document/pointer";
import type {
  ApproveStep,
  ChooseStep,
  GraphDocument,
  Literal,
  LoopStep,
  Pointer,
  Step,
  Task,
  TaskInput,
  TaskParam,
  WalkStep,
} from "../../document/types";
import type { Editor } from "../../store/editor";
import { useEditor } from "../../store/react";
import { choiceCases, firstShown, rebound, startFor, suggested } from "./bindings";
import * as lanes from "./lanes";
import type { Branch } from "../../document/edits/parts/steps";
import type { GivingRow, Slot } from "./rows";
import { strings } from "../../strings";

export function useTaskEdits(name: string) {
  const editor = useEditor();
  return useMemo(() => taskEdits(editor, name), [editor, name]);
}

function taskEdits(editor: Editor, name: string) {
  /** True if it was done. */
  const apply = (label: string, change: (graph: GraphDocument) => GraphDocument, merge?: string): boolean => {
    try {
      editor.editGraph(label, change, merge && `task ${name} ${merge}`);
      return true;
    } catch (error) {
      if (!(error instanceof EditRefused)) throw error;
      editor.say(error.message, "error");
      return false;
    }
  };
  const named = (label: string, change: (graph: GraphDocument) => { graph: GraphDocument; name: string }) => {
    let made: string | null = null;
    const done = apply(label, (graph) => {
      const { graph: changed, name } = change(graph);
      made = name;
      return changed;
    });
    return done ? (made as string | null) : null;
  };
  const setStep = (pointer: Pointer, fields: Partial<WalkStep>, merge?: string) =>
    apply(strings.tasks.changeAStep, (graph) => edits.setStep(graph, name, pointer, fields), merge);
  const insertStep = (slot: Slot, step: Step) =>
    apply(strings.tasks.addAStep, (graph) => edits.insertStep(graph, name, `${slot.list}/${slot.index}`, step));
  const setTask = (fields: Partial<Task>, merge?: string) =>
    apply(strings.tasks.changeATask, (graph) => edits.setTask(graph, name, fields), merge);
  const task = () => editor.graph.tasks?.[name];
  const taken = () => [...Object.keys(task()?.inputs ?? {}), ...Object.keys(task()?.params ?? {}), "seed"];

  return {
    addTask: () => named(strings.tasks.addATask, (graph) => edits.addTask(graph)),
    duplicateTask: () => named(strings.tasks.duplicateATask, (graph) => edits.duplicateTask(graph, name)),
    renameTask: (to: string) => apply(strings.tasks.renameATask, (graph) => edits.renameTask(graph, name, to)),
    removeTask: () => {
      if (apply(strings.tasks.deleteATask, (graph) => edits.removeTask(graph, name)))
        editor.say(strings.tasks.theTaskWasDeletedUndo(name));
    },
    setTask,
    setSession: (session: Task["session"]) => setTask({ session: session ?? undefined }),
    setOutput: (output: string, on: boolean) => {
      const outputs = (task()?.outputs ?? []).filter((each) => each !== output);
      setTask({ outputs: on ? [...outputs, output] : outputs });
    },

    addInput: () =>
      apply(strings.tasks.addAnInput, (graph) =>
        edits.addTaskInput(graph, name, freshName("input", taken()), { modality: "text" }),
      ),
    setInput: (input: string, fields: Partial<TaskInput>, merge?: string) =>
      apply(strings.tasks.changeAnInput, (graph) => edits.setTaskInput(graph, name, input, fields), merge),
    renameInput: (from: string, to: string) =>
      apply(strings.tasks.renameAnInput, (graph) => edits.renameTaskInput(graph, name, from, to)),
    removeInput: (input: string) =>
      apply(strings.tasks.removeAnInput, (graph) => edits.removeTaskInput(graph, name, input)),

    addParam: () =>
      apply(strings.tasks.addAParameter, (graph) =>
        edits.addTaskParam(graph, name, freshName("param", taken()), { type: "integer", default: 0 }),
      ),
    setParam: (param: string, fields: Partial<TaskParam>, merge?: string) =>
      apply(strings.tasks.changeAParameter, (graph) => edits.setTaskParam(graph, name, param, fields), merge),
    renameParam: (from: string, to: string) =>
      apply(strings.tasks.renameAParameter, (graph) => edits.renameTaskParam(graph, name, from, to)),
    removeParam: (param: string) =>
      apply(strings.tasks.removeAParameter, (graph) => edits.removeTaskParam(graph, name, param)),

    insertStep,
    /** A step that takes from the request what fits. */
    insertWalk: (slot: Slot, walk: string) => insertStep(slot, suggestedStep(slot, walk)),
    /** A loop around such a step. */
    insertLoop: (slot: Slot, walk: string) => insertStep(slot, { loop: [suggestedStep(slot, walk)], times: "3" }),
    setStep,
    setWalk: (pointer: Pointer, walk: string) => {
      const step = at(task(), pointer) as WalkStep | undefined;
      const inputs = editor.graph.walks?.[walk]?.inputs ?? {};
      const kept = Object.entries(step?.with ?? {}).filter(([input]) => input in inputs);
      setStep(pointer, { walk, with: kept.length > 0 ? Object.fromEntries(kept) : undefined });
    },
    nameStep: (row: GivingRow, to: string | undefined) =>
      apply(strings.tasks.nameAStep, (graph) => {
        const found = graph.tasks?.[name];
        if (!found) return graph;
        const made = edits.setStep(graph, name, row.pointer, { as: to });
        return rebound(found, row, to ?? (row.kind === "walk" ? row.step.walk : "")).reduce(
          (changed, { pointer, fields }) => edits.setStep(changed, name, pointer, fields),
          made,
        );
      }),
    bind: (pointer: Pointer, input: string, value: Literal | undefined) => {
      const step = at(task(), pointer) as WalkStep | undefined;
      const { [input]: _, ...rest } = step?.with ?? {};
      const bound = value === undefined ? rest : { ...step?.with, [input]: value };
      const fields = { with: Object.keys(bound).length > 0 ? bound : undefined };
      const found = task();
      const begun = found && startFor(editor.graph, editor.state.catalogue, found, pointer, input, value);
      apply(strings.tasks.changeAStep, (graph) => {
        const made = edits.setStep(graph, name, pointer, fields);
        return begun ? edits.setStep(made, name, begun.pointer, { start: begun.start }) : made;
      });
    },
    removeStep: (pointer: Pointer) =>
      void apply(strings.tasks.deleteAStep, (graph) => edits.removeStep(graph, name, pointer)),
    moveStep: (from: Pointer, slot: Slot) =>
      apply(strings.tasks.moveAStep, (graph) => edits.moveStep(graph, name, from, `${slot.list}/${slot.index}`)),
    replaceStep: (pointer: Pointer, step: Step) =>
      apply(strings.tasks.changeAStep, (graph) =>
        edits.insertStep(edits.removeStep(graph, name, pointer), name, pointer, step),
      ),
    addPart: (pointer: Pointer, kind: Branch) => setBlock(pointer, { [kind]: [] }),
    removePart: (pointer: Pointer, kind: Branch) => setBlock(pointer, { [kind]: undefined }),

    /** A choice with two cases, by nothing yet; around a step if there is one. */
    insertChoice: (slot: Slot) => insertStep(slot, { choose: "", cases: { a: [], b: [] } }),
    /** Cases that nobody has named or filled are those of the value, where they are known. */
    setChoice: (pointer: Pointer, value: string) => {
      const found = task();
      const step = at(found, pointer) as ChooseStep | undefined;
      if (!found || !step) return;
      const known = choiceCases(editor.graph, editor.state.catalogue, found, value);
      const names = Object.keys(step.cases ?? {});
      const untouched = names.every((each, index) => each === caseName(index));
      const filled = names.findLastIndex((each) => step.cases[each]!.length > 0) + 1;
      const fresh = untouched && known.length >= Math.max(filled, 1);
      const cases = fresh
        ? Object.fromEntries(known.map((each, index) => [each, step.cases[names[index] ?? ""] ?? []]))
        : step.cases;
      apply(strings.tasks.setWhatAChoiceGoesBy, (graph) =>
        edits.setStep(graph, name, pointer, { choose: value, cases }),
      );
    },
    addCase: (pointer: Pointer) => {
      const found = task();
      const step = at(found, pointer) as ChooseStep | undefined;
      if (!found || !step) return;
      const taken = Object.keys(step.cases ?? {});
      const known = choiceCases(editor.graph, editor.state.catalogue, found, step.choose);
      let number = 0;
      while (taken.includes(caseName(number))) number += 1;
      const made = known.find((each) => !taken.includes(each)) ?? caseName(number);
      setBlock(pointer, { cases: { ...step.cases, [made]: [] } });
    },
    addOtherwise: (pointer: Pointer) => setBlock(pointer, { otherwise: [] }),
    nameCase: (pointer: Pointer, from: string, to: string) =>
      apply(strings.tasks.nameACase, (graph) => edits.renameStepCase(graph, name, pointer, from, to)),
    removeCase: (pointer: Pointer, each: string | null) =>
      void apply(strings.tasks.removeACase, (graph) => edits.removeStepCase(graph, name, pointer, each)),

    /** An approval that shows a result of the step before. */
    insertApproval: (slot: Slot) => {
      const found = task();
      const approve = found ? firstShown(editor.graph, editor.state.catalogue, found, slot) : [];
      insertStep(slot, { approve });
    },
    setApproval: (pointer: Pointer, fields: Partial<ApproveStep>) =>
      void apply(strings.tasks.changeAnApproval, (graph) => edits.setStep(graph, name, pointer, fields)),

    setLoop: (pointer: Pointer, fields: Partial<LoopStep>) =>
      void apply(strings.tasks.changeALoop, (graph) => edits.setStep(graph, name, pointer, fields)),
    /** The value that a result stands for in the first pass; undefined: nothing. */
    startLoop: (pointer: Pointer, result: string, value: Literal | undefined) => {
      const step = at(task(), pointer) as LoopStep | undefined;
      const { [result]: _, ...rest } = step?.start ?? {};
      const start = value === undefined ? rest : { ...step?.start, [result]: value };
      apply(strings.tasks.changeALoop, (graph) =>
        edits.setStep(graph, name, pointer, { start: Object.keys(start).length > 0 ? start : undefined }),
      );
    },

    addLane: () => void lane((found) => lanes.add(found)),
    renameLane: (from: string, to: string) => void lane((found) => lanes.rename(found, from, to)),
    removeLane: (each: string) => void lane((found) => lanes.remove(found, each)),
  };

  function suggestedStep(slot: Slot, walk: string): WalkStep {
    const found = task();
    const bound = found ? suggested(editor.graph, editor.state.catalogue, found, slot.list, walk) : {};
    return Object.keys(bound).length > 0 ? { walk, with: bound } : { walk };
  }

  function setBlock(pointer: Pointer, fields: Partial<Record<Branch, Step[] | undefined>> | Partial<ChooseStep>) {
    apply(strings.tasks.changeABlock, (graph) => edits.setStep(graph, name, pointer, fields));
  }

  function lane(change: (steps: Task["steps"]) => Task["steps"]) {
    apply(strings.tasks.changeTheLanes, (graph) => {
      const steps = graph.tasks?.[name]?.steps;
      return steps ? edits.setTask(graph, name, { steps: change(steps) }) : graph;
    });
  }
}
