// The changes that deploying would make: the open graph and placement compared with the deployed ones.
import { useEffect, useMemo, useState } from "react";
import { ApiError, call } from "../api/client";
import type { DeploymentShown } from "../messages/answers";
import type { Difference } from "../document/diff";
import { placementInForce } from "../placement/model/ranks";
import type { PlacementDocument } from "../document/placement/schema.generated";
import { useEditor, useEditorState } from "../store/react";
import { Button } from "../ui/kit";
import { DiffList } from "../versions/DiffList";
import { changedNodes } from "./changed";
import { placementDiff, type PlacementChange } from "./placementDiff";
import { strings } from "../strings";

/** The placement that a deployment runs; null while it isn't known. */
export function useDeployedPlacement(deployment: DeploymentShown | null): PlacementDocument | null {
  const [placement, setPlacement] = useState<PlacementDocument | null>(null);
  const version = deployment && `${deployment.id} ${deployment.created_at} ${deployment.digest}`;
  const id = deployment?.id ?? null;
  useEffect(() => {
    setPlacement(null);
    if (id === null) return undefined;
    const asking = new AbortController();
    call<PlacementDocument>(`/api/v1/deployments/${encodeURIComponent(id)}/placement`, {
      signal: asking.signal,
    }).then(
      ({ value }) => setPlacement(value),
      (error: unknown) => {
        if (!(error instanceof ApiError) && !asking.signal.aborted) throw error;
      },
    );
    return () => asking.abort();
  }, [id, version]);
  return placement;
}

/** The changes of the open placement against the deployed one; null while that isn't known. */
export function usePlacementChanges(running: PlacementDocument | null): PlacementChange[] | null {
  const documents = useEditorState((state) => state.documents);
  const planned = useEditorState((state) => state.planned);
  return useMemo(() => {
    const placement = placementInForce({ documents, planned });
    return running && placement ? placementDiff(running, placement, documents.graph) : null;
  }, [running, documents, planned]);
}

export function Changes({ running }: { running: PlacementDocument | null }) {
  const editor = useEditor();
  const documents = useEditorState((state) => state.documents);
  const deployed = useEditorState((state) => state.deployed);
  const places = usePlacementChanges(running);
  if (!deployed) return <p role="status">{strings.deploy.loadingTheDeployedVersion}</p>;
  const show = (differences: readonly Difference[]) => {
    const walk = differences.find((difference) => difference.walk !== undefined)?.walk;
    const nodes = [...changedNodes(editor.state)].map((node) => `node:${node}`);
    if (walk !== undefined && walk in (documents.graph.walks ?? {}))
      editor.open({ kind: "walk", walk, inside: null });
    else editor.open({ kind: "components" }, nodes);
  };
  return (
    <>
      <section aria-label={strings.deploy.changesOfTheGraph}>
        <h3>{strings.deploy.graph}</h3>
        <DiffList before={deployed} after={documents.graph} onShow={show} />
      </section>
      <section aria-label={strings.deploy.changesOfThePlacement}>
        <h3>{strings.deploy.placement}</h3>
        {places === null ? (
          <p className="quiet">{strings.deploy.shownOnceTheOpenPlacement}</p>
        ) : places.length === 0 ? (
          <p className="quiet">{strings.deploy.noDifference}</p>
        ) : (
          <ul className="places">
            {places.map(({ kind, text }) => (
              <li key={text} className={kind}>
                <b aria-hidden>{{ added: "+", removed: "−", changed: "~" }[kind]}</b>
                <span className="visually-hidden">{kind} </span>
                {text}
              </li>
            ))}
          </ul>
        )}
        {places !== null && places.length > 0 && (
          <Button kind="quiet" onClick={() => editor.see({ tab: "placement" })}>
            {strings.deploy.openThePlacement}
          </Button>
        )}
      </section>
    </>
  );
}
