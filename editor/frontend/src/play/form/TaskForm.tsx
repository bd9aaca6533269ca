// The form of a task: its inputs, its parameters, the seed, and the button that runs it.
import { ArrowDown, ArrowUp, ChevronDown, Play as PlayIcon, Plus, RotateCcw, Square } from "lucide-react";
import { useState, type ClipboardEvent, type KeyboardEvent, type ReactNode } from "react";
import { shown } from "../../ui/keys";
import { Button, IconButton, Menu, Prose } from "../../ui/kit";
import { Conversation } from "./Conversation";
import { ParamField, SeedField } from "./fields";
import { Kind, PartRow } from "./PartRow";
import { conversationOf, MESSAGES, partOfTurn, takenBy, withMedia } from "../model/conversation";
import {
  canOrder,
  defaultText,
  hasDefault,
  isEmpty,
  judge,
  labelOf,
  listedParams,
  newPart,
  widgetOf,
  type Faults,
} from "../model/form";
import { fits, mediaOf, words } from "../files/media";
import type { RunOptions } from "../runs/session";
import type { Given, Part, TaskShown } from "../model/types";
import { strings } from "../../strings";

interface Props {
  task: TaskShown;
  given: Given;
  busy: boolean;
  /** Why it can't be run now, whatever is given. */
  blocked: string | null;
  onChange: (change: (given: Given) => Given) => void;
  onReset: () => void;
  onRun: (options?: RunOptions) => void;
  onStop: () => void;
  /** Options of the next run, shown above the button. */
  children?: ReactNode;
}

export function TaskForm({ task, given, busy, blocked, onChange, onReset, onRun, onStop, children }: Props) {
  const faults = judge(task, given);
  const [asked, setAsked] = useState(false);
  const run = (options?: RunOptions) => {
    setAsked(true);
    if (!blocked && !busy && Object.keys(faults).length === 0) {
      setAsked(false);
      onRun(options);
    }
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      run();
    }
  };
  const changePart = (key: string, change: Partial<Part>) =>
    onChange((before) => ({
      ...before,
      parts: before.parts.map((part) => (part.key === key ? { ...part, ...change } : part)),
    }));
  const paste = (event: ClipboardEvent) => {
    const file = [...event.clipboardData.files][0];
    if (!file) return;
    event.preventDefault();
    void pasted(task, file).then((made) => made && onChange((before) => placed(task, before, made)));
  };
  const told = asked ? faults : onlyTyped(faults);
  const lists = { task, given, faults: told, onChange, changePart, onRun: () => run() };
  const count = Object.keys(faults).length;
  return (
    <form
      className="wg-play-form"
      aria-label={strings.play.inputs(task.label || labelOf(task.name))}
      onSubmit={(event) => event.preventDefault()}
      onKeyDown={keys}
      onPaste={paste}
    >
      <div className="fields">
        {given.ordered ? <OrderedInputs {...lists} /> : <NamedInputs {...lists} />}
        {canOrder(task) && (
          <label className="wg-play-order">
            <input
              type="checkbox"
              checked={given.ordered}
              onChange={(event) => onChange((before) => ({ ...before, ordered: event.target.checked }))}
            />
            {strings.play.inMyOwnOrder}
          </label>
        )}
        {told["all"] && (
          <div className="wg-play-fault" role="alert">
            {told["all"]}
          </div>
        )}
        <div className="wg-play-head">
          <h2>{strings.play.parameters}</h2>
          <Button kind="quiet" onClick={onReset} aria-label={strings.play.backToTheDefaults}>
            <RotateCcw size={13} aria-hidden /> {strings.play.reset}
          </Button>
        </div>
        <SeedField
          seed={given.seed}
          fault={told["seed"]}
          onChange={(seed) => onChange((before) => ({ ...before, seed }))}
        />
        {listedParams(task).map(([name, param]) => (
          <ParamField
            key={name}
            name={name}
            param={param}
            value={given.params[name]}
            fault={told[`param:${name}`]}
            onChange={(value) => onChange((before) => withParam(before, name, value))}
          />
        ))}
      </div>
      <div className="run">
        {children}
        {busy ? (
          <Button kind="danger" className="wide" onClick={onStop}>
            <Square size={14} aria-hidden /> {strings.play.stop}
          </Button>
        ) : (
          <div className="split">
            <Button
              kind="primary"
              className="wide"
              disabled={blocked !== null}
              title={blocked ?? shown("Mod+Enter")}
              aria-keyshortcuts="Control+Enter Meta+Enter"
              onClick={() => run()}
            >
              <PlayIcon size={14} aria-hidden /> {strings.play.run} <kbd aria-hidden>{shown("Mod+Enter")}</kbd>
            </Button>
            <OtherRuns disabled={blocked !== null} onRun={run} />
          </div>
        )}
        {(blocked || (asked && count > 0)) && (
          <div className="wg-play-fault" role="alert">
            {blocked ??
              strings.play.missingOrWrongAbove(count === 1 ? strings.play.oneThing : strings.play.things(count))}
          </div>
        )}
      </div>
    </form>
  );
}

/** The run button's menu. */
function OtherRuns({ disabled, onRun }: { disabled: boolean; onRun: (options: RunOptions) => void }) {
  const [menu, setMenu] = useState<{ x: number; y: number } | null>(null);
  const entries = [
    { label: strings.play.runPausedStep, run: () => onRun({ hold: true }) },
    { label: strings.play.runRecordedKeepAllValues, run: () => onRun({ record: true }) },
    { label: strings.play.runPausedAndRecorded, run: () => onRun({ hold: true, record: true }) },
  ];
  return (
    <>
      <IconButton
        kind="primary"
        label={strings.play.otherWaysToStart}
        aria-haspopup="menu"
        aria-expanded={menu !== null}
        disabled={disabled}
        onClick={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          setMenu({ x: box.left, y: box.bottom });
        }}
      >
        <ChevronDown size={14} />
      </IconButton>
      {menu && <Menu at={menu} entries={entries} onClose={() => setMenu(null)} />}
    </>
  );
}

/** Missing values are not reported before the first attempt. */
function onlyTyped(faults: Faults): Faults {
  return Object.fromEntries(Object.entries(faults).filter(([key]) => !key.startsWith("input:")));
}

function withParam(given: Given, name: string, value: Given["params"][string] | undefined): Given {
  const { [name]: _, ...others } = given.params;
  return { ...given, params: value === undefined ? others : { ...others, [name]: value } };
}

// ── inputs ──────────────────────────────────────────────────────────────────────────────────────

interface ListProps {
  task: TaskShown;
  given: Given;
  faults: Faults;
  onChange: Props["onChange"];
  changePart: (key: string, change: Partial<Part>) => void;
  onRun: () => void;
}

function NamedInputs({ task, given, faults, onChange, changePart, onRun }: ListProps) {
  return Object.entries(task.inputs).map(([name, declared]) => {
    const parts = given.parts.filter((part) => part.input === name);
    const label = labelOf(name);
    const add = () => onChange((before) => ({ ...before, parts: [...before.parts, newPart(name, declared)] }));
    const fault = faults[`input:${name}`];
    return (
      <fieldset key={name} className="wg-play-input">
        <legend>
          <Kind modality={declared.modality} /> {label}
          {declared.optional && <span className="aside">{strings.play.optional}</span>}
          {hasDefault(declared) && parts.every(isEmpty) && (
            <span className="aside">{strings.play.asByDefault(defaultText(declared))}</span>
          )}
        </legend>
        {declared.modality === MESSAGES && (
          <Conversation {...{ task, input: name, given, faults, onChange, changePart, onRun }} />
        )}
        {(declared.modality === MESSAGES ? [] : parts).map((part, index) => (
          <PartRow
            key={part.key}
            part={part}
            label={parts.length > 1 ? `${label} ${index + 1}` : label}
            fault={faults[`part:${part.key}`]}
            removable={parts.length > 1 || declared.optional}
            onRemove={() => onChange((before) => without(before, part.key))}
            onChange={(change) => changePart(part.key, change)}
            onRun={onRun}
          />
        ))}
        {declared.modality !== MESSAGES && (declared.many || parts.length === 0) && (
          <Button kind="quiet" className="add" onClick={add}>
            <Plus size={13} aria-hidden />{" "}
            {parts.length === 0 ? strings.play.add(label.toLowerCase()) : strings.play.another}
          </Button>
        )}
        <div className={fault ? "wg-play-fault" : "wg-play-hint"} role={fault ? "alert" : undefined}>
          {fault ?? <Prose text={declared.description} />}
        </div>
      </fieldset>
    );
  });
}

/** All inputs in one list, in the order in which the task reads them. */
function OrderedInputs({ task, given, faults, onChange, changePart, onRun }: ListProps) {
  const [menu, setMenu] = useState<{ x: number; y: number } | null>(null);
  const move = (index: number, step: number) =>
    onChange((before) => ({ ...before, parts: moved(before.parts, index, step) }));
  const entries = Object.entries(task.inputs).map(([name, declared]) => ({
    label: labelOf(name),
    run: () => onChange((before) => ({ ...before, parts: [...before.parts, newPart(name, declared)] })),
  }));
  const missing = Object.entries(faults).filter(([key]) => key.startsWith("input:"));
  return (
    <fieldset className="wg-play-input ordered">
      <legend>{strings.play.inputsInTheOrder}</legend>
      {given.parts.map((part, index) => (
        <div key={part.key} className="ordered-row">
          <div className="order">
            <span>{index + 1}</span>
            <IconButton label={strings.play.moveUp(index + 1)} disabled={index === 0} onClick={() => move(index, -1)}>
              <ArrowUp size={13} />
            </IconButton>
            <IconButton
              label={strings.play.moveDown(index + 1)}
              disabled={index === given.parts.length - 1}
              onClick={() => move(index, 1)}
            >
              <ArrowDown size={13} />
            </IconButton>
          </div>
          <PartRow
            part={part}
            label={`${index + 1}: ${labelOf(part.input)}`}
            titled
            fault={faults[`part:${part.key}`]}
            removable
            onRemove={() => onChange((before) => without(before, part.key))}
            onChange={(change) => changePart(part.key, change)}
            onRun={onRun}
          />
        </div>
      ))}
      <Button
        kind="quiet"
        className="add"
        aria-haspopup="menu"
        onClick={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          setMenu({ x: box.left, y: box.bottom });
        }}
      >
        <Plus size={13} aria-hidden /> {strings.play.add2}
      </Button>
      {missing.map(([key, fault]) => (
        <div key={key} className="wg-play-fault" role="alert">
          {labelOf(key.slice("input:".length))}: {fault}
        </div>
      ))}
      {menu && <Menu at={menu} entries={entries} onClose={() => setMenu(null)} />}
    </fieldset>
  );
}

function without(given: Given, key: string): Given {
  return { ...given, parts: given.parts.filter((part) => part.key !== key) };
}

function moved(parts: readonly Part[], index: number, step: number): Part[] {
  const next = [...parts];
  const [part] = next.splice(index, 1);
  if (part) next.splice(index + step, 0, part);
  return next;
}

// ── pasted files ────────────────────────────────────────────────────────────────────────────────

async function pasted(task: TaskShown, file: File): Promise<Part | null> {
  const input = conversationOf(task);
  if (input !== null) return pastedInTurn(task, input, file);
  const found = Object.entries(task.inputs).find(
    ([, declared]) => widgetOf(declared.modality) === "media" && fits(declared.modality, file.type),
  );
  if (!found) return null;
  const [name, declared] = found;
  try {
    return newPart(
      name,
      declared,
      "",
      await mediaOf(file, declared.modality, strings.play.pasted(words(declared.modality))),
    );
  } catch {
    return null;
  }
}

async function pastedInTurn(task: TaskShown, input: string, file: File): Promise<Part | null> {
  const kind = takenBy(task, input).kinds.find((each) => widgetOf(each) === "media" && fits(each, file.type));
  if (kind === undefined) return null;
  try {
    const media = await mediaOf(file, kind, strings.play.pasted(words(kind)));
    return partOfTurn(input, { key: "", role: "user" }, kind, "", media);
  } catch {
    return null;
  }
}

/** Into the first empty place of its kind, else as one more, else in place of the last. */
function placed(task: TaskShown, given: Given, made: Part): Given {
  if (made.turn && made.media) return withMedia(given, made.input, made.modality, made.media);
  const same = given.parts.filter((part) => task.inputs[part.input]?.modality === made.modality);
  const target = same.find(isEmpty);
  const replace = target ?? (task.inputs[made.input]?.many ? undefined : same.at(-1));
  if (!replace) return { ...given, parts: [...given.parts, made] };
  return {
    ...given,
    parts: given.parts.map((part) => (part.key === replace.key ? { ...part, media: made.media } : part)),
  };
}
