// A paused run: the calls that it is held before, and what goes into the one that is chosen.
import { StepForward } from "lucide-react";
import { useMemo } from "react";
import { useEditor, useEditorState } from "../store/react";
import { isOf, useHeld, type HeldCall, type SampleEvent } from "../store/watch";
import { SampleView } from "../taps/SampleView";
import { Badge, IconButton, Prose } from "../ui/kit";
import { currentCall, steer, type PausedShown } from "./model/actions";
import { inOrder, isFed, keyOfCall, nameOfCall, placeOfCall, stateWords } from "./model/calls";
import { debuggingOf, useDebugging } from "./model/state";
import { strings } from "../strings";

/** Kinds of states, where samples of ports have a modality. */
const STATES: ReadonlySet<string> = new Set(["paged_kv", "tensor", "rng"]);

export function PausedPane({ paused }: { paused: PausedShown }) {
  const editor = useEditor();
  useDebugging((state) => state.call);
  const held = useMemo(() => inOrder(paused.held), [paused.held]);
  const chosen = currentCall(editor, paused);
  const ranks = new Set(held.map((call) => call.rank)).size > 1;
  return (
    <div className="wg-paused">
      <div className="calls">
        <p className="about">
          {strings.debug.run(paused.deployment)} <code title={paused.run}>{paused.run.slice(0, 8)}</code>
          {paused.breakpoint && <Badge kind="bad">{strings.debug.breakpoint}</Badge>}
        </p>
        {held.length === 0 && (
          <p className="wg-dock-quiet" role="status">
            {strings.debug.noCallIsHeldYet}
          </p>
        )}
        <ul aria-label={strings.debug.heldCalls}>
          {held.map((call) => (
            <li key={keyOfCall(call)} className={call === chosen ? "chosen" : ""}>
              <button
                type="button"
                className="call"
                aria-current={call === chosen}
                onClick={() => debuggingOf(editor).setState({ call: keyOfCall(call) })}
              >
                <strong>
                  <Prose text={nameOfCall(call)} />
                </strong>
                <small>{placeOfCall(call, ranks)}</small>
              </button>
              {held.length > 1 && (
                <IconButton
                  label={strings.debug.makeThisCall(nameOfCall(call).replaceAll("`", ""))}
                  onClick={() => {
                    debuggingOf(editor).setState({ call: keyOfCall(call) });
                    void steer(editor, paused, "step");
                  }}
                >
                  <StepForward size={13} />
                </IconButton>
              )}
            </li>
          ))}
        </ul>
      </div>
      {chosen && <Inputs key={keyOfCall(chosen)} paused={paused} call={chosen} />}
    </div>
  );
}

function Inputs({ paused, call }: { paused: PausedShown; call: HeldCall }) {
  const seen = useHeld(paused.deployment, paused.run);
  const graph = useEditorState((state) => state.documents.graph);
  const own = useMemo(() => {
    const ports = new Map<string, (typeof seen)[number]>();
    // Newest first: what was told of a port last is what goes in.
    for (const one of seen)
      if (isOfCall(one.sample, call) && !ports.has(one.sample.source)) ports.set(one.sample.source, one);
    return [...ports.values()].sort((a, b) => a.sample.source.localeCompare(b.sample.source));
  }, [seen, call]);
  const inputs = own.filter(({ sample }) => !STATES.has(sample.modality));
  const states = own.filter(({ sample }) => STATES.has(sample.modality));
  if (own.length === 0 && !call.loop)
    return (
      <div className="inputs">
        <p className="wg-dock-quiet">
          {isFed(graph, call) === false
            ? strings.debug.itHasNoInputs
            : call.node
              ? strings.debug.itsInputsAreNotKnown
              : strings.debug.aStateIsCopied}
        </p>
      </div>
    );
  return (
    <div className="inputs">
      {call.loop && <p className="wg-dock-quiet">{strings.debug.thisIsADeviceLoop}</p>}
      <Values title={strings.debug.inputs2} samples={inputs} whole={call.loop !== ""} />
      <States samples={states} whole={call.loop !== ""} />
    </div>
  );
}

/** A loop's call takes the samples of everything that goes into the uses inside it. */
function isOfCall(sample: SampleEvent, call: HeldCall): boolean {
  return isOf(sample, call.loop ? { ...call, use: sample.source.split(".", 1)[0]! } : call);
}

function States({ samples, whole }: Omit<ValuesProps, "title">) {
  const tensors = samples.filter(({ sample }) => stateWords(sample) === null);
  const others = samples.filter(({ sample }) => stateWords(sample) !== null);
  return (
    <>
      {others.length > 0 && (
        <section aria-label={strings.debug.states}>
          <h3>{strings.debug.states}</h3>
          <ul className="states">
            {others.map(({ sample }) => (
              <li key={sample.source}>
                <strong>{titleOf(sample, whole)}</strong> {stateWords(sample)}
              </li>
            ))}
          </ul>
        </section>
      )}
      <Values
        title={others.length ? strings.debug.tensorsKept : strings.debug.states}
        samples={tensors}
        whole={whole}
      />
    </>
  );
}

function titleOf({ source }: SampleEvent, whole: boolean): string {
  return whole ? source : source.slice(source.indexOf(".") + 1);
}

interface ValuesProps {
  title: string;
  samples: ReturnType<typeof useHeld>;
  /** If there are several uses, their names are shown. */
  whole: boolean;
}

function Values({ title, samples, whole }: ValuesProps) {
  if (samples.length === 0) return null;
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <div className="values">
        {samples.map(({ sample }) => (
          <SampleView key={sample.source} sample={sample} title={titleOf(sample, whole)} />
        ))}
      </div>
    </section>
  );
}
