// The declaration of a task: inputs, outputs, and the lifetime of its sessions.
import { Plus, X } from "lucide-react";
import { useMemo } from "react";
import type { Problem } from "../../messages/answers";
import { isUnder } from "../../document/pointer";
import { MEDIA } from "../../document/typing";
import type { GraphDocument, Task, TaskInput } from "../../document/types";
import { useEditorState } from "../../store/react";
import { Button, Check, Field, IconButton, Select } from "../../ui/kit";
import { Table } from "../../ui/Table";
import { MODALITIES } from "../../ui/modality";
import { showBytes } from "../../ui/words";
import type { useTaskEdits } from "../model/actions";
import { readDefault, writtenDefault } from "../model/defaults";
import { offers, type Offer } from "../model/outputs";
import { Modality, NumberCell, ProblemLines, TextCell } from "../cells/widgets";
import { strings } from "../../strings";

interface SectionProps {
  task: Task;
  problems: readonly Problem[];
  edits: ReturnType<typeof useTaskEdits>;
}

export function under(problems: readonly Problem[], place: string): Problem[] {
  return problems.filter((problem) => isUnder(problem.pointer, place));
}

export function Inputs({ task, problems, edits }: SectionProps) {
  const inputs = Object.entries(task.inputs ?? {});
  return (
    <section className="wg-card" aria-label={strings.tasks.inputs}>
      <header>
        <h2>{strings.tasks.inputs}</h2>
        <span className="note">{strings.tasks.whatAClientSends}</span>
        <Button kind="quiet" onClick={edits.addInput}>
          <Plus size={14} aria-hidden /> {strings.tasks.input}
        </Button>
      </header>
      {inputs.length === 0 ? (
        <p className="hint">{strings.tasks.noneARequestOfThis}</p>
      ) : (
        <div className="wg-scroll">
          <Table
            className="wg-declared inputs"
            columns={[
              strings.tasks.name,
              strings.tasks.modality,
              { title: strings.tasks.aListOrPartsMixed, children: strings.tasks.many },
              { title: strings.tasks.aRequestMayOmit, children: strings.tasks.optional },
              { title: strings.tasks.takenIfARequestOmitsIt, children: strings.tasks.default },
              strings.tasks.description,
              { "aria-label": strings.tasks.actions },
            ]}
          >
            <tbody>
              {inputs.map(([name, input]) => (
                <InputRow key={name} {...{ name, input, edits }} problems={under(problems, `/inputs/${name}`)} />
              ))}
            </tbody>
          </Table>
        </div>
      )}
    </section>
  );
}

function InputRow({
  name,
  input,
  problems,
  edits,
}: {
  name: string;
  input: TaskInput;
  problems: readonly Problem[];
  edits: SectionProps["edits"];
}) {
  const known = MODALITIES.includes(input.modality) ? MODALITIES : [input.modality, ...MODALITIES];
  return (
    <>
      <tr>
        <td>
          <TextCell
            mono
            label={strings.tasks.nameOfTheInput}
            value={name}
            onCommit={(value) => edits.renameInput(name, value)}
          />
        </td>
        <td>
          <span className="wg-with-glyph">
            <Modality type={input.modality} text="" />
            <Select
              aria-label={strings.tasks.modalityWithName(name)}
              value={input.modality}
              options={known}
              onChange={(modality) =>
                // A conversation has many turns already.
                edits.setInput(name, modality === "messages" ? { modality, many: undefined } : { modality })
              }
            />
          </span>
        </td>
        {(["many", "optional"] as const).map((flag) => (
          <td key={flag} className="middle">
            <Check
              label={`${name}: ${flag}`}
              checked={input[flag] === true}
              onChange={(on) => edits.setInput(name, { [flag]: on || undefined })}
            />
          </td>
        ))}
        <td>
          {!MEDIA.has(input.modality) && (
            <TextCell
              label={strings.tasks.defaultWithName(name)}
              value={writtenDefault(input.default)}
              placeholder={strings.tasks.none}
              onCommit={(text) => edits.setInput(name, { default: readDefault(text, input.modality) })}
            />
          )}
        </td>
        <td>
          <TextCell
            live
            grows
            label={strings.tasks.descriptionWithName(name)}
            value={input.description ?? ""}
            placeholder={strings.tasks.whatItIsForTheClients}
            onCommit={(text) => edits.setInput(name, { description: text || undefined }, `input ${name}`)}
          />
        </td>
        <td className="actions">
          <IconButton label={strings.tasks.removeTheInput(name)} onClick={() => edits.removeInput(name)}>
            <X size={14} />
          </IconButton>
        </td>
      </tr>
      {problems.length > 0 && (
        <tr className="faults">
          <td colSpan={7}>
            <ProblemLines problems={problems} />
          </td>
        </tr>
      )}
    </>
  );
}

// ── outputs ───────────────────────────────────────────────────────────────────────────────────

export function Outputs({ graph, task, problems, edits }: SectionProps & { graph: GraphDocument }) {
  const catalogue = useEditorState((state) => state.catalogue);
  const found = useMemo(() => offers(graph, catalogue, task), [graph, catalogue, task]);
  const chosen = Array.isArray(task.outputs) ? task.outputs : [];
  const stray = chosen.filter((name) => !found.some((offer) => offer.name === name));
  return (
    <section className="wg-card" aria-label={strings.tasks.outputs}>
      <header>
        <h2>{strings.tasks.outputs}</h2>
        <span className="note">{strings.tasks.whatComesBackOutputs}</span>
      </header>
      {found.length + stray.length === 0 && <p className="hint">{strings.tasks.noWalkSendsAnOutput}</p>}
      <ul className="wg-outputs">
        {found.map((offer) => (
          <OutputChip key={offer.name} offer={offer} on={chosen.includes(offer.name)} edits={edits} />
        ))}
        {stray.map((name) => (
          <li key={name} className="stray">
            <Check shown={name} label={name} checked onChange={() => edits.setOutput(name, false)} />
            <span className="note">{strings.tasks.noWalkSends}</span>
          </li>
        ))}
      </ul>
      <ProblemLines problems={under(problems, "/outputs")} />
    </section>
  );
}

function OutputChip({ offer, on, edits }: { offer: Offer; on: boolean; edits: SectionProps["edits"] }) {
  const from = offer.walks.join(", ");
  return (
    <li className={offer.here ? "" : "elsewhere"}>
      <label className="wg-check">
        <input type="checkbox" checked={on} onChange={(event) => edits.setOutput(offer.name, event.target.checked)} />
        <Modality type={offer.type ?? "tensor"} text={offer.name} />
      </label>
      <span className="note" title={from}>
        {offer.here ? strings.tasks.from(from) : strings.tasks.fromNotAStepOfThis(from)}
      </span>
    </li>
  );
}

// ── session ───────────────────────────────────────────────────────────────────────────────────

const DEFAULT_TTL = 600;

export function Session({ task, problems, edits }: SectionProps) {
  const session = task.session ?? null;
  return (
    <section className="wg-card" aria-label={strings.tasks.session}>
      <header>
        <h2>{strings.tasks.session}</h2>
        <span className="note">{strings.tasks.whatIsKeptBetween}</span>
        {session && (
          <Button kind="quiet" onClick={() => edits.setSession(null)}>
            {strings.tasks.keepNothing}
          </Button>
        )}
      </header>
      {session ? (
        <div className="wg-session">
          <Field
            label={strings.tasks.requestsThatArriveWhileOne}
            hint={session.queue === "latest" ? strings.tasks.onlyTheNewestWaitsOlder : strings.tasks.waitInOrder}
          >
            {(props) => (
              <Select
                {...props}
                value={session.queue ?? "fifo"}
                options={[
                  { value: "fifo", label: strings.tasks.inOrderFifo },
                  { value: "latest", label: strings.tasks.newestOnlyLatest },
                ]}
                onChange={(queue) => edits.setSession({ ...session, queue: queue as "fifo" | "latest" })}
              />
            )}
          </Field>
          <Field label={strings.tasks.keptForInSeconds} hint={strings.tasks.afterItsLastRequest1(DEFAULT_TTL)}>
            {() => (
              <NumberCell
                whole
                label={strings.tasks.secondsThatASession}
                value={session.ttl_seconds}
                placeholder={String(DEFAULT_TTL)}
                onCommit={(ttl_seconds) => edits.setSession({ ...session, ttl_seconds })}
              />
            )}
          </Field>
          <Field
            label={strings.tasks.cacheLimitInBytes}
            hint={session.max_bytes == null ? strings.tasks.aRequestThatCouldPass : showBytes(session.max_bytes)}
          >
            {() => (
              <NumberCell
                whole
                label={strings.tasks.cacheLimitOfASession}
                value={session.max_bytes}
                placeholder={strings.tasks.noLimit}
                onCommit={(max_bytes) => edits.setSession({ ...session, max_bytes })}
              />
            )}
          </Field>
        </div>
      ) : (
        <p className="hint">
          {strings.tasks.nothingEveryRequestStarts}{" "}
          <Button kind="quiet" onClick={() => edits.setSession({ queue: "fifo", ttl_seconds: DEFAULT_TTL })}>
            {strings.tasks.keepSessions}
          </Button>
        </p>
      )}
      <ProblemLines problems={under(problems, "/session")} />
    </section>
  );
}
