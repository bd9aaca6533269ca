// A stream: where its items come from, and how they are cut into chunks.
import { useMemo } from "react";
import * as streams from "../../../document/edits/streams";
import { portsOf, streamType } from "../../../document/ports";
import { join } from "../../../document/pointer";
import { factsOf } from "../../../document/routes";
import type { ChunkPolicy, GraphDocument, Stream } from "../../../document/types";
import type { Catalogue } from "../../../messages/answers";
import { useEditorState } from "../../../store/react";
import { Button } from "../../../ui/kit";
import { Glyph, ProblemLines, Removal, Section } from "../../common/bits";
import { policyText, whyNotPolicy } from "./chunks";
import { useApply, useProblems } from "../../common/apply";
import { ChunkPicture } from "./ChunkPicture";
import { CheckField, ChoiceField, NameField, NumberField } from "../fields/fields";
import { strings } from "../../../strings";

export function StreamForm({ name }: { name: string }) {
  const { apply, attempt, editor } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const index = (graph.streams ?? []).findIndex((stream) => stream.name === name);
  const problems = useProblems(join("streams", index));
  const stream = graph.streams?.[index];
  const readers = useMemo(() => readersOf(graph, name), [graph, name]);
  if (!stream) return <p className="wg-quiet">{strings.inspector.thisStreamNoLongerExists}</p>;
  const set = (label: string, fields: Partial<Stream>) =>
    apply(label, (graph) => streams.setStream(graph, name, fields));
  const rename = (to: string) => {
    const refused = apply(strings.inspector.renameTheStream(name), (graph) => streams.renameStream(graph, name, to));
    if (refused === null) {
      const { selection } = editor.state.view;
      editor.select(...selection.map((id) => (id.endsWith(`stream:${name}`) ? `stream:${to}` : `@stream.${to}`)));
    }
    return refused;
  };
  const remove = () => {
    if (attempt(strings.inspector.removeTheStream(name), (graph) => streams.removeStream(graph, name)))
      editor.select();
  };
  const type = streamType(graph, catalogue, name);
  return (
    <>
      <ProblemLines problems={problems} />
      <NameField label={strings.inspector.name} value={name} onEnter={rename} />
      <ChoiceField
        label={strings.inspector.itemsCome}
        value={stream.from}
        options={sources(graph, catalogue, stream)}
        onChoose={(from) => set(strings.inspector.setWhereTheStreamComes, { from })}
        hint={type ? <Typed type={type} /> : strings.inspector.theTypeIsNotKnown}
      />
      <Section title={strings.inspector.walksWhoseValuesAreItems}>
        {Object.keys(graph.walks ?? {}).map((walk) => (
          <Producer key={walk} walk={walk} stream={stream} graph={graph} onSet={set} />
        ))}
      </Section>
      <ChunkFields stream={stream} onSet={set} />
      <Section title={strings.inspector.read}>
        {readers.length === 0 && <p className="wg-quiet">{strings.inspector.noWalkReadsItYet(name)}</p>}
        <div className="wg-links">
          {readers.map((walk) => (
            <Button
              key={walk}
              kind="quiet"
              onClick={() => editor.open({ kind: "walk", walk, inside: null }, [`@stream.${name}`])}
            >
              {walk}
            </Button>
          ))}
        </div>
      </Section>
      <Removal onRemove={remove}>{strings.inspector.removeTheStream2}</Removal>
    </>
  );
}

function Typed({ type }: { type: string }) {
  return (
    <>
      <Glyph type={type} /> {type}
    </>
  );
}

type Set = (label: string, fields: Partial<Stream>) => string | null;

function Producer(props: { walk: string; stream: Stream; graph: GraphDocument; onSet: Set }) {
  const { walk, stream, graph, onSet } = props;
  const [owner = "", name = ""] = stream.from.split(/\.(.*)/s, 2);
  const chosen = stream.walks.includes(walk);
  const { uses, merges } = factsOf(graph.walks![walk]!);
  if (!chosen && !(owner === "@merge" ? merges.has(name) : uses.has(owner))) return null;
  const change = (take: boolean) => {
    const walks = take ? [...stream.walks, walk] : stream.walks.filter((other) => other !== walk);
    onSet(strings.inspector.setTheWalksThatFeed, { walks });
  };
  return (
    <CheckField
      label={walk}
      value={chosen}
      disabled={chosen && stream.walks.length === 1}
      onChange={change}
      hint={chosen && stream.walks.length === 1 ? strings.inspector.atLeastOneMustFeed : undefined}
    />
  );
}

const POLICIES: Record<ChunkPolicy["policy"], { label: string; fresh: ChunkPolicy }> = {
  fixed: { label: strings.inspector.aFixedNumberOfItems, fresh: { policy: "fixed", size: 1 } },
  sliding: { label: strings.inspector.aSlidingWindow, fresh: { policy: "sliding", window: 4, stride: 2 } },
  left_context: {
    label: strings.inspector.newItemsAfterContext,
    fresh: { policy: "left_context", chunk: 4, context: 2 },
  },
  whole: { label: strings.inspector.everythingAtOnce, fresh: { policy: "whole" } },
};

/** The numbers of each policy: key, label, least. */
const NUMBERS: Record<ChunkPolicy["policy"], readonly [key: string, label: string, least: number][]> = {
  fixed: [["size", strings.inspector.itemsOfAChunk, 1]],
  sliding: [
    ["window", strings.inspector.itemsOfAWindow, 1],
    ["stride", strings.inspector.newItemsEachTime, 1],
  ],
  left_context: [
    ["chunk", strings.inspector.newItemsOfAChunk, 1],
    ["context", strings.inspector.itemsOfContext, 0],
  ],
  whole: [],
};

function ChunkFields({ stream, onSet }: { stream: Stream; onSet: Set }) {
  const { chunks } = stream;
  const fields = chunks as unknown as Record<string, number | null | undefined>;
  const put = (changed: Record<string, unknown>) => {
    const policy = { ...chunks, ...changed } as ChunkPolicy;
    if (changed["first"] === null) delete (policy as { first?: unknown }).first;
    return whyNotPolicy(policy) ?? onSet(strings.inspector.setHowTheStream, { chunks: policy });
  };
  return (
    <Section title={strings.inspector.chunks}>
      <ChoiceField
        label={strings.inspector.aChunk}
        value={chunks.policy}
        options={Object.entries(POLICIES).map(([value, { label }]) => ({ value, label }))}
        onChoose={(policy) =>
          onSet(strings.inspector.setHowTheStream, { chunks: POLICIES[policy as ChunkPolicy["policy"]].fresh })
        }
        hint={policyText(chunks)}
      />
      <div className="wg-pair">
        {NUMBERS[chunks.policy].map(([key, label, least]) => (
          <NumberField
            key={key}
            label={label}
            value={fields[key]}
            integer
            min={least}
            onNumber={(value) => (value === null ? strings.inspector.aNumberIsNeeded : put({ [key]: value }))}
          />
        ))}
        {chunks.policy !== "whole" && (
          <NumberField
            label={strings.inspector.firstChunk}
            value={chunks.first}
            placeholder={strings.inspector.likeTheOthers}
            integer
            min={1}
            onNumber={(first) => put({ first })}
          />
        )}
      </div>
      <ChunkPicture policy={chunks} />
      {chunks.policy === "fixed" && (
        <CheckField
          label={strings.inspector.goOnAfterTheEnd}
          value={chunks.continue_after_done ?? false}
          onChange={(on) => put({ continue_after_done: on })}
          hint={strings.inspector.afterTheLastItem}
        />
      )}
      <NumberField
        label={strings.inspector.credits}
        value={stream.credits}
        placeholder="64"
        integer
        min={1}
        max={4096}
        hint={strings.inspector.theMostChunksInTransit}
        onNumber={(credits) => onSet(strings.inspector.setTheStreamsCredits, { credits: credits ?? undefined })}
      />
    </Section>
  );
}

/** The ports of the uses of the producing Walks; without a producer, of every Walk. */
function sources(graph: GraphDocument, catalogue: Catalogue, stream: Stream): string[] {
  const walks = stream.walks.filter((walk) => graph.walks?.[walk]);
  const found = walks.flatMap((walk) => {
    const { uses, merges } = factsOf(graph.walks![walk]!);
    const ports = [...uses.values()].flatMap((entry) =>
      portsOf(graph, catalogue, entry.node).outputs.map((port) => `${entry.name}.${port.name}`),
    );
    return [...ports, ...[...merges.keys()].map((merge) => `@merge.${merge}`)];
  });
  return [...new Set(found)];
}

/** The Walks that read a stream. */
function readersOf(graph: GraphDocument, stream: string): string[] {
  return Object.entries(graph.walks ?? {})
    .filter(([, walk]) => factsOf(walk).routes.some((route) => route.from === `@stream.${stream}`))
    .map(([name]) => name);
}
