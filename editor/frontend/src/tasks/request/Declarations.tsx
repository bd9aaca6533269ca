// What a client sends and gets: inputs, outputs, and how long its session is kept.
import { Plus, X } from "lucide-react";
import { useMemo } from "react";
import type { Problem } from "../../messages/answers";
import { isUnder } from "../../document/pointer";
import type { GraphDocument, Task, TaskInput } from "../../document/types";
import { useEditorState } from "../../store/react";
import { Button, Field, IconButton, Select } from "../../ui/kit";
import { Table } from "../../ui/Table";
import { MODALITIES } from "../../ui/modality";
import { showBytes } from "../../ui/words";
import type { useTaskEdits } from "../model/actions";
import { offers, type Offer } from "../model/outputs";
import { Check, Modality, NumberCell, ProblemLines, TextCell } from "../cells/widgets";

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
    <section className="wg-card" aria-label="Inputs">
      <header>
        <h2>Inputs</h2>
        <span className="note">what a client sends</span>
        <Button kind="quiet" onClick={edits.addInput}>
          <Plus size={14} aria-hidden /> Input
        </Button>
      </header>
      {inputs.length === 0 ? (
        <p className="hint">None: a request of this task is its parameters alone.</p>
      ) : (
        <div className="wg-scroll">
          <Table
            className="wg-declared inputs"
            columns={[
              "Name",
              "Modality",
              { title: "A list, or parts in turn with others", children: "Many" },
              { title: "A request may leave it out", children: "Optional" },
              "Description",
              { "aria-label": "Actions" },
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
            label="Name of the input"
            value={name}
            onCommit={(value) => edits.renameInput(name, value)}
          />
        </td>
        <td>
          <span className="wg-with-glyph">
            <Modality type={input.modality} text="" />
            <Select
              aria-label={`Modality of ${name}`}
              value={input.modality}
              options={known}
              onChange={(modality) => edits.setInput(name, { modality })}
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
          <TextCell
            live
            grows
            label={`Description of ${name}`}
            value={input.description ?? ""}
            placeholder="What it is, for whoever sends it"
            onCommit={(text) => edits.setInput(name, { description: text || undefined }, `input ${name}`)}
          />
        </td>
        <td className="actions">
          <IconButton label={`Remove the input ${name}`} onClick={() => edits.removeInput(name)}>
            <X size={14} />
          </IconButton>
        </td>
      </tr>
      {problems.length > 0 && (
        <tr className="faults">
          <td colSpan={6}>
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
    <section className="wg-card" aria-label="Outputs">
      <header>
        <h2>Outputs</h2>
        <span className="note">what comes back, out of what the Walks send to the client</span>
      </header>
      {found.length + stray.length === 0 && (
        <p className="hint">No Walk sends anything yet: draw an edge to a Walk's “to the client” end.</p>
      )}
      <ul className="wg-outputs">
        {found.map((offer) => (
          <OutputChip key={offer.name} offer={offer} on={chosen.includes(offer.name)} edits={edits} />
        ))}
        {stray.map((name) => (
          <li key={name} className="stray">
            <Check shown={name} label={name} checked onChange={() => edits.setOutput(name, false)} />
            <span className="note">no Walk sends it</span>
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
        {offer.here ? `from ${from}` : `from ${from}, not a step of this task`}
      </span>
    </li>
  );
}

// ── session ───────────────────────────────────────────────────────────────────────────────────

const DEFAULT_TTL = 600;

export function Session({ task, problems, edits }: SectionProps) {
  const session = task.session ?? null;
  return (
    <section className="wg-card" aria-label="Session">
      <header>
        <h2>Session</h2>
        <span className="note">what is kept between the requests of one client</span>
        {session && (
          <Button kind="quiet" onClick={() => edits.setSession(null)}>
            Keep nothing
          </Button>
        )}
      </header>
      {session ? (
        <div className="wg-session">
          <Field
            label="Requests that come while one runs"
            hint={
              session.queue === "latest" ? "only the newest waits, older ones are dropped" : "wait in their order"
            }
          >
            {(props) => (
              <Select
                {...props}
                value={session.queue ?? "fifo"}
                options={[
                  { value: "fifo", label: "in order (fifo)" },
                  { value: "latest", label: "newest only (latest)" },
                ]}
                onChange={(queue) => edits.setSession({ ...session, queue: queue as "fifo" | "latest" })}
              />
            )}
          </Field>
          <Field label="Kept for, in seconds" hint={`after its last request; 1 to 86400, ${DEFAULT_TTL} if not set`}>
            {() => (
              <NumberCell
                whole
                label="Seconds that a session is kept after its last request"
                value={session.ttl_seconds}
                placeholder={String(DEFAULT_TTL)}
                onCommit={(ttl_seconds) => edits.setSession({ ...session, ttl_seconds })}
              />
            )}
          </Field>
          <Field
            label="Most bytes of cache"
            hint={
              session.max_bytes == null ? "a request that could pass it is refused" : showBytes(session.max_bytes)
            }
          >
            {() => (
              <NumberCell
                whole
                label="Most bytes of cache that a session may fill"
                value={session.max_bytes}
                placeholder="no limit"
                onCommit={(max_bytes) => edits.setSession({ ...session, max_bytes })}
              />
            )}
          </Field>
        </div>
      ) : (
        <p className="hint">
          Nothing: every request starts anew.{" "}
          <Button kind="quiet" onClick={() => edits.setSession({ queue: "fifo", ttl_seconds: DEFAULT_TTL })}>
            Keep sessions
          </Button>
        </p>
      )}
      <ProblemLines problems={under(problems, "/session")} />
    </section>
  );
}
