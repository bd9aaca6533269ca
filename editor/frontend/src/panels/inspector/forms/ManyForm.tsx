// Several selected at once: what they share, and what can be done to all of them.
import { useMemo } from "react";
import * as choices from "../../../document/edits/choices";
import * as edges from "../../../document/edits/edges";
import * as items from "../../../document/edits/items";
import { wrap as wrapped } from "../../../document/edits/wrap";
import * as nodes from "../../../document/edits/nodes";
import { whenOf } from "../../../document/names";
import { factsOf } from "../../../document/routes";
import type { GraphDocument } from "../../../document/types";
import { useEditorState } from "../../../store/react";
import { Button } from "../../../ui/kit";
import { plural } from "../../../ui/words";
import { Removal, Section } from "../../common/bits";
import { groupBy } from "../../common/group";
import { scopeOfWalk } from "../../common/scope";
import { Align } from "./Align";
import { useApply } from "../../common/apply";
import { ExpressionField } from "../fields/fields";
import { strings } from "../../../strings";

export function ManyForm({ walk, ids }: { walk: string | null; ids: readonly string[] }) {
  const { attempt, editor } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const chosen = useMemo(() => itemsAmong(graph, walk, ids), [graph, walk, ids]);
  const remove = () => {
    if (attempt(strings.inspector.removeItems(ids.length), (graph) => removed(graph, walk, ids))) editor.select();
  };
  return (
    <>
      <p className="wg-quiet">{summary(ids)}</p>
      {walk !== null && chosen.length > 0 && <Items walk={walk} ids={chosen} />}
      <Align ids={ids} />
      <Removal onRemove={remove}>{strings.inspector.removeAll}</Removal>
    </>
  );
}

function Items({ walk, ids }: { walk: string; ids: readonly string[] }) {
  const { apply, attempt, editor } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const facts = factsOf(graph.walks![walk]!);
  const whens = ids.map((id) => whenOf(facts.byId.get(id)!.item) ?? "");
  const common = whens.every((when) => when === whens[0]) ? (whens[0] ?? "") : "";
  const differ = whens.some((when) => when !== whens[0]);
  const loops = facts.byId.get(ids[0]!)?.loops;
  const scope = useMemo(() => scopeOfWalk(graph, walk, loops ?? []), [graph, walk, loops]);
  const wrap = (kind: items.WrapKind) => {
    let made = "";
    const done = attempt(strings.inspector.wrap(kind === "choose" ? strings.inspector.choice : kind), (graph) => {
      const answer = wrapped(graph, walk, ids, kind);
      made = answer.id;
      return answer.graph;
    });
    if (done) editor.select(made);
  };
  const setWhen = (when: string) =>
    apply(strings.inspector.setWhenTheyRun, (graph) =>
      ids.reduce((changed, id) => items.setItem(changed, walk, id, { when: when || null }), graph),
    );
  return (
    <>
      <ExpressionField
        key={ids.join()}
        label={strings.inspector.onlyWhen}
        value={common}
        placeholder={differ ? strings.inspector.differentTypingSetsAll : strings.inspector.always}
        scope={scope}
        onEnter={setWhen}
      />
      <Section title={strings.inspector.wrap2}>
        <div className="wg-actions">
          <Button onClick={() => wrap("loop")}>{strings.inspector.loop2}</Button>
          <Button onClick={() => wrap("map")}>{strings.inspector.map}</Button>
          <Button onClick={() => wrap("parallel")}>{strings.inspector.parallel}</Button>
          <Button onClick={() => wrap("choose")}>{strings.inspector.choice2}</Button>
          <Button onClick={() => wrap("sequence")}>{strings.inspector.sequence}</Button>
        </div>
      </Section>
    </>
  );
}

/** The selected items of a Walk's body, in program order. */
export function itemsAmong(graph: GraphDocument, walk: string | null, ids: readonly string[]): string[] {
  const body = walk === null ? undefined : graph.walks?.[walk];
  return body
    ? factsOf(body)
        .list.filter((entry) => ids.includes(entry.id))
        .map((entry) => entry.id)
    : [];
}

function removed(graph: GraphDocument, walk: string | null, ids: readonly string[]): GraphDocument {
  const wires = ids.filter((id) => id.startsWith("edge:")).map((id) => Number(id.slice("edge:".length)));
  let changed = graph;
  if (walk !== null) {
    if (wires.length) changed = edges.removeEdges(changed, walk, wires);
    for (const id of ids) {
      const name = id.slice("merge:".length);
      const there = id.startsWith("merge:") && factsOf(changed.walks![walk]!).merges.has(name);
      if (there) changed = choices.removeMerge(changed, walk, name);
    }
    const chosen = itemsAmong(graph, walk, ids);
    if (chosen.length) changed = items.removeItems(changed, walk, chosen, {});
  }
  for (const id of ids)
    if (walk === null && id.startsWith("node:")) changed = nodes.removeNode(changed, id.slice("node:".length));
  return changed;
}

const NOUNS: Record<string, string> = {
  use: "use",
  choose: "choice",
  node: "component",
  "@in": "boundary",
  "@out": "boundary",
};

/** `3 uses, 1 loop selected`. */
export function summary(ids: readonly string[]): string {
  const kinds = groupBy(ids, (id) => NOUNS[id.split(":", 1)[0]!] ?? id.split(":", 1)[0]!.replace("@", ""));
  const parts = [...kinds].map(([kind, members]) =>
    kind === "boundary" ? strings.inspector.ofTheBoundary(members.length) : plural(members.length, kind),
  );
  return strings.inspector.selected(parts.join(", "));
}
