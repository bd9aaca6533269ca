// The chosen block: its times, its batch and its shards, and the values that came to it and left it.
import { Network } from "lucide-react";
import { Button } from "../ui/kit";
import { insideWords } from "../ui/words";
import { blockWords } from "./model/figures";
import type { Link } from "./model/find";
import type { Model } from "./model/model";
import { showMicros } from "./model/span";
import { factsOf, hopWords, sentenceOf } from "./model/words";
import { strings } from "../strings";

interface BlockProps {
  model: Model;
  block: number;
  links: readonly Link[];
  onBlock: (block: number) => void;
  /** null: there is no graph to show it on. */
  onCanvas: ((nodes: readonly string[]) => void) | null;
}

export function BlockPanel({ model, block, links, onBlock, onCanvas }: BlockProps) {
  const lane = model.laneAt(block);
  const parts = model.partsOf(block);
  const mates = model.mates(block).filter((mate) => mate !== block);
  const runs = model.runs[block]!.slice(1).map((run) => model.names[run]!);
  return (
    <section className="wg-trace-block" aria-label={strings.trace.theChosenBlock}>
      <h2>{lane.name}</h2>
      <p className="about">{blockWords(model, block)}</p>
      <dl>
        {factsOf(model, block).map(({ name, value }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {lane.loop && <p className="about">{insideWords(lane.nodes, lane.spans)}</p>}
      {onCanvas && (
        <Button onClick={() => onCanvas(lane.nodes)}>
          <Network size={14} aria-hidden /> {strings.trace.showOnTheCanvas}
        </Button>
      )}
      {(mates.length > 0 || runs.length > 0) && <h3>{strings.trace.inTheSameBatch}</h3>}
      <ul>
        {mates.slice(0, 12).map((mate) => (
          <li key={mate}>
            <button type="button" className="wg-trace-link" onClick={() => onBlock(mate)}>
              {sentenceOf(model, mate)}
            </button>
          </li>
        ))}
        {runs.slice(0, 12).map((run) => (
          <li key={run}>
            {strings.trace.run2} <code>{run.slice(0, 8)}</code>
          </li>
        ))}
      </ul>
      {parts.length > 0 && <h3>{strings.trace.onItsShards}</h3>}
      <ul>
        {parts.map((part) => (
          <li key={part}>
            <button
              type="button"
              className="wg-trace-link"
              aria-current={part === block}
              onClick={() => onBlock(part)}
            >
              {partWords(model, part, parts[0]!)}
            </button>
          </li>
        ))}
      </ul>
      {links.length > 0 && <h3>{strings.trace.valuesFromAndToOther}</h3>}
      <ul>
        {links.slice(0, 24).map((link, index) => {
          const other = link.from === block ? link.to : link.from;
          const words = `${link.from === block ? "sent" : "got"} ${hopWords(link.hop)}`;
          return (
            <li key={index}>
              {other === null ? (
                words
              ) : (
                <button type="button" className="wg-trace-link" onClick={() => onBlock(other)}>
                  {words}
                </button>
              )}
            </li>
          );
        })}
      </ul>
    </section>
  );
}

/** `rank 1: 12.1 ms, began 40 µs later`: a shard's part of a block, beside the first one's. */
function partWords(model: Model, part: number, first: number): string {
  const words = strings.trace.shardPart(model.laneAt(part).rank, showMicros(model.busy.at(part)));
  const later = model.started.at(part) - model.started.at(first);
  if (later === 0) return words;
  const told = later > 0 ? strings.trace.shardLater : strings.trace.shardEarlier;
  return words + told(showMicros(Math.abs(later)));
}
