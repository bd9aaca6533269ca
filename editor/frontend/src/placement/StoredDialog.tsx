// Stored placements of this graph: take one over, or keep the open one under another name.
import { useEffect, useState } from "react";
import { ApiError } from "../api/client";
import { isName } from "../document/names";
import { useEditor, useEditorState } from "../store/react";
import { Badge, Button, Dialog, Empty, Field, Input } from "../ui/kit";
import { ANY, hostOf } from "../document/placement/hosts";
import type { PlacementDocument } from "../document/placement/schema.generated";
import { keepCopy, placementsFor, type StoredPlacement } from "./model/stored";
import { strings } from "../strings";

type Listed =
  { state: "asking" } | { state: "here"; found: StoredPlacement[] } | { state: "failed"; message: string };

function useStored(graph: string): Listed {
  const [listed, setListed] = useState<Listed>({ state: "asking" });
  useEffect(() => {
    let current = true;
    placementsFor(graph).then(
      (found) => current && setListed({ state: "here", found }),
      (error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        if (current) setListed({ state: "failed", message: error.message });
      },
    );
    return () => {
      current = false;
    };
  }, [graph]);
  return listed;
}

export function OpenDialog({ onClose }: { onClose: () => void }) {
  const editor = useEditor();
  const graph = useEditorState((state) => state.name);
  const mine = useEditorState((state) => state.placementName);
  const listed = useStored(graph);
  const take = (stored: StoredPlacement) => {
    editor.editPlacement(strings.placement.placement(stored.name), () => ({
      ...stored.placement,
      name: mine,
      graph,
    }));
    onClose();
  };
  return (
    <Dialog title={strings.placement.placementsOfThisGraph} onClose={onClose}>
      <p className="wg-place-hint">{strings.placement.usingOneReplacesTheOpen}</p>
      {listed.state === "asking" && <p role="status">{strings.placement.loading}</p>}
      {listed.state === "failed" && <p role="alert">{listed.message}</p>}
      {listed.state === "here" && listed.found.length === 0 && (
        <Empty title={strings.placement.noneStoredYet}>{strings.placement.saveTheOpenPlacementUnder}</Empty>
      )}
      {listed.state === "here" && listed.found.length > 0 && (
        <ul className="wg-place-stored">
          {listed.found.map((stored) => (
            <li key={stored.name}>
              <div>
                <b>{stored.name}</b> {stored.bundled && <Badge>{strings.placement.example}</Badge>}
                {stored.name === mine && <Badge kind="good">{strings.placement.thisOneAsSaved}</Badge>}
                <p>{summary(stored.placement)}</p>
              </div>
              <Button onClick={() => take(stored)}>{strings.placement.useThisPlacement}</Button>
            </li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}

/** Ranks whose devices are told one by one. */
const MOST = 8;

/** `3 ranks: cuda:0, cuda:1, cuda:2`; of many ranks, each device once. */
export function summary(placement: PlacementDocument): string {
  const { ranks, groups } = placement;
  const all = ranks.map((entry) => entry.device);
  const devices = (all.length > MOST ? [...new Set(all)] : all).join(", ");
  const hosts = new Set(ranks.map(({ rank }) => hostOf(placement, rank)).filter((host) => host !== ANY)).size;
  const on = hosts > 1 ? strings.placement.onHosts(hosts) : "";
  const apart = groups.some((group) => group.walks) ? strings.placement.someComponentsByWalk : "";
  return `${ranks.length} ${ranks.length === 1 ? "rank" : "ranks"}${on}: ${devices}${apart}`;
}

export function SaveDialog({ placement, onClose }: { placement: PlacementDocument; onClose: () => void }) {
  const editor = useEditor();
  const [name, setName] = useState(`${placement.name}_copy`);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    try {
      await keepCopy(placement, name);
      editor.say(strings.placement.thePlacementIsStored(name));
      onClose();
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setError(failure.status === 412 ? strings.placement.aPlacementOfThisName : failure.message);
      setBusy(false);
    }
  };
  const wrong = isName(name) ? error : strings.placement.startWithALetterLetters;
  const footer = (
    <>
      <Button onClick={onClose}>{strings.placement.cancel}</Button>
      <Button kind="primary" disabled={busy || !isName(name)} onClick={() => void save()}>
        {strings.placement.saveACopy}
      </Button>
    </>
  );
  return (
    <Dialog title={strings.placement.saveThisPlacementUnder} onClose={onClose} footer={footer}>
      <Field label={strings.placement.name} error={wrong} hint={strings.placement.youContinueToEdit}>
        {(props) => (
          <Input
            {...props}
            value={name}
            autoFocus
            onChange={(event) => {
              setName(event.target.value);
              setError(null);
            }}
            onKeyDown={(event) => {
              if (event.key === "Enter" && isName(name) && !busy) void save();
            }}
          />
        )}
      </Field>
    </Dialog>
  );
}
