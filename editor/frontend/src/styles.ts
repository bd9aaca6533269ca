// All of the editor's CSS as one text for the shadow root. The theme comes first, so that modules may build on it.
import { styles as canvas } from "./canvas/styles";
import { styles as debug } from "./debug/styles";
import { styles as deploy } from "./deploy/styles";
import { styles as panels } from "./panels/styles";
import { styles as placement } from "./placement/styles";
import { styles as play } from "./play/styles";
import { styles as shell } from "./shell/styles";
import { styles as taps } from "./taps/styles";
import { styles as tasks } from "./tasks/styles";
import { styles as trace } from "./trace/styles";
import { styles as versions } from "./versions/styles";
import pieces from "./ui/pieces.css?inline";
import theme from "./ui/theme.css?inline";

export const styles = [
  theme,
  pieces,
  shell,
  canvas,
  panels,
  taps,
  tasks,
  versions,
  placement,
  deploy,
  play,
  trace,
  debug,
].join("\n");
