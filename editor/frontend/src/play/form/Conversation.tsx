// An input that takes a conversation: its turns one below the other, as a chat shows them.
import { Plus, X } from "lucide-react";
import { Button, IconButton, Select } from "../../ui/kit";
import { PartRow } from "./PartRow";
import { labelOf, type Faults } from "../model/form";
import {
  kindsOf,
  takenBy,
  turnsOf,
  withoutTurn,
  withPart,
  withRole,
  withTurn,
  type Taken,
  type TurnShown,
} from "../model/conversation";
import type { Given, Part, Role, TaskShown } from "../model/types";
import { strings } from "../../strings";

interface Props {
  task: TaskShown;
  input: string;
  given: Given;
  faults: Faults;
  onChange: (change: (given: Given) => Given) => void;
  changePart: (key: string, change: Partial<Part>) => void;
  onRun: () => void;
}

export function Conversation({ task, input, given, faults, onChange, changePart, onRun }: Props) {
  const taken = takenBy(task, input);
  const turns = turnsOf(given, input);
  const add = () => onChange((before) => withTurn(before, input, nextRole(taken, turns.at(-1)?.role)));
  return (
    <div className="wg-play-turns">
      <ol aria-label={labelOf(input)}>
        {turns.map((turn, index) => (
          <Turn
            key={turn.key}
            {...{ turn, taken, faults, onChange, changePart, onRun }}
            number={index + 1}
            alone={turns.length === 1}
          />
        ))}
      </ol>
      <Button kind="quiet" className="add" onClick={add}>
        <Plus size={13} aria-hidden /> {strings.play.addATurn}
      </Button>
      {turns.length > 1 && (
        <Button
          kind="quiet"
          className="add"
          onClick={() => onChange((before) => withTurn(cleared(before, input), input, "user"))}
        >
          {strings.play.newConversation}
        </Button>
      )}
    </div>
  );
}

function cleared(given: Given, input: string): Given {
  return { ...given, parts: given.parts.filter((part) => part.input !== input) };
}

/** After a question comes an answer, after anything else a question. */
function nextRole({ roles }: Taken, last: Role | undefined): Role {
  const wanted: Role = last === "user" ? "assistant" : "user";
  return roles.includes(wanted) ? wanted : (roles[0] ?? "user");
}

interface TurnProps extends Omit<Props, "task" | "input" | "given"> {
  turn: TurnShown;
  taken: Taken;
  number: number;
  alone: boolean;
}

function Turn({ turn, taken, number, alone, faults, onChange, changePart, onRun }: TurnProps) {
  const name = strings.play.turn(number, turn.role);
  const roles = taken.roles.includes(turn.role) ? taken.roles : [turn.role, ...taken.roles];
  return (
    <li className={`turn ${turn.role}`} aria-label={name}>
      <div className="head">
        <Select
          aria-label={strings.play.roleOfTurn(number)}
          value={turn.role}
          options={[...roles]}
          onChange={(role) => onChange((before) => withRole(before, turn, role as Role))}
        />
        <span className="kinds">
          {kindsOf(taken, turn.role).map((kind) => (
            <Button
              key={kind}
              kind="quiet"
              aria-label={strings.play.addToTurn(kind, number)}
              onClick={() => onChange((before) => withPart(before, turn, kind))}
            >
              <Plus size={11} aria-hidden /> {kind}
            </Button>
          ))}
        </span>
        {!alone && (
          <IconButton
            label={strings.play.remove(name)}
            onClick={() => onChange((before) => withoutTurn(before, turn))}
          >
            <X size={13} />
          </IconButton>
        )}
      </div>
      {turn.parts.map((part, index) => (
        <PartRow
          key={part.key}
          part={part}
          label={turn.parts.length > 1 ? `${name}, ${index + 1}` : name}
          fault={faults[`part:${part.key}`]}
          removable={turn.parts.length > 1}
          onRemove={() =>
            onChange((before) => ({ ...before, parts: before.parts.filter(({ key }) => key !== part.key) }))
          }
          onChange={(change) => changePart(part.key, change)}
          onRun={onRun}
        />
      ))}
    </li>
  );
}
