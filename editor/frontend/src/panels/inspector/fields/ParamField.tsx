// One parameter of a node: a literal in its bounds, or an expression over the task's parameters.
import { useState, type ReactNode } from "react";
import type { ParamDeclaration, Problem } from "../../../messages/answers";
import type { Literal } from "../../../document/types";
import { Prose } from "../../../ui/kit";
import type { ScopeName } from "../../common/scope";
import { ChoiceField, ExpressionField, ExpressionToggle, NumberField, ResetButton, TextField } from "./fields";
import { strings } from "../../../strings";

const LONG_LINES = 5;

interface ParamProps {
  name: string;
  declared: ParamDeclaration;
  /** undefined: the default holds. */
  value: Literal | undefined;
  scope: readonly ScopeName[];
  problems: readonly Problem[];
  onEnter: (value: Literal | undefined) => string | null;
}

export function ParamField({ name, declared, value, scope, problems, onEnter }: ParamProps) {
  const computed = typeof value === "string" && value.startsWith("=");
  const [asked, setAsked] = useState<boolean | null>(null);
  const expression = asked ?? computed;
  const toggle = () => {
    setAsked(!expression);
    if (expression && computed && declared.default !== null) onEnter(undefined);
  };
  const enter = (entered: Literal | undefined) => {
    const refused = onEnter(entered);
    if (refused === null) setAsked(null);
    return refused;
  };
  const label = (
    <span className={`param${value === undefined ? "" : " set"}`}>
      {name}
      {declared.default === null && value === undefined && <em>{strings.inspector.required}</em>}
    </span>
  );
  const aside = (
    <span className="tools">
      {value !== undefined && declared.default !== null && (
        <ResetButton name={name} onReset={() => void enter(undefined)} />
      )}
      {(expression || !(declared.form || declared.gives)) && (
        <ExpressionToggle name={name} on={expression} onToggle={toggle} />
      )}
    </span>
  );
  const hint = <Prose text={hintOf(declared)} />;
  const shared = { label, aside, hint, problems };
  if (expression) {
    const text = computed ? value.slice(1) : "";
    // The sign stands before the field; a pasted expression may bring its own.
    const entering = (typed: string) => {
      const written = typed.replace(/^=(?!=)\s*/, "");
      return enter(written === "" ? undefined : `=${written}`);
    };
    return <ExpressionField {...shared} sign="=" value={text} scope={scope} onEnter={entering} />;
  }
  return <LiteralField {...shared} declared={declared} value={computed ? undefined : value} onEnter={enter} />;
}

interface LiteralProps {
  label: ReactNode;
  aside: ReactNode;
  hint: ReactNode;
  problems: readonly Problem[];
  declared: ParamDeclaration;
  value: Literal | undefined;
  onEnter: (value: Literal | undefined) => string | null;
}

function LiteralField({ declared, value, onEnter, ...shared }: LiteralProps) {
  const choices: readonly Literal[] = declared.type === "boolean" ? [true, false] : declared.choices;
  const unset = declared.default === null ? "" : `${String(declared.default)} (default)`;
  if (choices.length) {
    const options = [{ value: "", label: unset || "—" }, ...choices.map((choice) => spelled(choice))];
    const choose = (text: string) => void onEnter(choices.find((choice) => spelled(choice).value === text));
    return (
      <ChoiceField
        {...shared}
        value={value === undefined ? "" : spelled(value).value}
        options={options}
        onChoose={choose}
      />
    );
  }
  if (declared.type === "integer" || declared.type === "number") {
    if (value === undefined || typeof value === "number")
      return (
        <NumberField
          {...shared}
          value={value}
          placeholder={unset}
          integer={declared.type === "integer"}
          min={declared.min}
          max={declared.max}
          onNumber={(number) => onEnter(number ?? undefined)}
        />
      );
  }
  const enter = (text: string) => onEnter(text === "" && declared.default !== null ? undefined : text);
  const text = value === undefined ? "" : String(value);
  // A field of one line would lose the line ends of a text that has some.
  const lines = declared.long || text.includes("\n") ? LONG_LINES : 1;
  return <TextField {...shared} value={text} lines={lines} placeholder={unset} onEnter={enter} />;
}

function spelled(choice: Literal): { value: string; label: string } {
  return { value: JSON.stringify(choice), label: String(choice) };
}

/** `Flow time of latents. 0 to 1.` */
function hintOf({ description, type, min, max }: ParamDeclaration): string {
  const whole = type === "integer" ? strings.inspector.wholeNumber : strings.inspector.number;
  const bounds =
    min !== null && max !== null
      ? strings.inspector.to(min, max)
      : min !== null
        ? strings.inspector.orMore(whole, min)
        : max !== null
          ? strings.inspector.orLess(whole, max)
          : "";
  return [description, bounds].filter(Boolean).join(" ");
}
