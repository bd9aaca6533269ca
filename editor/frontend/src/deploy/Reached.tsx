// Where a deployment is called, and by what else.
import { routesInWords, useRoutes } from "../api/models";
import type { DeploymentShown } from "../messages/answers";
import { CopyButton } from "../ui/CopyButton";
import { strings } from "../strings";

export function Reached({ deployment }: { deployment: DeploymentShown }) {
  const routes = routesInWords(useRoutes(deployment.id, deployment.digest));
  const address = `${location.origin}/v1/tasks/${deployment.id}`;
  return (
    <p className="reached" aria-label={strings.deploy.itsAddress}>
      <code>{address}</code>
      <CopyButton text={address} label={strings.deploy.copyTheAddress} />
      {routes && (
        <span className="quiet">
          {strings.deploy.also(routes)} <code>/v1</code>
          {strings.deploy.asModel} <code>{deployment.id}</code>
        </span>
      )}
    </p>
  );
}
