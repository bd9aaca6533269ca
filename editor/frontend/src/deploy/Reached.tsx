// Where a deployment is called, and by what else.
import { routesInWords, useRoutes } from "../api/models";
import type { DeploymentShown } from "../messages/answers";
import { CopyButton } from "../ui/CopyButton";

export function Reached({ deployment }: { deployment: DeploymentShown }) {
  const routes = routesInWords(useRoutes(deployment.id, deployment.digest));
  const address = `${location.origin}/v1/tasks/${deployment.id}`;
  return (
    <p className="reached" aria-label="Its address">
      <code>{address}</code>
      <CopyButton text={address} label="Copy its address" />
      {routes && (
        <span className="quiet">
          also: {routes} at <code>/v1</code>, as model <code>{deployment.id}</code>
        </span>
      )}
    </p>
  );
}
